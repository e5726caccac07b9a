"""The wheel of tools/wheel, in an environment of its own, without the tree."""
import glob
import os
import re
import subprocess
import zipfile

import pytest

BUILT = os.getcwd()  # the runfiles: what the build made
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}

FIND = "import importlib.util as u, sys; print(u.find_spec(sys.argv[1]) is not None)"

PROGRAM = """
import os
import divvy
import numpy as np

w = divvy.Variable("w", 3, optimizer=divvy.Sgd(1.0))
rows = divvy.tensors({"x": np.arange(40, dtype=np.float32)})

@divvy.step
def subtract_one(batch):
    w.apply_gradient(np.ones(3, np.float32))
    return {"x": batch["x"]}

def main(c):
    c.restore_latest()
    while c.epoch < 3:
        mean = c.run_epoch(subtract_one, rows.batch(4))["x"]
    print("w is", w.numpy().tolist(), "after", c.step, "steps; mean", mean)
    print("package", os.path.dirname(divvy.__file__))

if __name__ == "__main__":
    divvy.run(main)
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False,
                          **options)
    assert done.returncode == 0, "%s\n%s\n%s" % (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout + done.stderr


@pytest.fixture(name="wheel", scope="module")
def make_wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    return run("tools/wheel", "--from=" + BUILT, "--out=%s" % out).strip().splitlines()[-1]


@pytest.fixture(name="python", scope="module")
def install(wheel, tmp_path_factory):
    """The Python of an environment that has the wheel, and Debian's NumPy."""
    for module in ("venv", "ensurepip"):
        assert run("/usr/bin/python3", "-c", FIND, module).strip() == "True", (
            "Debian's Python has no %s: install python3-venv (tools/install_deps)" % module)
    folder = tmp_path_factory.mktemp("environment")
    run("/usr/bin/python3", "-m", "venv", "--system-site-packages", str(folder), env=ENVIRONMENT)
    python = str(folder / "bin/python3")
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile", wheel,
        env=ENVIRONMENT)
    return python


@pytest.fixture(name="program")
def write_program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    return str(tmp_path / "program.py")


def check(output, python):
    assert "w is [-30.0, -30.0, -30.0] after 30 steps; mean 19.5" in output
    assert "package " + os.path.dirname(os.path.dirname(python)) in output


def test_a_program_runs_in_one_process(python, program, tmp_path):
    check(run(python, program, env=ENVIRONMENT, cwd=tmp_path), python)


def test_launch_runs_it_as_a_cluster_with_the_wheels_parameter_servers(python, program, tmp_path):
    output = run(python, "-m", "divvy", "launch", "--ps=1", "--workers=1", "--", python, program,
                 env=ENVIRONMENT, cwd=tmp_path)
    check(output, python)
    assert "chief, 1 ps, 1 worker on" in output
    assert re.search(r"ps 0 +\| I.* run.cc", output), output  # ps_server/service/run.cc


def test_divvyctl_is_there_in_both_ways(python, tmp_path):
    version = run(python, "-m", "divvy", "--version", env=ENVIRONMENT, cwd=tmp_path)
    assert "divvyctl" in version.lower()
    script = os.path.join(os.path.dirname(python), "divvyctl")
    assert run(script, "--version", env=ENVIRONMENT, cwd=tmp_path) == version
    assert "--addr" in run(python, "-m", "divvy", "status", "--help", env=ENVIRONMENT, cwd=tmp_path)
    failed = subprocess.run([python, "-m", "divvy", "status"], capture_output=True, text=True,
                            env=ENVIRONMENT, check=False)
    assert failed.returncode == 78 and "--addr" in failed.stderr


def package_folder(python):
    return os.path.realpath(os.path.dirname(python) + "/../lib/python3.11/site-packages/divvy")


def test_only_the_runtime_of_c_and_cxx_comes_from_the_system(python):
    folder = package_folder(python)
    binaries = glob.glob(folder + "/_divvy*.so") + [
        folder + "/" + name for name in ("lib/libdivvy.so", "bin/ps_server", "bin/divvyctl")]
    assert len(binaries) == 4
    outside, inside = set(), set()
    for binary in binaries:
        for name, path in re.findall(r"^\t(\S+) => (.*?)(?: \(.*)?$",
                                     run("ldd", binary, env=ENVIRONMENT), re.MULTILINE):
            ours = os.path.realpath(path).startswith(folder)
            (inside if ours else outside).add(name)
    assert outside <= {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"}
    # Also what Debian's libraries need themselves: OpenBLAS libgfortran, gRPC libcares.
    assert {"libgrpc++.so.1.51", "libcares.so.2", "libgfortran.so.5"} <= inside
    assert inside == set(os.listdir(folder + "/lib"))


def test_the_tag_is_that_of_the_newest_symbols(wheel, python):
    folder = package_folder(python)
    files = [path for path in glob.glob(folder + "/**/*", recursive=True)
             if ".so" in path or "/bin/" in path]
    versions = run("readelf", "--version-info", "--wide", *files)
    glibc = max(int(one) for one in re.findall(r"Name: GLIBC_2\.(\d+)", versions))
    tag = int(re.search(r"-cp311-cp311-manylinux_2_(\d+)_x86_64\.whl$", wheel).group(1))
    assert glibc <= tag <= 36  # Debian 12 itself has glibc 2.36
    # auditwheel's policy for GLIBCXX_3.4.30 and older.
    glibcxx = max(int(one) for one in re.findall(r"Name: GLIBCXX_3\.4\.(\d+)", versions))
    assert glibcxx <= 30 and (glibcxx < 30 or tag >= 35)


def test_each_bundled_library_has_its_license(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    licenses = [name.rpartition("/")[2] for name in names if "/licenses/" in name]
    assert any(name.startswith("libgrpc") for name in licenses)
    assert any(name.startswith("libopenblas") for name in licenses)
    assert any(name.startswith("libgfortran") for name in licenses)
    assert any(name.endswith("dist-info/LICENSE") for name in names)
