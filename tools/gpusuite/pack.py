"""Makes the pack: all that a machine with a GPU needs to run the suite, in one folder or file."""
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import xml.etree.ElementTree

from gpusuite import SuiteError, sources
from gpusuite.machine import CXX_LIBRARY, OF_THE_MACHINE

TOOLS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TOOLS)
LIBRARY = "//ops/cuda:libdivvy_cuda.so"
TRAIN = ["--gpus=all", "--ps=1", "--workers=1", "--rounds=2"]
# The benchmarks with their flags, and with other flags for a rehearsal, whose devices are slow.
BENCHMARKS = [
    {"name": "gpu", "label": "//bench/gpu:gpu", "flags": ["--rounds=3"],
     "rehearsal_flags": ["--rounds=1", "--times=1", "--largest=64"]},
    {"name": "train", "label": "//bench/gpu:train", "flags": TRAIN,
     "rehearsal_flags": TRAIN + ["--rounds=1", "--steps=2", "--largest=64"]},
    {"name": "train_depth_3", "label": "//bench/gpu:train", "flags": TRAIN + ["--pipeline_depth=3"],
     "suffix": ", --pipeline_depth=3",
     "rehearsal_flags": TRAIN + ["--rounds=1", "--steps=2", "--largest=64", "--pipeline_depth=3"]},
]
# The binaries of the soak, and how many seconds it takes, in a run and in a rehearsal.
SOAK = ["//tests/e2e:chaos", "//tests/e2e:counter_program"]
SOAK_S, REHEARSAL_SOAK_S = 300, 4
MOST_BYTES = 25 * 1000 * 1000


def bazel(*args):
    command = [os.environ.get("BAZEL", "bazel"), *args]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, universal_newlines=True)
    except OSError as error:
        raise SuiteError("%s: %s. A pack is made in a checkout with Bazel (tools/install_deps): "
                         "tools/gpu_suite --pack=FILE.tar.xz there, and copy the file here"
                         % (command[0], error.strerror)) from error
    if done.returncode != 0:
        raise SuiteError("bazel %s failed (%d)" % (args[0], done.returncode))
    return done.stdout


def path_of(label):
    package, name = label[2:].split(":")
    return os.path.join(ROOT, "bazel-bin", package, name)


def tests_of(xml_text, path_of_label):
    """The tests in the output of `bazel query --output=xml`, with their arguments."""
    tests = []
    for rule in xml.etree.ElementTree.fromstring(xml_text).iter("rule"):
        label = rule.get("name")
        arguments = [value.get("value") for value in rule.findall("list[@name='args']/string")]
        tests.append({"label": label, "name": label.split(":")[1], "path": path_of_label(label),
                      "args": arguments})
    return sorted(tests, key=lambda test: test["name"])


def built(is_rehearsal, archs):
    """Builds everything, and returns the contents for `fill`. A rehearsal needs no CUDA."""
    library = "//ops/cuda/testing:libdivvy_host_devices.so" if is_rehearsal else LIBRARY
    tagged = bazel("query", "--output=xml", r'attr(tags, "\bgpu\b", tests(//...))')
    tests = tests_of(tagged, path_of)
    cuda = [] if is_rehearsal else ["--config=cuda", "--define=cuda_archs=" + (archs or "90")]
    bazel("build", *cuda, library, *{bench["label"] for bench in BENCHMARKS}, *SOAK,
          *[test["label"] for test in tests])
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT,
                            stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
    return {"commit": commit, "library": path_of(library), "tests": tests,
            "benchmarks": {bench["label"]: path_of(bench["label"]) for bench in BENCHMARKS},
            "soak": [path_of(label) for label in SOAK],
            "golden": os.path.join(ROOT, "tests", "golden"),
            "peer": os.path.join(ROOT, "bench", "gpu", "torch_peer.py"),
            "compile_commands": None if is_rehearsal else sources.compile_commands(bazel, archs)}


# ---- filling a folder ---------------------------------------------------------------------------


