"""What all parts of tools/operations_test use: the tally, the programs, and processes that end."""
import os
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
UNPACKED = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "divvy-operations")
LIBRARIES = os.path.join(UNPACKED, "usr/lib/x86_64-linux-gnu")


class Skipped(Exception):
    """The part cannot run here. The text says why, and what to do."""


class Checks:
    """Counts and prints what was checked, and what could not be."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def record(self, name, good, said=""):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print("%s: %s" % ("passed" if good else "FAILED", name) + ("" if good else "\n" + said), flush=True)
        return good

    def skip(self, name, why):
        self.skipped += 1
        print("SKIP: %s: %s" % (name, why), flush=True)

    def verdict(self):
        """`N passed, M failed`, and the count of what was skipped if there is any."""
        return "%d passed, %d failed" % (self.passed, self.failed) + (", %d skipped" % self.skipped if self.skipped else "")

    def exit_code(self):
        """77: nothing could be checked."""
        if self.failed:
            return 1
        return 0 if self.passed else 77


def debian(path, name=None):
    """A program of tools/install_deps --operations, or one that is installed. Skipped: there is neither."""
    for candidate in (os.path.join(UNPACKED, path), shutil.which(name or os.path.basename(path))):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise Skipped("no %s: run tools/install_deps --operations" % os.path.basename(path))


def unpacked_environment(**more):
    """The environment in which a program of UNPACKED finds its libraries."""
    return dict(os.environ, LD_LIBRARY_PATH=":".join([LIBRARIES] + [os.path.join(LIBRARIES, each) for each in ("pulseaudio", "slurm-wlm")]), **more)


def write(path, content):
    """Readers see the old content or the new one."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(content)
    os.rename(path + ".new", path)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def tail(path, lines=25):
    return "\n".join(read(path).splitlines()[-lines:])


def await_true(condition, seconds, every=0.05):
    """What `condition` returns once it is true; its last value if it is not so within `seconds`."""
    until = time.monotonic() + seconds
    value = condition()
    while not value and time.monotonic() < until:
        time.sleep(every)
        value = condition()
    return value


class Process:
    """A process whose output is in a file. It is ended with the `with` statement."""

    def __init__(self, words, log, **options):
        self.log = log
        with open(log, "w", encoding="utf-8") as out:
            self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def output(self):
        return read(self.log)

    def end(self, asked=signal.SIGTERM, seconds=10):
        """Asks it to end, and kills it if it does not. Returns its exit code."""
        if self.child.poll() is None:
            self.child.send_signal(asked)
            try:
                self.child.wait(seconds)
            except subprocess.TimeoutExpired:
                self.child.kill()
        return self.child.wait()


def scratch():
    """A folder that is removed at the end of a `with` statement."""
    return tempfile.TemporaryDirectory(prefix="divvy-operations-")
