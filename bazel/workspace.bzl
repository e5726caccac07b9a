"""WORKSPACE helpers."""

_SHIMS = ["rules_cc", "rules_java", "remote_coverage_tools"]

def offline_bazel4_shims():
    """Uses the stand-ins in third_party for what Bazel 4 downloads at start-up.

    Debian's bazel-bootstrap reports an empty version. Newer versions of Bazel
    need newer rule sets than the stand-ins, and fetch them by themselves.
    """
    version = native.bazel_version
    if version and int(version.split(".")[0]) > 4:
        return
    for name in _SHIMS:
        if name not in native.existing_rules():
            native.local_repository(name = name, path = "third_party/bazel_shims/" + name)
