"""WORKSPACE helpers."""

_SHIMS = ["rules_cc", "rules_java", "remote_coverage_tools"]

def offline_bazel4_shims():
    """Replaces what Bazel 4 downloads at start-up by the stand-ins in third_party.

    Debian's bazel-bootstrap reports an empty version. Newer Bazels expect
    newer rule sets than our stand-ins and fetch them themselves.
    """
    version = native.bazel_version
    if version and int(version.split(".")[0]) > 4:
        return
    for name in _SHIMS:
        if name not in native.existing_rules():
            native.local_repository(name = name, path = "third_party/bazel_shims/" + name)
