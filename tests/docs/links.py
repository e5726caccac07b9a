#!/usr/bin/env python3
"""links.py [--links] [ROOT]: finds names in the Markdown pages of this tree (or of ROOT) that lead
nowhere: the target of a link, the heading after its #, and a file whose path is in backticks. With
--links it checks links only, because the SDK has the pages without the sources that they name.
Prints "page:line: words" for each finding. Exits with 1 if there is one.
"""
import os
import re
import sys

_LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")
_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:h|cc|py|proto|md|sh|json|cu))`")


def pages(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
        for name in names:
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), root)


def headings(text):
    """The anchors that GitHub makes of the headings."""
    return {"#" + re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def missing(root, page, links_only=False):
    """(line, words) of each missing target."""
    text, beside = read(os.path.join(root, page)), os.path.join(root, os.path.dirname(page))
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        for target, heading in _LINK.findall(line):
            path = os.path.join(beside, target) if target else os.path.join(root, page)
            if re.match(r"\w+:", target):
                continue
            if not os.path.exists(path):
                found.append((number, "%s does not exist" % target))
            elif heading and path.endswith(".md") and heading not in headings(read(path)):
                found.append((number, "%s has no heading %s" % (target or page, heading)))
        for path in [] if links_only else _PATH.findall(line):
            if not any(os.path.exists(os.path.join(folder, path)) for folder in (root, beside)):
                found.append((number, "%s does not exist" % path))
    return found


def main(root, links_only):
    count, wrong = 0, 0
    for page in sorted(pages(root)):
        count += 1
        for finding in missing(root, page, links_only):
            wrong += 1
            print(page + ":%d: %s" % finding)
    print("%d pages, %d missing targets" % (count, wrong))
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    # The real tree: Bazel runs this file through a link.
    here = os.path.dirname(os.path.realpath(__file__))
    roots = [argument for argument in sys.argv[1:] if argument != "--links"]
    root = roots[0] if roots else os.path.dirname(os.path.dirname(here))
    sys.exit(main(root, "--links" in sys.argv[1:]))
