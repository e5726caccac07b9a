"""cuda_repository: the CUDA toolkit at $CUDA_HOME (/usr/local/cuda if unset)."""

_MISSING = """
def _missing_impl(ctx):
    fail("CUDA: %s")

missing = rule(implementation = _missing_impl)
"""

_ABSENT = """
load(":defs.bzl", "missing")

package(default_visibility = ["//visibility:public"])

[missing(name = name) for name in ["headers", "cudart_static", "cublas"]]
"""

# nvcc's own headers need include/cccl on the path, for <nv/target> only.
_PRESENT = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/**", "include/cccl/nv/**"]),
    includes = ["include", "include/cccl"],
)

cc_library(
    name = "cudart_static",
    linkopts = ["-L{home}/lib64", "-lcudart_static", "-ldl", "-lrt", "-lpthread"],
    deps = [":headers"],
)

cc_library(
    name = "cublas",
    linkopts = ["-L{home}/lib64", "-lcublas", "-Wl,-rpath,{home}/lib64"],
    deps = [":headers"],
)
"""

def _cuda_repository_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    if not ctx.path(home + "/bin/nvcc").exists:
        # The workspace still loads: a target that needs CUDA reports what is missing.
        reason = "there is no %s/bin/nvcc: install the toolkit, or set CUDA_HOME to where it is" % home
        ctx.file("defs.bzl", "CUDA_HOME = None\n" + _MISSING % reason)
        ctx.file("BUILD", _ABSENT)
        return
    ctx.symlink(home + "/include", "include")
    ctx.file("defs.bzl", "CUDA_HOME = %r\n" % home)
    ctx.file("BUILD", _PRESENT.format(home = home))

cuda_repository = repository_rule(implementation = _cuda_repository_impl, environ = ["CUDA_HOME"], local = True)