def fill(folder, contents, is_rehearsal):
    """Empties `folder`, and fills it with `contents`: the paths of the library, tests, benchmarks,
    the soak, TensorFlow's answers and the peer."""
    shutil.rmtree(folder, ignore_errors=True)
    lib = os.path.join(folder, "bin", "lib")
    os.makedirs(lib)
    cxx = os.path.join(folder, "bin", "cxx")
    needs, packed = set(), {contents["library"]: "libdivvy_cuda.so"}
    packed.update({test["path"]: os.path.basename(test["path"]) for test in contents["tests"]})
    packed.update({path: os.path.basename(path) for path in contents["benchmarks"].values()})
    packed.update({path: os.path.basename(path) for path in contents["soak"]})
    for path, name in packed.items():
        copy_stripped(path, os.path.join(folder, "bin", name))
        for library, found in libraries_of(path):
            if OF_THE_MACHINE.match(library):
                needs.update([library] if library.startswith("libcublas") else [])
            elif CXX_LIBRARY.match(library):
                os.makedirs(cxx, exist_ok=True)
                real = os.path.realpath(found)
                is_cxx = library.startswith("libstdc++")
                shutil.copy(real, os.path.join(cxx, os.path.basename(real) if is_cxx else library))
            else:
                shutil.copy(found, os.path.join(lib, library))
    copy_rest(folder, contents)
    if contents["compile_commands"]:
        sources.copy(contents["compile_commands"], folder)
    suite = {"commit": contents["commit"], "require": "host" if is_rehearsal else "1",
             "glibc": newest_glibc(os.path.join(folder, "bin")), "needs": sorted(needs),
             "tests": [{"name": test["name"], "binary": os.path.basename(test["path"]),
                        "args": test["args"]} for test in contents["tests"]],
             "benchmarks": benchmarks(contents, is_rehearsal),
             "soak_s": REHEARSAL_SOAK_S if is_rehearsal else SOAK_S}
    with open(os.path.join(folder, "suite.json"), "w", encoding="utf-8") as file:
        json.dump(suite, file, indent=2)


def benchmarks(contents, is_rehearsal):
    flags = "rehearsal_flags" if is_rehearsal else "flags"
    return [{"name": bench["name"], "flags": bench[flags], "suffix": bench.get("suffix", ""),
             "binary": os.path.basename(contents["benchmarks"][bench["label"]])}
            for bench in BENCHMARKS]


def copy_rest(folder, contents):
    """Copies the answers of TensorFlow that tests name, the peer, and these tools."""
    golden = os.path.join(folder, "golden")
    os.makedirs(golden)
    for test in contents["tests"]:
        for name in test["args"]:
            if name.endswith(".json"):
                shutil.copy(os.path.join(contents["golden"], name), golden)
    shutil.copy(contents["peer"], folder)
    shutil.copy(os.path.join(TOOLS, "gpu_suite"), folder)
    os.makedirs(os.path.join(folder, "gpusuite"))
    for name in os.listdir(os.path.dirname(os.path.abspath(__file__))):
        if name.endswith(".py"):
            shutil.copy(os.path.join(TOOLS, "gpusuite", name), os.path.join(folder, "gpusuite"))


def copy_stripped(path, to):
    shutil.copyfile(path, to)
    os.chmod(to, 0o755)
    subprocess.run(["strip", "--strip-unneeded", to], check=True)


def libraries_of(binary):
    """(name, path) of the shared libraries of a binary. The machine's own may be missing here."""
    done = subprocess.run(["ldd", binary], stdout=subprocess.PIPE, universal_newlines=True,
                          check=True)
    found = []
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) < 3 or words[1] != "=>":
            continue
        if not os.path.isabs(words[2]) and not OF_THE_MACHINE.match(words[0]):
            raise SuiteError("%s needs %s, which is not here" % (binary, words[0]))
        found.append((words[0], words[2]))
    return found


def newest_glibc(folder):
    """The oldest version of glibc that can load everything below a folder. The C++ library does not
    count: if the machine's own is newer, it is used, and needs no other glibc."""
    files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names
             if os.path.basename(path) != "cxx"]
    said = subprocess.run(["objdump", "-p", *files], stdout=subprocess.PIPE, check=True,
                          universal_newlines=True).stdout
    versions = re.findall(r"\bGLIBC_([0-9.]+)", said)
    return max(versions, key=lambda version: tuple(map(int, version.split("."))))


# ---- one file -----------------------------------------------------------------------------------


def write_file(file, contents, is_rehearsal=False, preset=6):
    """Writes FILE.tar.xz, which python3 unpacks: one folder gpu_suite, owned by root."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, "gpu_suite")
        fill(folder, contents, is_rehearsal)
        with tarfile.open(file + ".new", "w:xz", preset=preset) as tar:
            tar.add(folder, "gpu_suite", filter=as_root)
    size = os.path.getsize(file + ".new")
    if size > MOST_BYTES and not is_rehearsal:
        os.remove(file + ".new")
        raise SuiteError("%s would have %.1f MB, more than %.0f: name fewer --archs"
                         % (file, size / 1e6, MOST_BYTES / 1e6))
    os.replace(file + ".new", file)
    print("%s: %.1f MB. There: python3 -c 'import tarfile; tarfile.open(\"%s\").extractall()' && "
          "gpu_suite/gpu_suite" % (file, size / 1e6, os.path.basename(file)))


def as_root(entry):
    """Makes root the owner, and the only user with write permission, whatever the umask was at the
    build: a program loads a library only if no one but root and its own user may write it."""
    entry.mode &= ~0o022
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
