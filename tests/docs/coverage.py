#!/usr/bin/env python3
"""coverage.py [ROOT]: reads docs/reference/semantics_coverage.md, docs/reference/deviations.md and of docs/operating/operations.md the tables that end in "shown by", below ROOT (default: this
tree), and names each row that claims what is not so.

  empty      a cell without words
  test       a test that no source has, or not the file named before it; a golden file that is not there
  deviation  a row of deviations.md that is not there, or stands there twice
  rule       a rule of the specification without a row, or a number that it has not
  placeholder  a last cell that puts off what it should name ("comes with ...", "TODO")
  nothing    a row that names neither a test, nor a golden file, nor a deviation, nor a reason (_REASONS)

In the last cell of a row, `dir/x_test.cc` is the file of the tests behind it, `Suite.Test` a test (`Suite/Instance` and `Suite` name all of a suite), `x.json` a
golden file, and `deviations: rule` a row of deviations.md. Prints "file:line: rule: words" and exits with 1 if anything is wrong.
"""
import os
import re
import sys

COVERAGE, DEVIATIONS, OPERATIONS = "docs/reference/semantics_coverage.md", "docs/reference/deviations.md", "docs/operating/operations.md"
SHOWN_BY = "shown by"

# The sections of the specification: TensorFlow's semantics 1 to 6, the twenty tests of 3.11 one by
# one, and what the strategy's interface adds.
RULES = (["1.%d" % i for i in range(1, 11)] + ["2.%d" % i for i in range(1, 15)] + ["3.%d" % i for i in range(1, 11)] + ["3.11 %d" % i for i in range(1, 21)] +
         ["4.%d" % i for i in range(1, 11)] + ["5.%d" % i for i in range(1, 5)] + ["6.%d" % i for i in range(1, 5)] + ["G%d" % i for i in range(1, 13)])

# What may stand in place of a test.
_REASONS = ("no rule",)

# Words of a claim that nobody has kept yet.
_PLACEHOLDER = re.compile(r"\b(?:comes? (?:back )?with|to come|not yet|later version|TODO|TBD|planned)\b")

_TEST = re.compile(r"^[ \t]*(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
_SOURCE = re.compile(r"^[\w/]+\.(?:cc|h|py|sh)$")
_NAME = re.compile(r"^[A-Z]\w*(?:[./]\w+)?$")


def rows(text, last=None):
    """(line, cells) of each row of the tables, their heads left out; with `last`, of those whose head ends in that cell."""
    found, counts = [], True
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.startswith("|") or line.startswith("|---"):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        if number < len(lines) and lines[number].startswith("|---"):
            counts = last is None or cells[-1] == last
        elif counts:
            found.append((number, cells))
    return found


class Tests:
    """The tests of the sources below `root`."""

    def __init__(self, root):
        self.files = {}  # "dir/x_test.cc" -> {"Suite.Test"}
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
            for name in names:
                if name.endswith((".cc", ".h")):
                    self._read(root, os.path.join(folder, name))
        self.all = set().union(*self.files.values()) if self.files else set()

    def _read(self, root, path):
        with open(path, encoding="utf-8") as file:
            tests = {"%s.%s" % match for match in _TEST.findall(file.read())}
        if tests:
            self.files[os.path.relpath(path, root)] = tests

    def has(self, name, file=None):
        known = self.all if file is None else self.files.get(file, set())
        if "." in name:
            return name in known
        return any(test.startswith(name.split("/")[0] + ".") for test in known)


class Page:
    """One document and what is wrong with it."""

    def __init__(self, root, path, tests, last=None):
        self.root, self.path, self.tests = root, path, tests
        with open(os.path.join(root, path), encoding="utf-8") as file:
            self.rows = rows(file.read(), last)
        self.findings = []

    def find(self, line, kind, words):
        self.findings.append((self.path, line, kind, words))

    def check_cells(self, count):
        for line, cells in self.rows:
            if len(cells) != count:
                self.find(line, "empty", "%d cells instead of %d" % (len(cells), count))
            elif "" in cells:
                self.find(line, "empty", "cell %d of %s" % (cells.index("") + 1, cells[0]))

    def check_pins(self, line, cell, deviations):
        """Each thing in backticks of the last cell; how many there are."""
        file, pins = None, re.findall(r"`((?:deviations: .*?)|[^`]*)`(?=[,:; ]|$)", cell)
        for pin in pins:
            if pin.startswith("deviations: "):
                if deviations is not None and deviations.count(pin[len("deviations: "):]) != 1:
                    self.find(line, "deviation", pin[len("deviations: "):])
            elif _SOURCE.match(pin):
                file = pin
                if not os.path.isfile(os.path.join(self.root, pin)):
                    self.find(line, "test", "%s is not there" % pin)
            elif pin.endswith(".json"):
                if not os.path.isfile(os.path.join(self.root, "tests/golden", pin)):
                    self.find(line, "test", "%s is not there" % pin)
            elif not _NAME.match(pin) or not self.tests.has(pin, file):
                self.find(line, "test", "%s is not in %s" % (pin, file or "the tests"))
        return len(pins)


def check(root):
    tests = Tests(root)
    deviations, coverage = Page(root, DEVIATIONS, tests), Page(root, COVERAGE, tests)
    deviations.check_cells(6)
    names = [cells[0].replace("`", "") for _, cells in deviations.rows]
    for line, cells in deviations.rows:
        if deviations.check_pins(line, cells[-1], None) == 0:
            deviations.find(line, "nothing", cells[0])
    coverage.check_cells(3)
    for line, cells in coverage.rows:
        if cells[0] not in RULES:
            coverage.find(line, "rule", "%s is no rule" % cells[0])
        if coverage.check_pins(line, cells[-1], names) == 0 and not any(reason in cells[-1] for reason in _REASONS):
            coverage.find(line, "nothing", cells[0])
    for page in (deviations, coverage):
        for line, cells in page.rows:
            for words in _PLACEHOLDER.findall(re.sub(r"`[^`]*`", "", cells[-1])):
                page.find(line, "placeholder", words)
    for rule in RULES:
        if not any(cells[0] == rule for _, cells in coverage.rows):
            coverage.find(1, "rule", "%s has no row" % rule)
    operations = Page(root, OPERATIONS, tests, SHOWN_BY)
    for line, cells in operations.rows:
        if operations.check_pins(line, cells[-1], None) == 0:
            operations.find(line, "nothing", " ".join(cells[:2]))
    if not operations.rows:
        operations.find(1, "nothing", "no table ends in \"%s\"" % SHOWN_BY)
    return deviations.findings + coverage.findings + operations.findings, len(deviations.rows), len(coverage.rows)


def main(root):
    findings, deviations, covered = check(root)
    for finding in findings:
        print("%s:%d: %s: %s" % finding)
    print("%d rules, %d deviations, %d findings" % (covered, deviations, len(findings)))
    return 1 if findings else 0


if __name__ == "__main__":
    # The tree itself, though Bazel runs a link to this file.
    here = os.path.dirname(os.path.realpath(__file__))
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(here))))
