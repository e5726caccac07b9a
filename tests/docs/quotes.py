#!/usr/bin/env python3
"""quotes.py [ROOT]: compares docs/operating/security.md and docs/operating/troubleshooting.md, below ROOT
(default: this tree), with the source.

  line    a text in backticks, in a table whose first column is called "line", that no source file
          says. The text is a line of the log; "..." in it stands for what changes. One source file
          must have every part between two "..." in a string literal, or at the end of one literal
          and the start of another.
  source  a comment <!-- FILE: TEXT --> whose FILE is not there or does not have TEXT. White space
          does not count. A limit is followed by such a comment, with the constant's definition.
  none    a page has no such line, or docs/operating/security.md has no such comment.

Tests and their helpers are no source. Prints "page:line: rule: words" and exits with 1 if anything
is wrong.
"""
import os
import re
import sys

PAGE, TROUBLES = "docs/operating/security.md", "docs/operating/troubleshooting.md"

_COMMENT = re.compile(r"<!-- ([\w./]+): (.*?) -->")
_CODE = re.compile(r"`([^`]+)`")
# A comment, a character, or a string; the strings are the last two groups.
_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|'(?:[^'\\\n]|\\.)'"
                    r"|R\"\((.*?)\)\"|\"((?:[^\"\\\n]|\\.)*)\"", re.DOTALL)
_NO_SOURCE = re.compile(r"(?:^|/)(?:testing|tests|bench|examples)/|_test\.cc$")


def literals(source):
    """The string literals of C++ text. Those with only white space between them are one."""
    found, end = [], None
    for token in _TOKEN.finditer(source):
        raw, plain = token.group(1), token.group(2)
        text = raw if raw is not None else plain
        if text is None:
            continue
        text = text.replace('\\"', '"')
        if end is not None and not source[end:token.start()].strip():
            found[-1] += text
        else:
            found.append(text)
        end = token.end()
    return found


def has(known, part):
    """Whether one of the literals has `part`, or two of them make it."""
    if any(part in text for text in known):
        return True
    for cut in range(1, len(part)):
        if any(text.endswith(part[:cut]) for text in known):
            if any(text.startswith(part[cut:]) for text in known):
                return True
    return False


def parts_of(line):
    parts = (part.strip() for part in line.split("..."))
    return [part for part in parts if re.search(r"\w", part)]


def sources(root):
    """Path -> the string literals of that file."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if name.endswith((".cc", ".h")) and not _NO_SOURCE.search(path):
                found[path] = literals(read(os.path.join(root, path)))
    return found


def quoted_lines(page):
    """(line number, text) of each text in backticks in the first column of the tables of lines."""
    found, counts, lines = [], False, page.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.startswith("|"):
            counts = False
            continue
        first = line.strip().strip("|").split("|")[0].strip()
        if number < len(lines) and lines[number].startswith("|---"):
            counts = first == "line"
        elif counts and not line.startswith("|---"):
            found += [(number, text) for text in _CODE.findall(first)]
    return found


def squeezed(text):
    return " ".join(text.split())


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def check_lines(known, page):
    """The findings, and how many lines there are."""
    quoted = quoted_lines(page)
    found = [] if quoted else [(1, "none", "no line of the log is quoted")]
    for number, text in quoted:
        parts = parts_of(text)
        if not parts or not any(all(has(texts, part) for part in parts) for texts in known.values()):
            found.append((number, "line", "no source says: %s" % text))
    return found, len(quoted)


def check_sources(root, page):
    """The findings, and how many comments there are."""
    found, count = [], 0
    for number, line in enumerate(page.split("\n"), 1):
        for path, text in _COMMENT.findall(line):
            count += 1
            whole = os.path.join(root, path)
            if not os.path.isfile(whole):
                found.append((number, "source", "%s is not there" % path))
            elif squeezed(text) not in squeezed(read(whole)):
                found.append((number, "source", "%s does not have: %s" % (path, text)))
    return found if count else [(1, "none", "no limit names its source")], count


def check(root):
    """(page, line, rule, words) of each finding, and how many lines and sources there are."""
    known, found, count = sources(root), [], 0
    for name in (PAGE, TROUBLES):
        page = read(os.path.join(root, name))
        of_lines, lines = check_lines(known, page)
        found += [(name,) + finding for finding in of_lines]
        count += lines
    of_sources, limits = check_sources(root, read(os.path.join(root, PAGE)))
    found += [(PAGE,) + finding for finding in of_sources]
    return sorted(found), count, limits


def main(root):
    findings, lines, limits = check(root)
    for finding in findings:
        print("%s:%d: %s: %s" % finding)
    print("%d lines of the log, %d sources, %d findings" % (lines, limits, len(findings)))
    return 1 if findings else 0


if __name__ == "__main__":
    # The tree itself, though Bazel runs a link to this file.
    here = os.path.dirname(os.path.realpath(__file__))
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(here))))
