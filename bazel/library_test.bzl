"""cc_test_by_library: a test that computes on the GPUs of the library that a program loads."""

# The library that such a program loads: CUDA's in a build with --config=cuda, otherwise one whose
# devices the host emulates.
_LIBRARY = {
    "//bazel:cuda": "//ops/cuda:libdivvy_cuda.so",
    "//conditions:default": "//ops/cuda/testing:libdivvy_host_devices.so",
}

# The folder in which tools/gpu_suite puts the libraries of a pack. RPATH, not RUNPATH, because it
# also applies to libraries that other libraries need.
PACK_LINKOPTS = ["-Wl,--disable-new-dtags,-rpath,$$ORIGIN/lib"]

def cc_test_by_library(name, size = "medium", **kwargs):
    """A cc_test tagged gpu: tools/gpu_suite runs it on a machine with a GPU.

    Without --config=cuda it computes on devices that the host emulates. With it,
    on a machine without a GPU, the test is skipped and says so.

    Args:
      name: target name.
      size: of this test, and of its runs under sanitizers.
      **kwargs: passed on to cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        data = select({when: [library] for when, library in _LIBRARY.items()}),
        env = select({when: {"DIVVY_CUDA_LIBRARY": "$(rootpath %s)" % library} for when, library in _LIBRARY.items()}),
        linkopts = PACK_LINKOPTS,
        tags = ["gpu"],
        **kwargs
    )
