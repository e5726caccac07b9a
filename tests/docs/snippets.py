#!/usr/bin/env python3
"""snippets.py [--update] [ROOT]: compares the C++ on the pages of docs/guide with
tests/docs/guide_snippets_test.cc, which is built and run.

In the source, a snippet is between "// guide: NAME" and "// guide: end". On a page it is the block
of cpp after "<!-- snippet: NAME -->". --update copies the blocks from the source. Prints
"PAGE:line: words" for each block that differs or has no name, and for each snippet that is on no
page. Exits with 1 if there is one.
"""
import os
import re
import sys
import textwrap

GUIDE, SOURCE = "docs/guide", "tests/docs/guide_snippets_test.cc"

_SNIPPET = re.compile(r"^// guide: (?!end)(\w+)\n(.*?)^// guide: end$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"(?:^<!-- snippet: (\w+) -->\n)?^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(source):
    """NAME -> text."""
    return {name: textwrap.dedent(text).strip("\n") + "\n" for name, text in _SNIPPET.findall(source)}


def compare(pages, known):
    """(page, line, words) of each difference. `pages`: name -> text."""
    found, shown = [], set()
    for page, text in sorted(pages.items()):
        for block in _BLOCK.finditer(text):
            line, name = text.count("\n", 0, block.start()) + 1, block.group(1)
            shown.add(name)
            if name is None:
                found.append((page, line, "a block of cpp without a name is not compiled"))
            elif name not in known:
                found.append((page, line, "there is no snippet %s" % name))
            elif block.group(2) != known[name]:
                words = "snippet %s differs from %s; run tests/docs/snippets.py --update"
                found.append((page, line, words % (name, SOURCE)))
    missing = sorted(set(known) - shown)
    return found + [(GUIDE, 1, "snippet %s is not shown" % name) for name in missing]


def updated(text, known):
    def fill(block):
        name = block.group(1)
        if name not in known:
            return block.group(0)
        return "<!-- snippet: %s -->\n```cpp\n%s```" % (name, known[name])
    return _BLOCK.sub(fill, text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_pages(root):
    """The pages of the guide: "docs/guide/steps.md" -> text."""
    names = sorted(os.listdir(os.path.join(root, GUIDE)))
    paths = ["%s/%s" % (GUIDE, name) for name in names if name.endswith(".md")]
    return {path: read(os.path.join(root, path)) for path in paths}


def main(root, update):
    known = snippets(read(os.path.join(root, SOURCE)))
    if update:
        for path, text in read_pages(root).items():
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(updated(text, known))
    differences = compare(read_pages(root), known)
    for difference in differences:
        print("%s:%d: %s" % difference)
    print("%d snippets, %d differences" % (len(known), len(differences)))
    return 1 if differences or not known else 0


if __name__ == "__main__":
    # The real tree: Bazel runs this file through a link.
    here = os.path.dirname(os.path.realpath(__file__))
    roots = [argument for argument in sys.argv[1:] if argument != "--update"]
    root = roots[0] if roots else os.path.dirname(os.path.dirname(here))
    sys.exit(main(root, "--update" in sys.argv[1:]))
