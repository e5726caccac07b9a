"""Macros of the project."""

load("//bazel:unity.bzl", "cc_library")

def divvy_core_library(name, core_deps = [], deps = [], testonly = None, **kwargs):
    """A library of the cores, in two builds.

    `name` is the library that ships. `name`_breakable has the same sources with
    -DDIVVY_BREAKABLE: rules of the protocol can be switched off at run time
    (base/breakable.h), to show that the simulation notices. Both define the
    same symbols, so a program must link only one of them. A target that depends
    on a breakable library must reach every core library through its breakable
    variant.

    Args:
      core_deps: dependencies made by this macro. The breakable variant depends on
        their breakable variants.
      deps: other dependencies, the same for both variants.
      testonly: for the plain variant. The breakable one is always testonly.
      **kwargs: passed on to both cc_library (srcs, hdrs, visibility, ...).
    """
    copts = kwargs.pop("copts", [])
    cc_library(
        name = name,
        group = "unity_core",
        copts = copts,
        testonly = testonly,
        deps = core_deps + deps,
        **kwargs
    )
    cc_library(
        name = name + "_breakable",
        group = "unity_breakable",
        copts = copts + ["-DDIVVY_BREAKABLE"],
        testonly = True,
        deps = [_breakable(dep) for dep in core_deps] + deps,
        **kwargs
    )

def _breakable(label):
    """//a/b -> //a/b:b_breakable, //a:b -> //a:b_breakable, :b -> :b_breakable."""
    if label.startswith("//") and ":" not in label:
        return label + ":" + label.split("/")[-1] + "_breakable"
    return label + "_breakable"
