"""The sources of libdivvy_cuda.so, and the script that builds them with nvcc alone."""
import json
import os
import re
import shutil
import subprocess

from gpusuite import SuiteError

REBUILD = """#!/bin/bash
# Builds bin/libdivvy_cuda.so from src/ with nvcc alone: ./rebuild [ARCH], as in sm_90; without it,
# for the GPU that is here. NVCC names another nvcc.
set -euo pipefail
cd "$(dirname "$0")/src"
nvcc=${NVCC:-$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}
if [[ ! -x $nvcc ]]; then
  echo "rebuild: there is no nvcc: install CUDA 13's toolkit, or set NVCC" >&2
  exit 78
fi
arch=${1:-native}
mkdir -p ../objects
pids=()
for source in %(sources)s; do
  object=../objects/$(basename "$source" .cu).o
  "$nvcc" -arch="$arch" %(flags)s -I. -Isystem -o "$object" "$source" & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
libraries=$(cd ../bin/lib && pwd)
cublas=-lcublas
[[ ! -e $libraries/libcublas.so.13 ]] || cublas=$libraries/libcublas.so.13
"$nvcc" -shared -cudart static -Xlinker --exclude-libs,ALL -Xlinker -rpath -Xlinker '$ORIGIN/lib' \\
  -o ../bin/libdivvy_cuda.so.new ../objects/*.o "$cublas"
mv ../bin/libdivvy_cuda.so.new ../bin/libdivvy_cuda.so
"""
_OF_THE_PLACE = re.compile(r"-I|-isystem|-ccbin|-o$|-c$|-gencode")


def compile_commands(bazel, archs):
    """How Bazel compiles the library's sources: {"in": a folder, "commands": [arguments]}."""
    said = json.loads(bazel("aquery", "--config=cuda", "--define=cuda_archs=" + (archs or "90"),
                            "--output=jsonproto",
                            'mnemonic("CudaCompile", deps(//ops/cuda:cuda_math))'))
    return {"in": bazel("info", "execution_root").strip(),
            "commands": [action["arguments"] for action in said["actions"]]}


def copy(compiling, folder):
    """Fills src/, with every header that a source includes, and writes `rebuild`."""
    commands = compiling["commands"]
    for command in commands:
        for path in [command[-1]] + headers(compiling["in"], command):
            to = os.path.join(folder, "src", in_system(path) if os.path.isabs(path) else path)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copyfile(os.path.join(compiling["in"], path), to)
    text = REBUILD % {"sources": " ".join(sorted(command[-1] for command in commands)),
                      "flags": " ".join(flags_of(commands[0]))}
    script = os.path.join(folder, "rebuild")
    with open(script, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(script, 0o755)


def headers(root, command):
    """The headers to pack: the tree's own, with relative paths, and Abseil's. The machine has
    CUDA's and those of the C++ library."""
    asked = [word for word in command if word != "-c"]
    at = asked.index("-o")
    del asked[at:at + 2]
    done = subprocess.run(asked + ["-M"], cwd=root, stdout=subprocess.PIPE, universal_newlines=True)
    if done.returncode != 0:
        raise SuiteError("nvcc -M failed for %s (%d)" % (command[-1], done.returncode))
    paths = [os.path.normpath(word) for word in done.stdout.replace("\\\n", " ").split()[1:]]
    return [path for path in paths if "/absl/" in path or
            (path.endswith(".h") and not path.startswith(("/", "external/")))]


def in_system(path):
    """/usr/include/absl/base/config.h -> system/absl/base/config.h."""
    return "system/absl/" + path.split("/absl/", 1)[1]


def flags_of(command):
    """The flags that name neither folders nor kinds of GPU."""
    flags, words = [], iter(command[1:-1])
    for word in words:
        if not _OF_THE_PLACE.match(word):
            flags.append(word)
        elif word in ("-I", "-isystem", "-ccbin", "-o"):
            next(words)
    return ["-c"] + flags
