"""Runs programs as processes of their own, for tests."""
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

DIVVYCTL = os.environ.get("DIVVYCTL", "")


def write(folder, code, name="program.py"):
    path = folder / name
    path.write_text("import divvy\nimport numpy as np\n" + textwrap.dedent(code))
    return str(path)


def run(path, *flags, env=None, timeout=60):
    """The finished process of a program, with its output as text."""
    return subprocess.run([sys.executable, path, *flags], capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **(env or {})}, check=False)


def launch(path, *flags, ps=2, workers=2, program_flags=(), timeout=120, env=None, see=None):
    """The finished cluster of a program. see(line) is called for each line of the launcher's log,
    as it comes; all are in stderr."""
    command = [DIVVYCTL, "launch", "--ps=%d" % ps, "--workers=%d" % workers, *flags, "--",
               sys.executable, path, *program_flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, env={**os.environ, **(env or {})})
    late = threading.Event()

    def end():
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    limit = threading.Timer(timeout, end)
    limit.start()
    lines = []
    for line in process.stderr:  # the launcher writes nothing to standard output
        lines.append(line)
        if see is not None:
            see(line)
    out, err = process.stdout.read(), "".join(lines)
    process.wait()
    limit.cancel()
    if late.is_set():
        raise AssertionError("not done after %d s:\n%s\n%s" % (timeout, out[-4000:], err[-4000:]))
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def wait_for_line(stream, words, limit=60):
    """Reads lines until one has the words, and returns it."""
    end = time.monotonic() + limit
    for line in stream:
        if words in line:
            return line
        assert time.monotonic() < end, "no line with %r" % words
    raise AssertionError("the process ended without a line with %r" % words)
