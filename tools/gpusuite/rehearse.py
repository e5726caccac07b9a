"""Runs the suite on devices that the host emulates: the same pack, without a checkout."""
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

from gpusuite import SuiteError, pack

BUDGET_S = 240  # for a busy machine; an idle one needs half a minute
NVIDIA_SMI = "#!/bin/sh\necho 'A rehearsal, 580.00, 3 MiB'\n"
# Fails if it gets libraries of the pack, because the real one might fail with them.
SANITIZER = """#!/bin/sh
[ -z "$LD_LIBRARY_PATH" ] || { echo "LD_LIBRARY_PATH is $LD_LIBRARY_PATH"; exit 3; }
while [ "${1#/}" = "$1" ]; do shift; done
exec "$@"
"""
PROGRAMS = ("ldd", "ldconfig")  # that the suite calls, beside python3


def rehearse(contents):
    """Packs, unpacks and runs. Returns the suite's report. SuiteError: something failed."""
    with tempfile.TemporaryDirectory() as scratch:
        file = os.path.join(scratch, "pack.tar.xz")
        began = time.monotonic()
        pack.write_file(file, contents, is_rehearsal=True, preset=0)
        print("packed in %.1f s" % (time.monotonic() - began), flush=True)
        with tarfile.open(file) as tar:
            tar.extractall(scratch)
        print("unpacked in %.1f s" % (time.monotonic() - began), flush=True)
        path = fake_machine(os.path.join(scratch, "path"))
        report = os.path.join(scratch, "report")
        command = [os.path.join(path, "python3"), os.path.join(scratch, "gpu_suite", "gpu_suite"),
                   "--report=" + report, "--budget_s=%d" % BUDGET_S,
                   "--steps=tests,bench,sanitizer,soak"]
        # Like `env -i`: the environment names no checkout, Bazel, nvcc or CUDA.
        environment = {"PATH": path, "HOME": scratch, "CUDA_HOME": path, "DIVVY_HOST_DEVICES": "1"}
        code = subprocess.run(command, cwd=scratch, env=environment).returncode
        try:
            with open(os.path.join(report, "report.json"), encoding="utf-8") as said:
                result = json.load(said)
        except OSError as error:
            raise SuiteError("the rehearsal ended with %d and left no report" % code) from error
        if code != 0:
            with tarfile.open(os.path.join(report, "logs.tar.gz")) as logs:
                for name in result["failed"]:
                    print(logs.extractfile("logs/%s.log" % name).read().decode()[-3000:])
            raise SuiteError("the rehearsal ended with %d: %s"
                             % (code, "; ".join([result["verdict"], *result["notes"]])))
        return result


def fake_machine(path):
    """A folder for PATH."""
    os.makedirs(os.path.join(path, "bin"))
    for name, text in (("nvidia-smi", NVIDIA_SMI), ("compute-sanitizer", SANITIZER)):
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(os.path.join(path, name), 0o755)
    os.symlink(os.path.realpath(sys.executable), os.path.join(path, "python3"))
    for name in PROGRAMS:
        found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin")
        if found:
            os.symlink(found, os.path.join(path, name))
    return path
