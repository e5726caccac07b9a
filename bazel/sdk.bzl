"""sdk_tar: the files that a user needs to build programs without Bazel, as one tar."""

def _archive_of(dep):
    """The archive that `dep` itself is compiled to, without its dependencies."""
    for one in dep[CcInfo].linking_context.linker_inputs.to_list():
        for library in one.libraries:
            if one.owner == dep.label:
                return library.pic_static_library or library.static_library
    fail("%s has no archive" % dep.label)

def _sdk_tar_impl(ctx):
    main = _archive_of(ctx.attr.main)
    args = ctx.actions.args()
    args.use_param_file("%s", use_always = True)
    args.set_param_file_format("multiline")
    args.add(ctx.outputs.tar)
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.headers])
    args.add_all(ctx.attr.roots, before_each = "root")
    args.add_all(headers, map_each = _header)
    args.add_all([ctx.file.library, main], before_each = "library")
    args.add_all(ctx.files.binaries, before_each = "binary")
    for target, name in ctx.attr.files.items():
        args.add_all(["file", name, target.files.to_list()[0].path])
    ctx.actions.run(
        executable = ctx.executable._tool,
        inputs = depset([ctx.file.library, main] + ctx.files.binaries + ctx.files.files, transitive = [headers]),
        outputs = [ctx.outputs.tar],
        arguments = [args],
        mnemonic = "SdkTar",
        progress_message = "Packing %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([ctx.outputs.tar]), runfiles = ctx.runfiles([ctx.outputs.tar]))]

def _header(file):
    return ["header", file.short_path, file.path]

# `roots` are the headers that a program includes. Of `headers`, only those that the roots include
# are packed. `files` maps further files to their names in the tar.
sdk_tar = rule(
    implementation = _sdk_tar_impl,
    attrs = {
        "headers": attr.label_list(providers = [CcInfo]),
        "roots": attr.string_list(mandatory = True),
        "library": attr.label(allow_single_file = True, mandatory = True),
        "main": attr.label(providers = [CcInfo], mandatory = True),
        "binaries": attr.label_list(),
        "files": attr.label_keyed_string_dict(allow_files = True),
        "tar": attr.output(mandatory = True),
        "_tool": attr.label(default = "//bazel:make_sdk", executable = True, allow_single_file = True, cfg = "exec"),
    },
)
