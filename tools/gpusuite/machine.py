"""The parts of a machine that the suite needs: GPUs, the driver, CUDA's libraries, a C library."""
import datetime
import glob
import os
import re
import shutil
import subprocess
import sys

OLDEST_DRIVER = 580  # that CUDA 13 supports
CXX = "libstdc++.so.6"
# Libraries that must come from the machine on which the suite runs: the C library, and CUDA with
# its driver.
OF_THE_MACHINE = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread)\.so|linux-vdso|lib(cuda|cudart|"
                            r"cublas|cublasLt|nvrtc|nccl|nvidia-[a-z]+)\.so|libnv[A-Z])")
# Of this library, the newer one of the pack and the machine is used.
CXX_LIBRARY = re.compile(r"lib(stdc\+\+|gcc_s)\.so")

# Prints cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) of the first device.
_POOLS = """
import ctypes
cuda, pools, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
wrong = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or \\
    cuda.cuDeviceGetAttribute(ctypes.byref(pools), 115, device)
print("CUDA error %d" % wrong if wrong else "yes" if pools.value else "no")
"""
_SITES = """
import site, sys
print("\\n".join(sys.path + site.getsitepackages() + [site.getusersitepackages()]))
"""


class Unfit(Exception):
    """The machine lacks something. The message says what, and what to do."""


def output_of(command, timeout_s=60):
    """The output of a command; "" if it fails or does not exist."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, timeout=timeout_s, check=True,
                              universal_newlines=True, errors="replace")
        return done.stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def python3():
    return shutil.which("python3") or sys.executable


def facts():
    """Facts for the report. "gpus" is empty if nvidia-smi is missing or finds none."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"date": now.strftime("%Y-%m-%d %H:%M UTC"), "cores": os.cpu_count(),
            "gpus": output_of(asked).strip().splitlines(), "glibc": glibc(),
            "memory_pools": output_of([python3(), "-c", _POOLS]).strip() or "unknown"}


def glibc():
    return (os.confstr("CS_GNU_LIBC_VERSION") or "0").split()[-1]


def version(text):
    """The numbers in a text: "libstdc++.so.6.0.30" -> (6, 0, 30)."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


def check_driver(gpus):
    for gpu in gpus:
        words = [word.strip() for word in gpu.split(",")]
        if len(words) > 1 and version(words[1])[:1] < (OLDEST_DRIVER,):
            raise Unfit("the driver of %s is %s, and CUDA 13 wants %d or newer: install a newer "
                        "NVIDIA driver" % (words[0], words[1], OLDEST_DRIVER))


def check_cuda(memory_pools):
    """Checks that the driver's own library answers. `memory_pools`: the entry in `facts`."""
    if memory_pools == "unknown":
        raise Unfit("libcuda.so.1, a part of the driver, cannot be loaded: start the container "
                    "with its GPUs, or install the driver's libraries")
    if "error" in memory_pools:
        raise Unfit("the driver answers with %s: see whether another program of CUDA runs here"
                    % memory_pools)


def check_glibc(wanted):
    if version(glibc()) < version(wanted):
        raise Unfit("this machine has glibc %s, and the pack was built for %s: make the pack on a "
                    "machine with this one's system" % (glibc(), wanted))


def folders_of_cuda():
    """The folders that may have CUDA's libraries: the toolkit's, then those of Python's wheels."""
    folders = []
    for home in [os.environ.get("CUDA_HOME", "")] + sorted(glob.glob("/usr/local/cuda*")):
        if home:
            folders += [os.path.join(home, "lib64"), os.path.join(home, "lib")]
    for path in re.findall(r"=> (/\S+)", output_of(["ldconfig", "-p"])):
        if os.path.basename(path).startswith("libcublas"):
            folders.append(os.path.dirname(path))
    for site in output_of([python3(), "-c", _SITES]).splitlines():
        folders += sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))
    return list(dict.fromkeys(folders))


def place_libraries(needs, lib):
    """Links the CUDA libraries that the pack needs into `lib`, where its binaries look."""
    folders = folders_of_cuda()
    for name in needs:
        found = [os.path.join(folder, name) for folder in folders]
        found = [path for path in found if os.path.exists(path)]
        if not found:
            raise Unfit("there is no %s: looked in %s. Install CUDA 13's cuBLAS (in the toolkit, "
                        "or by `pip install nvidia-cublas`), or set CUDA_HOME to where it is"
                        % (name, ", ".join(folders) or "CUDA_HOME, /usr/local/cuda*, ldconfig -p, "
                           "python3's site-packages/nvidia"))
        link(found[0], os.path.join(lib, name))


def place_cxx(packed, lib):
    """Chooses the newer C++ library of the pack (in the folder `packed`) and the machine, because
    CUDA's libraries load the same one."""
    if not os.path.isdir(packed):
        return
    own = [name for name in os.listdir(packed) if name.startswith(CXX + ".")]
    said = re.findall(r"=> (/\S*/%s)$" % re.escape(CXX), output_of(["ldconfig", "-p"]),
                      re.MULTILINE)
    theirs = [os.path.basename(os.path.realpath(path)) for path in said]
    is_older = not theirs or max(map(version, theirs)) < max(map(version, own), default=())
    for name in os.listdir(packed):
        at = os.path.join(lib, CXX if name in own else name)
        if is_older:
            link(os.path.join(packed, name), at)
        elif os.path.lexists(at):
            os.remove(at)


def link(path, at):
    if os.path.lexists(at):
        os.remove(at)
    os.symlink(path, at)


def check_loading(binaries):
    for binary in binaries:
        missing = re.findall(r"^\s*(\S+) => not found", output_of(["ldd", binary]), re.MULTILINE)
        if missing:
            raise Unfit("%s needs %s, which this machine lacks"
                        % (os.path.basename(binary), ", ".join(missing)))


def check_packed(binaries, lib):
    """For a rehearsal, whose machine has all libraries: checks that each binary loads its libraries
    from `lib`. On a machine with nothing installed it must."""
    for binary in binaries:
        loaded = re.findall(r"^\s*(\S+) => (/\S+)", output_of(["ldd", binary]), re.MULTILINE)
        outside = [path for name, path in loaded
                   if not OF_THE_MACHINE.match(name) and not CXX_LIBRARY.match(name)
                   and os.path.realpath(os.path.dirname(path)) != os.path.realpath(lib)]
        if outside:
            raise Unfit("%s loads %s, and not what is packed: give its target the linkopts "
                        "PACK_LINKOPTS (bazel/library_test.bzl)"
                        % (os.path.basename(binary), ", ".join(outside)))


def tool(name, given=None):
    """The path of one of CUDA's tools, or None."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    places = [given] if given else [shutil.which(name), os.path.join(home, "bin", name)]
    return next((place for place in places if place and os.path.exists(place)), None)
