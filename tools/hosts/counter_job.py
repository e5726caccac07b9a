"""A job of tests/e2e:counter_program whose tasks have networks or mounts of their own. Whatever
happens, the counters must be exact at the end, and every task must exit with 0."""
import json
import os
import re
import subprocess
import threading
import time

PATIENCE_S = 120
STEPS_OF_ROUND = 20


class Failure(Exception):
    """The scenario failed. The text says why."""


def command(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    if done.returncode != 0:
        raise Failure("%s: %s" % (" ".join(words), done.stdout.strip()))
    return done.stdout


class Task:
    def __init__(self, name):
        self.name, self.child, self.lines, self.reader = name, None, [], None

    def read(self, stream):
        for line in stream:
            self.lines.append(line)

    def text(self):
        return "".join(self.lines)


class CounterJob:
    """A subclass says where the tasks are, and makes what they need before __init__ ends."""

    NAMES = ("chief-0", "ps-0", "ps-1", "worker-0", "worker-1")

    def __init__(self, binaries, scratch):
        self.binaries, self.scratch = binaries, scratch
        self.stop_file = os.path.join(scratch, "stop")
        self.tasks = {name: Task(name) for name in self.NAMES}

    # ---- what a subclass says ----

    def address(self, name):
        """HOST:PORT under which the others reach this task."""
        raise NotImplementedError

    def flags(self, name):
        """The flags of this task that not every job has."""
        raise NotImplementedError

    def prefix(self, name):
        """The words before the program."""
        return []

    # ---- the tasks ----

    def config(self, name):
        job, index = name.rsplit("-", 1)
        cluster = {}
        for each in self.NAMES:
            cluster.setdefault(each.rsplit("-", 1)[0], []).append(self.address(each))
        return json.dumps({"cluster": cluster, "task": {"type": job, "index": int(index)}})

    def start(self, name):
        task = self.tasks[name]
        task.child = subprocess.Popen(
            [*self.prefix(name), os.path.join(self.binaries, "tests", "e2e", "counter_program"),
             "--stop_file=" + self.stop_file, "--checkpoint_every=2s", "--max_recoveries=1000000",
             "--max_step_attempts=1000000", "--elements=1000", "--round=%d" % STEPS_OF_ROUND,
             *self.flags(name)],
            env={**os.environ, "TF_CONFIG": self.config(name)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        task.reader = threading.Thread(target=task.read, args=(task.child.stdout,), daemon=True)
        task.reader.start()

    def start_all(self):
        for name in self.NAMES:
            self.start(name)
        self.count_on(1)

    def rounds(self):
        return self.tasks["chief-0"].text().count("counted ")

    def count_on(self, rounds, patience=PATIENCE_S):
        """Waits for so many more rounds of steps, and restarts tasks whose exit code asks for it."""
        wanted = self.rounds() + rounds
        self.await_that(lambda: self.rounds() >= wanted, "no steps for %d s" % patience, patience)

    def await_that(self, condition, failure, patience=PATIENCE_S):
        until = time.monotonic() + patience
        while not condition():
            if time.monotonic() > until:
                raise Failure("%s\n%s" % (failure, self.last_lines()))
            self.revive()
            time.sleep(0.05)

    def revive(self):
        for name, task in self.tasks.items():
            code = task.child.poll()
            if code is None or code == 0:
                continue
            if 0 < code < 128 and not self.may_end(name, code):
                raise Failure("%s ended with %d\n%s" % (name, code, self.last_lines()))
            self.start(name)

    def may_end(self, name, code):
        """Whether this exit code is what the scenario may lead to. The task is then started again."""
        return False

    def kill(self, name):
        self.tasks[name].child.kill()
        self.tasks[name].child.wait()

    def rate(self, seconds=5):
        rounds, began = self.rounds(), time.monotonic()
        time.sleep(seconds)
        return STEPS_OF_ROUND * (self.rounds() - rounds) / (time.monotonic() - began)

    def last_lines(self):
        return "\n".join("--- %s\n%s" % (name, "".join(task.lines[-6:]))
                         for name, task in self.tasks.items())

    def finish(self):
        with open(self.stop_file, "w", encoding="utf-8"):
            pass
        self.await_that(lambda: all(task.child.poll() == 0 for task in self.tasks.values()),
                        "the job does not end")
        for task in self.tasks.values():
            task.reader.join(5)
        said = re.findall(r"^counter = .*$", self.tasks["chief-0"].text(), re.M)
        if not said:
            raise Failure("the program does not say what it has counted\n" + self.last_lines())
        return said[-1]

    def close(self):
        for task in self.tasks.values():
            if task.child is not None and task.child.poll() is None:
                self.kill(task.name)


def run(name, make_job, act):
    """One scenario: prints its line. make_job() gives the job, and act(job) is what happens."""
    job = None
    try:
        job = make_job()
        job.start_all()
        rate = job.rate()
        act(job)
        print("passed: %-46s %6.1f steps/s, %s" % (name, rate, job.finish()), flush=True)
        return True
    except Failure as failure:
        print("failed: %s: %s" % (name, failure), flush=True)
        return False
    finally:
        if job is not None:
            job.close()
