"""cc_fuzz_test: a test that replays a corpus, and a libFuzzer binary under --config=fuzz."""

def cc_fuzz_test(name, srcs, deps = [], corpus = []):
    """A fuzz target.

    Args:
      name: target name, `what_fuzz`.
      srcs: sources. They define LLVMFuzzerTestOneInput, which aborts or trips a
        sanitizer if something is wrong.
      deps: their dependencies.
      corpus: the first inputs. Every run of the tests replays all of them.
    """
    native.cc_test(
        name = name,
        srcs = srcs,
        size = "small",
        testonly = True,
        data = corpus,
        # A short run in the fuzz configuration. To keep what libFuzzer finds, give it a directory
        # by hand.
        args = select({
            "//bazel:fuzz": ["-runs=20000", "-max_total_time=20", "-max_len=4096"],
            "//conditions:default": ["$(location %s)" % c for c in corpus],
        }),
        linkopts = select({"//bazel:fuzz": ["-fsanitize=fuzzer"], "//conditions:default": []}),
        deps = deps + select({"//bazel:fuzz": [], "//conditions:default": ["//base/testing:fuzz_replay_main"]}),
        tags = ["fuzz"],
    )
