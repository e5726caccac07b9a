"""cc_fuzz_test: replays a corpus by default, a libFuzzer binary under --config=fuzz."""

def cc_fuzz_test(name, srcs, deps = [], corpus = []):
    """A fuzz target: `srcs` define LLVMFuzzerTestOneInput, which aborts or trips a sanitizer where something is wrong.

    Args:
      name: target name, `what_fuzz`.
      srcs: sources.
      deps: their dependencies.
      corpus: files to begin with; all of them are replayed by every run of the tests.
    """
    native.cc_test(
        name = name,
        srcs = srcs,
        size = "small",
        testonly = True,
        data = corpus,
        # A short look in the fuzz configuration; libFuzzer keeps what it finds in a directory that
        # is given by hand.
        args = select({
            "//bazel:fuzz": ["-runs=20000", "-max_total_time=20", "-max_len=4096"],
            "//conditions:default": ["$(location %s)" % c for c in corpus],
        }),
        linkopts = select({"//bazel:fuzz": ["-fsanitize=fuzzer"], "//conditions:default": []}),
        deps = deps + select({"//bazel:fuzz": [], "//conditions:default": ["//base/testing:fuzz_replay_main"]}),
        tags = ["fuzz"],
    )
