"""cc_grpc_library: gRPC's C++ stubs for a proto_library, made by the system's protoc."""

def _grpc_codegen_impl(ctx):
    info = ctx.attr.proto[ProtoInfo]
    descriptors = info.transitive_descriptor_sets
    hdrs, srcs, names = [], [], []
    for f in info.direct_sources:

        # The import name: the path below the root of its workspace, which need not be the one that
        # is built.
        names.append("/".join(f.short_path.split("/")[2:]) if f.short_path.startswith("../") else f.short_path)
        stem = f.basename[:-len(".proto")]
        hdrs.append(ctx.actions.declare_file(stem + ".grpc.pb.h"))
        srcs.append(ctx.actions.declare_file(stem + ".grpc.pb.cc"))
    args = ctx.actions.args()
    args.add_joined("--descriptor_set_in", descriptors, join_with = ":")
    args.add("--plugin=protoc-gen-grpc=" + ctx.executable._plugin.path)
    root = ctx.label.workspace_root
    args.add("--grpc_out=" + ctx.bin_dir.path + ("/" + root if root else ""))
    args.add_all(names)
    ctx.actions.run(
        executable = ctx.executable._protoc,
        tools = [ctx.executable._plugin],
        inputs = descriptors,
        outputs = hdrs + srcs,
        arguments = [args],
        mnemonic = "GrpcCpp",
        progress_message = "Generating gRPC C++ %s" % ctx.label,
    )
    return [DefaultInfo(files = depset(srcs)), OutputGroupInfo(hdrs = depset(hdrs))]

_grpc_codegen = rule(
    implementation = _grpc_codegen_impl,
    attrs = {
        "proto": attr.label(mandatory = True, providers = [ProtoInfo]),
        "_protoc": attr.label(default = "@com_google_protobuf//:protoc", executable = True, allow_single_file = True, cfg = "exec"),
        "_plugin": attr.label(default = "@debian//:grpc_cpp_plugin", executable = True, allow_single_file = True, cfg = "exec"),
    },
)

def cc_grpc_library(name, proto, deps, **kwargs):
    """C++ library with the service stubs of `proto`.

    Args:
      name: target name.
      proto: a proto_library in the same package.
      deps: the cc_proto_library of `proto` (and stubs of imported services).
      **kwargs: passed on to cc_library.
    """
    _grpc_codegen(name = "_%s_codegen" % name, proto = proto, visibility = ["//visibility:private"])
    native.filegroup(name = "_%s_hdrs" % name, srcs = [":_%s_codegen" % name], output_group = "hdrs", visibility = ["//visibility:private"])
    native.cc_library(
        name = name,
        srcs = [":_%s_codegen" % name],
        hdrs = [":_%s_hdrs" % name],
        deps = deps + ["@debian//:grpc++"],
        **kwargs
    )
