"""cc_library and unity: the libraries of a package are compiled together.

Headers take two thirds of the time of a compilation, and the sources of a package include nearly
the same ones. So `cc_library` hands its sources to `unity`, which each BUILD file calls at its end.
That makes sources that include up to 12 of them. --define=unity=0 compiles each source by itself,
which finds an #include or a dependency that is missing.

Sources that are compiled together must not define a name twice, also not in an unnamed namespace.
Packages must not depend on each other in a circle: a library that makes one says unity = False.
"""

# Enough that the headers' share is small, and few enough that both cores have work.
_MOST_TOGETHER = 12

_SEPARATE = "//bazel:separate_sources"

# What the tags of a library tell `unity`.
_KINDS = ["src", "hdr", "dep", "copt", "name"]

# g++ warns of a field of an unnamed namespace's type if an #include brings it, and here one does.
_NO_WARNING = "\\n".join([
    "#if defined(__GNUC__) && !defined(__clang__)",
    "#pragma GCC diagnostic ignored \"-Wsubobject-linkage\"",
    "#endif",
    "",
])

def _includes(sources):
    """The command that makes a source of these ones."""
    return "(printf '%s'; printf '#include \"%s/%%s\"\\n' %s) > $@" % (
        _NO_WARNING,
        native.package_name(),
        " ".join(sources),
    )

def cc_library(name, srcs = [], hdrs = [], deps = [], unity = True, group = "unity", copts = [], testonly = None, **kwargs):
    """As native.cc_library, compiled with others of its group.

    Unless unity is 0, it has the dependencies of the whole group.

    Args:
      name: target name.
      srcs: sources, and headers that only they include.
      hdrs: headers.
      deps: dependencies.
      unity: False compiles it by itself. A library with an attribute that is not named here is
        compiled by itself, too.
      group: libraries of one group must have the same copts. A program contains all of a group or
        nothing of it.
      copts: as native.cc_library. Without another group than "unity", such a library is compiled
        by itself.
      testonly: as native.cc_library.
      **kwargs: passed on to native.cc_library.
    """
    visibility = kwargs.pop("visibility", None)
    # What a rule makes may be a library.
    made = [src for src in srcs if ":" in src] if type(srcs) == "list" else []
    alone = made or kwargs or type(srcs) != "list" or type(deps) != "list" or (copts and group == "unity")
    if alone or not unity:
        native.cc_library(name = name, srcs = srcs, hdrs = hdrs, deps = deps, copts = copts, testonly = testonly, visibility = visibility, **kwargs)
        return
    if testonly and group == "unity":
        group = "unity_testonly"
    headers = [src for src in srcs if not src.endswith(".cc")]
    native.cc_library(
        name = name,
        srcs = select({_SEPARATE: srcs, "//conditions:default": headers}),
        hdrs = hdrs,
        copts = copts,
        # What `unity` reads. A macro cannot read an attribute with a select().
        tags = (
            ["%s:src:%s" % (group, src) for src in srcs] +
            ["%s:hdr:%s" % (group, hdr) for hdr in hdrs] +
            ["%s:dep:%s" % (group, dep) for dep in deps] +
            ["%s:copt:%s" % (group, copt) for copt in copts] +
            ["%s:name:%s" % (group, name)]
        ),
        testonly = testonly,
        visibility = visibility,
        deps = select({_SEPARATE: deps, "//conditions:default": [":" + group]}),
    )

def unity():
    """Makes the library of each group: call it once, after the last cc_library of a BUILD file."""
    groups = {}
    for rule in native.existing_rules().values():
        own = {kind: [] for kind in _KINDS}
        name = None
        for tag in rule["tags"] if rule["kind"] == "cc_library" else []:
            parts = tag.split(":", 2)
            if len(parts) == 3 and parts[0].startswith("unity"):
                name = parts[0]
                own[parts[1]].append(parts[2])
        if name == None:
            continue
        group = groups.setdefault(name, dict(own))
        if group["copt"] != own["copt"]:
            fail("%s: its copts are %s, and others of group %s have %s" %
                 (rule["name"], own["copt"], name, group["copt"]))
        for kind in _KINDS:
            group[kind] = group[kind] + [value for value in own[kind] if value not in group[kind]]
    for name, group in groups.items():
        _unity_library(name, group)

def _unity_library(name, group):
    sources = sorted([src for src in group["src"] if src.endswith(".cc")])
    together = []
    for begin in range(0, len(sources), _MOST_TOGETHER):
        together.append("%s_%d.cc" % (name, begin // _MOST_TOGETHER))
        native.genrule(
            name = "%s_%d" % (name, begin // _MOST_TOGETHER),
            outs = [together[-1]],
            cmd = _includes(sources[begin:begin + _MOST_TOGETHER]),
            tags = ["manual"],
            visibility = ["//visibility:private"],
        )
    members = [":" + member for member in group["name"]]
    native.cc_library(
        name = name,
        testonly = True if "testonly" in name or "breakable" in name else None,
        srcs = together,
        hdrs = group["hdr"],
        copts = group["copt"],
        tags = ["manual"],
        textual_hdrs = group["src"],
        deps = [dep for dep in group["dep"] if _in_package(dep) not in members],
    )

def _in_package(label):
    """//this/package:b -> :b, //this/package -> :package; another package's label is unchanged."""
    package = "//" + native.package_name()
    if label == package:
        return ":" + package.split("/")[-1]
    if label.startswith(package + ":"):
        return label[len(package):]
    return label

def unity_test(name, srcs, deps, **kwargs):
    """A cc_test whose sources are compiled together.

    Args:
      name: target name.
      srcs: tests.
      deps: dependencies.
      **kwargs: passed on to native.cc_test.
    """
    native.genrule(
        name = name + "_source",
        outs = [name + "_together_test.cc"],
        cmd = _includes(srcs),
        tags = ["manual"],
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name + "_files",
        testonly = True,
        tags = ["manual"],
        textual_hdrs = srcs,
        visibility = ["//visibility:private"],
    )
    native.cc_test(
        name = name,
        srcs = select({_SEPARATE: srcs, "//conditions:default": [name + "_together_test.cc"]}),
        deps = deps + [":" + name + "_files"],
        **kwargs
    )
