#!/usr/bin/env python3
"""compile_commands.py [TARGETS]: writes compile_commands.json for clangd and clang-tidy, from the
commands by which bazel compiles TARGETS (default: all)."""
import json
import os
import subprocess
import sys


def bazel(*args):
    return subprocess.check_output((os.environ.get("BAZEL", "bazel"),) + args, text=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def entries(root, actions):
    """One entry for each source file of the tree, sorted."""
    found = {}
    for action in actions:
        # A flag of gcc that clang's tools refuse.
        arguments = [a for a in action["arguments"] if a != "-fno-canonical-system-headers"]
        source = arguments[arguments.index("-c") + 1]
        if not source.startswith(("bazel-out/", "external/")):
            found.setdefault(source, {"directory": root, "file": source, "arguments": arguments})
    return [found[source] for source in sorted(found)]


def main(targets):
    root = bazel("info", "workspace").strip()
    query = 'mnemonic("CppCompile", %s)' % targets
    actions = json.loads(bazel("aquery", "--define=unity=0", "--output=jsonproto", "--include_artifacts=false", query))["actions"]
    found = entries(root, actions)
    with open(os.path.join(root, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
    print("compile_commands.json: %d files" % len(found))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "//...")
