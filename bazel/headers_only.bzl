"""headers_only and link_all: the two halves of libdivvy.so (docs/adr/0004)."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _merged(ctx):
    return cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])

def _headers_only_impl(ctx):
    return [CcInfo(compilation_context = _merged(ctx).compilation_context)]

# Makes the headers of `deps` available without linking `deps`: their code is in libdivvy.so.
headers_only = rule(
    implementation = _headers_only_impl,
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)

def _whole(ctx, toolchain, features, library):
    return cc_common.create_library_to_link(
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = toolchain,
        static_library = library.static_library,
        pic_static_library = library.pic_static_library,
        alwayslink = True,
    )

def _link_all_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain)
    merged = _merged(ctx)
    inputs = [
        cc_common.create_linker_input(
            owner = one.owner,
            libraries = depset([_whole(ctx, toolchain, features, l) for l in one.libraries if l.static_library or l.pic_static_library]),
            user_link_flags = depset(one.user_link_flags),
        )
        for one in merged.linking_context.linker_inputs.to_list()
    ]
    return [CcInfo(
        compilation_context = merged.compilation_context,
        linking_context = cc_common.create_linking_context(linker_inputs = depset(inputs)),
    )]

# Links every object of `deps` and of their dependencies, even if nothing refers to it. The exports
# of a shared library must not depend on what its own code calls.
link_all = rule(
    implementation = _link_all_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)

def library_or_archives(name, deps, library, **kwargs):
    """The target that a program links.

    It is `library` and the headers of `deps` or, for a fully static executable
    (--config=static), `deps` themselves. It is never both: the process would
    have two copies of what must exist once.

    Args:
      name: target name.
      deps: the libraries, all of which are inside `library`.
      library: a cc_library of libdivvy.so, without headers.
      **kwargs: passed on to the cc_library.
    """
    headers_only(name = "_%s_headers" % name, deps = deps)
    native.cc_library(
        name = name,
        deps = select({
            "//bazel:link_static": deps,
            "//conditions:default": [":_%s_headers" % name, library],
        }),
        **kwargs
    )
