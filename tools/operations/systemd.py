"""What systemd would see of the units of `divvyctl gen systemd`: systemd-analyze reads them, and a
socket of this test gets what the tasks tell (Type=notify)."""
import json
import os
import shutil
import signal
import socket
import subprocess

from built import built

from . import common
from .cluster import free_addresses

PROGRAM = "tools/operations/faulty_program"


class NotifySocket:
    """NOTIFY_SOCKET of one task."""

    def __init__(self, name):
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def message(self, seconds):
        """name -> value of the next message. Empty: there is none within `seconds`."""
        self._socket.settimeout(seconds)
        try:
            return dict(line.partition("=")[::2] for line in self._socket.recv(65536).decode().splitlines())
        except (socket.timeout, BlockingIOError):
            return {}


class _Task:
    def __init__(self, folder, bin_folder, cluster, role):
        # One of them has an abstract name, as containers give it.
        self.role = role
        self.notify = NotifySocket("@divvy-operations-%d" % os.getpid() if role == "worker" else os.path.join(folder, role + ".notify"))
        config = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
        self.process = common.Process([os.path.join(bin_folder, PROGRAM), "--stop_file=" + os.path.join(folder, "stop")],
                                      os.path.join(folder, role + ".log"), env=dict(os.environ, TF_CONFIG=config, NOTIFY_SOCKET=self.notify.name))

    def end(self):
        self.process.end()
        self.notify.__exit__()


def _tasks_tell(checks, bin_folder):
    addresses = dict(zip(("chief", "ps", "worker"), free_addresses(3)))
    cluster = {role: [address] for role, address in addresses.items()}
    tasks = []
    with common.scratch() as folder:
        try:
            # The coordinator is the last one that starts, and the first one that is stopped.
            for role in ("ps", "worker", "chief"):
                tasks.append(_Task(folder, bin_folder, cluster, role))
                said = tasks[-1].notify.message(30)
                checks.record("%s tells systemd that it serves" % role, said == {"READY": "1", "STATUS": "serves at " + addresses[role]}, str(said))
                health = subprocess.run([os.path.join(bin_folder, "tools/divvyctl"), "health", "--addr=" + addresses[role]], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, universal_newlines=True, check=False)
                checks.record("%s serves then" % role, health.returncode == 0, health.stdout)
            common.await_true(lambda: "trains" in tasks[2].process.output(), 30)
            for task in reversed(tasks):
                task.process.child.send_signal(signal.SIGTERM)
                said = task.notify.message(30)
                checks.record("%s tells systemd that it stops" % task.role, said.get("STOPPING") == "1" and "STATUS" in said, str(said))
                code = task.process.child.wait(30)
                checks.record("%s has drained (143)" % task.role, code == 143, "%s\n%s" % (code, common.tail(task.process.log)))
                checks.record("%s tells nothing else" % task.role, task.notify.message(0.1) == {}, "")
        finally:
            for task in tasks:
                task.end()


def _units(checks, bin_folder):
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        print("skipped: no systemd-analyze")
        return
    with common.scratch() as folder:
        text = subprocess.run([os.path.join(bin_folder, "tools/divvyctl"), "gen", "systemd", "--evaluator", "--name=digits", "--", "/bin/true"],
                              check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
        files = {}
        for line in text.splitlines(True):
            if line.startswith("# file: "):
                name = line.split()[2]
            files[name] = files.get(name, "") + line
        units = sorted(name for name in files if name.endswith(".service"))
        for name in units:
            path = os.path.join(folder, name)
            common.write(path, files[name])
            done = subprocess.run([analyze, "verify", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
            # It exits with 0 where it only warns.
            checks.record("systemd-analyze verify " + name, done.returncode == 0 and name not in done.stdout and "\nType=notify\n" in files[name], done.stdout)


def main(checks):
    bin_folder = built("//tools/operations:faulty_program", "//tools:divvyctl")
    _units(checks, bin_folder)
    _tasks_tell(checks, bin_folder)
