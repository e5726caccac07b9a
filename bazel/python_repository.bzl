"""python_repository: the headers of Debian's Python 3 and of pybind11, and whether it has PyTorch."""

_MISSING = """
def _missing_impl(ctx):
    fail("Python: %s")

missing = rule(implementation = _missing_impl)
"""

_ABSENT = """
load(":defs.bzl", "missing")

missing(
    name = "headers",
    visibility = ["//visibility:public"],
)
"""

_PRESENT = """
cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    visibility = ["//visibility:public"],
)
"""

# Only this Python: one of another place may lack Debian's NumPy and PyTorch.
_PYTHON = "/usr/bin/python3"

def _look_for_torch(ctx):
    found = ctx.execute([
        _PYTHON,
        "-c",
        "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)",
    ]).return_code == 0
    ctx.file("torch.bzl", "HAS_TORCH = %s\n" % found)
    if not found:
        # Printed when Bazel looks at the machine, not at each build.
        print("PyTorch is missing, so the tests of divvy.torch are left out: " +
              "tools/install_deps --python installs it")

def _python_repository_impl(ctx):
    _look_for_torch(ctx)
    asked = ctx.execute([_PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('include'))"])
    include = asked.stdout.strip()
    if asked.return_code != 0 or not ctx.path(include + "/Python.h").exists or not ctx.path("/usr/include/pybind11/pybind11.h").exists:
        # The workspace still loads: a target that needs Python reports what is missing.
        ctx.file("defs.bzl", _MISSING % "the headers of %s or pybind11 are missing: tools/install_deps installs them" % _PYTHON)
        ctx.file("BUILD", _ABSENT)
        return
    ctx.symlink(include, "include")
    ctx.file("BUILD", _PRESENT)

python_repository = repository_rule(implementation = _python_repository_impl, local = True)
