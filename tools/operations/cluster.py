"""Clusters of real processes: under `divvyctl launch`, or over TLS."""
import json
import os
import re
import signal
import socket
import subprocess

import yaml

from . import common

_PAGES = re.compile(r"([0-9]+) task_server\.cc:[0-9]+\] its pages are at (https?)://([^/]+)/statusz")
_TASK = re.compile(r"^(chief|ps|worker)(?: ([0-9]+))? *\| (.*)$")


class Task:
    def __init__(self, role, index, pid, scheme, address):
        self.role, self.index, self.pid, self.scheme, self.address = role, index, pid, scheme, address

    @property
    def name(self):
        return "%s-%d" % (self.role, self.index)

    def url(self, page):
        return "%s://%s%s" % (self.scheme, self.address, page)


class LaunchedCluster(common.Process):
    """A program that `divvyctl launch` runs on sockets of this machine, with its pages on loopback.
    The program gets --stop_file, which `finish` makes."""

    def __init__(self, folder, bin_folder, program, flags=(), ps=2, workers=2, launch_flags=()):
        self.folder = folder
        self.stop_file = os.path.join(folder, "stop")
        self._roles = {"chief": 1, "ps": ps, "worker": workers}
        super().__init__([os.path.join(bin_folder, "tools/divvyctl"), "launch", "--ps=%d" % ps, "--workers=%d" % workers,
                          *launch_flags, "--", os.path.join(bin_folder, program), "--http_address=127.0.0.1:0", *flags],
                         # There it leaves what a job that has not ended could go on from.
                         os.path.join(folder, "launch.log"), env=dict(os.environ, TMPDIR=folder))

    def __exit__(self, *_):
        # A task that was stopped (SIGSTOP) could not end.
        for task in self.tasks().values():
            _signal(task.pid, signal.SIGCONT)
        self.end(signal.SIGTERM, 5)

    def tasks(self):
        """(role, index) -> the newest process of each task that has said where its pages are."""
        tasks = {}
        for line in self.output().splitlines():
            of_task = _TASK.match(line)
            pages = of_task and _PAGES.search(of_task[3])
            if pages:
                key = (of_task[1], int(of_task[2] or 0))
                tasks[key] = Task(*key, int(pages[1]), pages[2], pages[3])
        return tasks

    def all_tasks(self, seconds=60):
        """As tasks, once there are all."""
        wanted = sum(self._roles.values())
        tasks = common.await_true(lambda: len(self.tasks()) == wanted and self.tasks(), seconds)
        if not tasks:
            raise RuntimeError("the cluster does not start:\n" + common.tail(self.log))
        return tasks

    def wait_for(self, text, seconds=60):
        if not common.await_true(lambda: text in self.output() or self.child.poll() is not None, seconds) or text not in self.output():
            raise RuntimeError("the cluster did not say %r:\n%s" % (text, common.tail(self.log)))

    def signal(self, role, index, number):
        _signal(self.tasks()[(role, index)].pid, number)

    def finish(self, seconds=60):
        """Ends the job well. Returns its exit code."""
        common.write(self.stop_file, "")
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.end()


class TlsCluster:
    """Tasks with certificates, whose pages are served by HTTPS on all addresses of the machine.
    `replace`: TASK -> the folder that has its pair in place of the one of `divvyctl certs`."""

    def __init__(self, folder, bin_folder, program, flags=(), ps=2, workers=2, replace=None):
        self.folder = folder
        self.certs = os.path.join(folder, "certs")
        self.stop_file = os.path.join(folder, "stop")
        self._divvyctl = os.path.join(bin_folder, "tools/divvyctl")
        self._program = os.path.join(bin_folder, program)
        self._flags = list(flags)
        self._names = ["chief-0"] + ["ps-%d" % i for i in range(ps)] + ["worker-%d" % i for i in range(workers)]
        self._counts = ["--ps=%d" % ps, "--workers=%d" % workers]
        self._processes = {}
        subprocess.run([self._divvyctl, "certs", "--out=" + self.certs, *self._counts], check=True, stdout=subprocess.DEVNULL)
        if replace:
            replace(self.certs)

    def __enter__(self):
        addresses = dict(zip(self._names, free_addresses(len(self._names))))
        cluster = {}
        for name, address in addresses.items():
            cluster.setdefault(name.split("-")[0], []).append(address)
        for name in self._names:
            role, index = name.split("-")
            config = json.dumps({"cluster": cluster, "task": {"type": role, "index": int(index)}})
            pair = os.path.join(self.certs, name)
            self._processes[name] = common.Process(
                [self._program, "--http_address=0.0.0.0:0", "--tls_cert=%s.pem" % pair, "--tls_key=%s.key" % pair,
                 "--tls_ca=%s/ca.pem" % self.certs, *self._flags],
                os.path.join(self.folder, name + ".log"), env=dict(os.environ, TF_CONFIG=config))
        return self

    def __exit__(self, *_):
        for process in self._processes.values():
            _signal(process.child.pid, signal.SIGTERM)
        for process in self._processes.values():
            process.end()

    def all_tasks(self, seconds=60):
        tasks = {}

        def look():
            for name, process in self._processes.items():
                pages = _PAGES.search(process.output())
                if pages:
                    role, index = name.split("-")
                    tasks[(role, int(index))] = Task(role, int(index), process.child.pid, pages[2], pages[3])
            return len(tasks) == len(self._names)
        if not common.await_true(look, seconds):
            raise RuntimeError("the cluster does not start:\n" + common.tail(self._processes["chief-0"].log))
        return tasks

    def wait_for(self, text, seconds=60):
        chief = self._processes["chief-0"]
        if not common.await_true(lambda: text in chief.output(), seconds):
            raise RuntimeError("the coordinator did not say %r:\n%s" % (text, common.tail(chief.log)))

    def finish(self, seconds=60):
        common.write(self.stop_file, "")
        try:
            return self._processes["chief-0"].child.wait(seconds)
        except subprocess.TimeoutExpired:
            return self._processes["chief-0"].end()

    def scrape_configs(self):
        """Those that `divvyctl gen prometheus` writes for the job, but with the addresses of these tasks."""
        text = subprocess.run([self._divvyctl, "gen", "prometheus", "--name=digits", "--tls_dir=" + self.certs,
                               *self._counts, "--", "./digits"], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
        configs = yaml.safe_load(text)["scrape_configs"]
        for (role, index), task in self.all_tasks().items():
            config = next(c for c in configs if c["job_name"] == "digits/%s-%d" % (role, index))
            config["static_configs"][0]["targets"] = ["127.0.0.1:" + task.address.rpartition(":")[2]]
        return configs


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def free_addresses(count):
    """Loopback's, which nobody else was given meanwhile."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return ["127.0.0.1:%d" % each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
