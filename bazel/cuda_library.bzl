"""cuda_library: .cu sources compiled by nvcc, as a dependency of cc_* rules."""

load("@cuda//:defs.bzl", "CUDA_HOME")

# CUDA 13 has no older target than sm_75. There is one image for each target, and PTX of the newest
# one for later GPUs. These compile it when they first load it, which takes a minute. To avoid that
# on Blackwell, use --define=cuda_archs=90,100,120.
DEFAULT_ARCHS = ["75", "80", "86", "89", "90"]

# Without --config=cuda, targets that need CUDA are left out of //...
NEEDS_CUDA = select({
    "//bazel:cuda": [],
    "//conditions:default": ["//bazel:never"],
})

def _arguments(ctx, src, obj, cc):
    args = ctx.actions.args()
    args.add_all(["-c", "-std=c++17", "-ccbin", "/usr/bin/g++", "-Xcompiler", "-fPIC,-fvisibility=hidden,-Wall,-Wextra,-Wno-unused-parameter"])
    args.add_all(["--extended-lambda", "--expt-relaxed-constexpr", "-O3"])
    # In /tmp, compilers in different sandboxes would use the same names.
    args.add("--objdir-as-tempdir")
    archs = ctx.var.get("cuda_archs", ",".join(DEFAULT_ARCHS)).split(",")
    args.add_all(["-gencode=arch=compute_%s,code=sm_%s" % (arch, arch) for arch in archs])
    args.add("-gencode=arch=compute_%s,code=compute_%s" % (archs[-1], archs[-1]))
    args.add_all(["-I.", "-I" + ctx.bin_dir.path])
    args.add_all(cc.includes, before_each = "-I")
    args.add_all(cc.quote_includes, before_each = "-I")
    args.add_all(cc.system_includes, before_each = "-isystem")
    args.add_all(["-o", obj, src])
    return args

def _cuda_objects_impl(ctx):
    if not CUDA_HOME:
        fail("%s needs the CUDA toolkit: install it, or set CUDA_HOME to its directory" % ctx.label)
    cc = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    objects = []
    for src in ctx.files.srcs:
        obj = ctx.actions.declare_file("_objs/%s/%s.pic.o" % (ctx.label.name, src.basename[:-3]))
        ctx.actions.run(
            executable = CUDA_HOME + "/bin/nvcc",
            arguments = [_arguments(ctx, src, obj, cc)],
            inputs = depset([src] + ctx.files.hdrs, transitive = [cc.headers]),
            outputs = [obj],
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s (nvcc)" % src.short_path,
            use_default_shell_env = True,
        )
        objects.append(obj)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
    },
)

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A cc_library of sources that nvcc compiles.

    Args:
      name: target name.
      srcs: .cu files.
      hdrs: headers, for these sources and for other targets.
      deps: cc_library targets.
      **kwargs: passed on to cc_library.
    """
    _cuda_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        target_compatible_with = NEEDS_CUDA,
        deps = deps,
    )
    native.cc_library(
        name = name,
        srcs = [":%s_objects" % name],
        hdrs = hdrs,
        target_compatible_with = NEEDS_CUDA,
        deps = deps + ["@cuda//:cudart_static"],
        alwayslink = True,
        **kwargs
    )
