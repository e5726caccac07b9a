"""What Bazel has built, for the programs in Python that use it."""
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def built(*targets, flags=()):
    """Builds the targets, and returns the folder that has them (bazel-bin). DIVVY_BIN names such a
    folder; nothing is built then. BAZEL: another Bazel."""
    if os.environ.get("DIVVY_BIN"):
        return os.path.realpath(os.environ["DIVVY_BIN"])
    bazel = os.environ.get("BAZEL", "bazel")
    subprocess.run([bazel, "build", *flags, *targets], cwd=ROOT, check=True,
                   stdin=subprocess.DEVNULL)
    return subprocess.run([bazel, "info", *flags, "bazel-bin"], cwd=ROOT, check=True, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout.strip()
