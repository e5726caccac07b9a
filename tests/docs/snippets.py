#!/usr/bin/env python3
"""snippets.py [--update] [ROOT]: compares the C++ of docs/guide.md with tests/docs/guide_snippets_test.cc, which is built and run.

In the source a snippet stands between "// guide: NAME" and "// guide: end"; in the guide behind "<!-- snippet: NAME -->", as a block of cpp. --update writes the
blocks anew from the source. Prints "docs/guide.md:line: words" for each block that differs or has no name, and each snippet that the guide does not show; exits
with 1 if there is any.
"""
import os
import re
import sys
import textwrap

GUIDE, SOURCE = "docs/guide.md", "tests/docs/guide_snippets_test.cc"

_SNIPPET = re.compile(r"^// guide: (?!end)(\w+)\n(.*?)^// guide: end$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"(?:^<!-- snippet: (\w+) -->\n)?^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(source):
    """NAME -> text."""
    return {name: textwrap.dedent(text).strip("\n") + "\n" for name, text in _SNIPPET.findall(source)}


def compare(guide, known):
    """(line, words) of each difference."""
    found, shown = [], set()
    for block in _BLOCK.finditer(guide):
        line, name = guide.count("\n", 0, block.start()) + 1, block.group(1)
        shown.add(name)
        if name is None:
            found.append((line, "a block of cpp without a name: nobody compiles it"))
        elif name not in known:
            found.append((line, "there is no snippet %s" % name))
        elif block.group(2) != known[name]:
            found.append((line, "snippet %s differs from %s; run tests/docs/snippets.py --update" % (name, SOURCE)))
    return found + [(1, "snippet %s is not shown" % name) for name in sorted(set(known) - shown)]


def updated(guide, known):
    def fill(block):
        name = block.group(1)
        return block.group(0) if name not in known else "<!-- snippet: %s -->\n```cpp\n%s```" % (name, known[name])
    return _BLOCK.sub(fill, guide)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def main(root, update):
    known = snippets(read(root, SOURCE))
    if update:
        text = updated(read(root, GUIDE), known)
        with open(os.path.join(root, GUIDE), "w", encoding="utf-8") as file:
            file.write(text)
    differences = compare(read(root, GUIDE), known)
    for difference in differences:
        print(GUIDE + ":%d: %s" % difference)
    print("%d snippets, %d differences" % (len(known), len(differences)))
    return 1 if differences or not known else 0


if __name__ == "__main__":
    # The tree itself, though Bazel runs a link to this file.
    here = os.path.dirname(os.path.realpath(__file__))
    roots = [argument for argument in sys.argv[1:] if argument != "--update"]
    sys.exit(main(roots[0] if roots else os.path.dirname(os.path.dirname(here)), "--update" in sys.argv[1:]))
