"""cc_test_by_library: a test that computes on the GPUs of the library that a program loads."""

# What such a program loads: CUDA's in a build with --config=cuda, else the one
# whose devices the host plays.
_LIBRARY = {
    "//bazel:cuda": "//ops/cuda:libdivvy_cuda.so",
    "//conditions:default": "//ops/cuda/testing:libdivvy_host_devices.so",
}

# Where tools/gpu_suite puts the libraries of a pack. An RPATH, which libraries
# of libraries are looked for in, too.
PACK_LINKOPTS = ["-Wl,--disable-new-dtags,-rpath,$$ORIGIN/lib"]

def cc_test_by_library(name, size = "medium", **kwargs):
    """A cc_test tagged gpu: tools/gpu_suite runs it on a machine with a GPU.

    Without --config=cuda it computes on devices that the host plays. With it,
    on a machine without a GPU, it is skipped and says so.

    Args:
      name: target name.
      size: of the test; that of the sanitizers' runs, too.
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
