"""The script of `divvyctl gen slurm` runs digits to its end on a Slurm of one node: once undisturbed,
once with a worker killed. munge, slurmctld and slurmd are started here, with sockets, ports and
files of their own."""
import json
import os
import re
import signal
import socket
import subprocess

from built import built

from . import common

# Of 45 steps each.
EPOCHS = 60
_KILLED_EPOCHS = 400

_CONFIG = """ClusterName=divvy
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={d_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
NodeName=localhost NodeAddr=127.0.0.1 CPUs=16 RealMemory=65536
PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""


def _free_ports(count):
    """The first of so many ports in a row on which nobody listens."""
    for first in range(21000, 60000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("", port))
            return first
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    raise common.Skipped("no %d free ports in a row" % count)


class Slurm:
    """A controller and a node."""

    def __init__(self, folder):
        self.folder = folder
        self._processes = []
        plugins = os.path.join(common.LIBRARIES, "slurm-wlm")
        if not os.path.isdir(plugins):
            plugins = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
        first = _free_ports(2)
        self._config = os.path.join(folder, "slurm.conf")
        common.write(self._config, _CONFIG.format(folder=folder, plugins=plugins, ctld_port=first, d_port=first + 1))
        for name in ("state", "spool"):
            os.mkdir(os.path.join(folder, name), 0o755)
        self.environment = common.unpacked_environment(
            SLURM_CONF=self._config, PATH=os.path.join(common.UNPACKED, "usr/bin") + ":" + os.environ["PATH"])

    def _start(self, name, *words):
        self._processes.append(common.Process(words, os.path.join(self.folder, name + ".log"), env=self.environment))

    def __enter__(self):
        try:
            self._start_all()
        except BaseException:
            # The `with` statement does not call __exit__ then.
            self.__exit__()
            raise
        return self

    def _start_all(self):
        # All are looked up before the first is started.
        munged = common.debian("usr/sbin/munged")
        slurmctld, slurmd, slurmstepd = (common.debian("usr/sbin/%s-wlm" % name, name) for name in ("slurmctld", "slurmd", "slurmstepd"))
        key = os.path.join(self.folder, "munge.key")
        with open(key, "wb") as file:
            file.write(os.urandom(128))
        os.chmod(key, 0o400)
        at = self.folder + "/munge."
        self._start("munged", munged, "--foreground", "--force", "--key-file=" + key, "--socket=" + at + "socket",
                    "--pid-file=" + at + "pid", "--log-file=" + at + "text", "--seed-file=" + at + "seed")
        common.await_true(lambda: os.path.exists(at + "socket"), 10)
        self._start("slurmctld", slurmctld, "-D", "-f", self._config)
        self._start("slurmd", slurmd, "-D", "-f", self._config, "-N", "localhost", "-d", slurmstepd)
        if not common.await_true(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%t", check=False), 60, 0.5):
            raise RuntimeError("the node is not idle:\n" + "\n".join(common.tail(process.log, 8) for process in self._processes))

    def __exit__(self, *_):
        for process in reversed(self._processes):
            process.end()

    def run(self, *words, check=True, **more):
        done = subprocess.run(words, cwd=self.folder, env=dict(self.environment, **more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        if check and done.returncode != 0:
            raise RuntimeError("%s: %s" % (words[0], done.stdout))
        return done.stdout

    def job(self, number):
        """What scontrol tells: name -> value."""
        return dict(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "show", "job", number, "--oneliner", check=False)))


def _pid_of(folder, role, index):
    """The process of a task whose flags name `folder`."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if folder not in common.read("/proc/%s/cmdline" % pid):
                continue
            environment = dict(each.partition("=")[::2] for each in common.read("/proc/%s/environ" % pid).split("\0"))
            # srun, which waits for the task, has the same environment.
            if os.path.basename(os.readlink("/proc/%s/exe" % pid)) != "digits":
                continue
        except OSError:
            continue
        task = json.loads(environment.get("TF_CONFIG") or "{}").get("task")
        if task == {"type": role, "index": index}:
            return int(pid)
    return None


def _train(checks, slurm, bin_folder, name, epochs, disturb):
    folder = os.path.join(slurm.folder, name)
    os.mkdir(folder)
    divvyctl, digits = os.path.join(bin_folder, "tools/divvyctl"), os.path.join(bin_folder, "examples/digits")
    slurm.run(divvyctl, "certs", "--out=" + os.path.join(folder, "certs"), "--ps=2", "--workers=2")
    script = os.path.join(folder, "digits.sbatch")
    common.write(script, slurm.run(divvyctl, "gen", "slurm", "--name=digits", "--", digits, "--epochs=%d" % epochs,
                                   "--data=" + os.path.join(common.ROOT, "examples/data/digits.csv.gz")))
    first = _free_ports(16)
    said = slurm.run("sbatch", "--chdir=" + folder, script, DIVVY_PORT=str(first), DIVVY_HTTP_PORT=str(first + 8))
    number = re.search(r"Submitted batch job ([0-9]+)", said)[1]
    log = os.path.join(folder, "digits-%s.log" % number)
    if disturb:
        disturb(folder, log)
    common.await_true(lambda: slurm.job(number).get("JobState") not in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING"), 180, 0.5)
    job = slurm.job(number)
    text = common.read(log) if os.path.exists(log) else "no log"
    checks.record("%s: job %s is complete" % (name, number), job.get("JobState") == "COMPLETED" and job.get("ExitCode") == "0:0",
                  "%s\n%s" % (job, text[-3000:]))
    wanted = "%s training steps" % format(45 * epochs, ",")
    checks.record("%s: %s" % (name, wanted), wanted in text, text[-3000:])
    return text


def _kill_worker(checks):
    def disturb(folder, log):
        trains = common.await_true(lambda: os.path.exists(log) and re.search(r"step [0-9,]+", common.read(log)), 90)
        pid = trains and common.await_true(lambda: _pid_of(folder, "worker", 1), 10)
        if not pid:
            checks.record("worker 1 is found", False, common.tail(log) if os.path.exists(log) else "no log")
            return
        os.kill(pid, signal.SIGKILL)
        again = common.await_true(lambda: _pid_of(folder, "worker", 1) not in (None, pid), 60)
        checks.record("the script starts the killed worker again", again, common.tail(log))
    return disturb


def main(checks):
    common.debian("usr/sbin/slurmd-wlm", "slurmd")
    if os.geteuid() != 0:
        raise common.Skipped("slurmd runs jobs as root alone")
    bin_folder = built("//examples:digits", "//tools:divvyctl")
    with common.scratch() as folder:
        os.chmod(folder, 0o755)
        with Slurm(folder) as slurm:
            print(slurm.run("sinfo", "--version").strip())
            _train(checks, slurm, bin_folder, "undisturbed", EPOCHS, None)
            _train(checks, slurm, bin_folder, "a worker killed", _KILLED_EPOCHS, _kill_worker(checks))
