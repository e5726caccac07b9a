"""Runs a program of examples/python."""
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
DIVVYCTL = os.environ.get("DIVVYCTL", os.path.join(ROOT, "tools/divvyctl"))


def run(name, *words, launch=()):
    """What the program prints: in one process, or as a cluster with these flags of launch."""
    command = [sys.executable, os.path.join(ROOT, "examples/python", name + ".py"), *words]
    if launch:
        command = [DIVVYCTL, "launch", *launch, "--", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            out, err = process.communicate(timeout=240)
        except BaseException:
            process.terminate()  # the launch ends its tasks
            raise
    assert process.returncode == 0, err[-6000:]
    return out + err


def figures(words, output):
    """The numbers behind these words, in order."""
    return [float(one) for one in re.findall(words + r" ([0-9.]+)", output)]
