"""sdk_tar: what a person needs to build programs without Bazel, as one tar."""

def _sdk_tar_impl(ctx):
    args = ctx.actions.args()
    args.use_param_file("%s", use_always = True)
    args.set_param_file_format("multiline")
    args.add(ctx.outputs.tar)
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.headers])
    args.add_all(ctx.attr.roots, before_each = "root")
    args.add_all(headers, map_each = _header)
    args.add_all([ctx.file.library, ctx.file.main], before_each = "library")
    args.add_all(ctx.files.binaries, before_each = "binary")
    ctx.actions.run(
        executable = ctx.executable._tool,
        inputs = depset([ctx.file.library, ctx.file.main] + ctx.files.binaries, transitive = [headers]),
        outputs = [ctx.outputs.tar],
        arguments = [args],
        mnemonic = "SdkTar",
        progress_message = "Packing %s" % ctx.label,
    )

def _header(file):
    return ["header", file.short_path, file.path]

# `roots` are the headers a program includes; with them goes what they include of `headers`, and no more.
sdk_tar = rule(
    implementation = _sdk_tar_impl,
    attrs = {
        "headers": attr.label_list(providers = [CcInfo]),
        "roots": attr.string_list(mandatory = True),
        "library": attr.label(allow_single_file = True, mandatory = True),
        "main": attr.label(allow_single_file = True, mandatory = True),
        "binaries": attr.label_list(),
        "tar": attr.output(mandatory = True),
        "_tool": attr.label(default = "//bazel:make_sdk", executable = True, allow_single_file = True, cfg = "exec"),
    },
)
