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


def launch(path, *flags, ps=2, workers=2, program_flags=(), timeout=240, on_line=None):
    """The finished cluster of a program: its exit code and its output.

    on_line is called with each line of the output while the cluster runs.
    """
    command = [DIVVYCTL, "launch", "--ps=%d" % ps, "--workers=%d" % workers, *flags, "--",
               sys.executable, path, *program_flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    too_late = threading.Timer(timeout, os.killpg, (process.pid, signal.SIGKILL))
    too_late.start()
    lines = []
    with process:
        for line in process.stdout:
            lines.append(line)
            if on_line is not None:
                on_line(line)
    too_late.cancel()
    return process.returncode, "".join(lines)


def wait_for_line(stream, words, limit=60):
    """Reads lines until one has the words, and returns it."""
    end = time.monotonic() + limit
    for line in stream:
        if words in line:
            return line
        assert time.monotonic() < end, "no line with %r" % words
    raise AssertionError("the process ended without a line with %r" % words)
