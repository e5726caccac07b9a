#!/usr/bin/env python3
"""What coverage.py makes of small trees that claim too much, snippets.py of guides that show something else than what is built,
links.py of pages that lead nowhere, quotes.py of a page that quotes what the source does not say, and outputs.py of outputs that nobody made."""
import os
import tempfile
import unittest

import coverage
import links
import outputs
import quotes
import snippets

COVERED = "".join("| %s | holds | `a/a_test.cc`: `ATest.Holds` |\n" % rule for rule in coverage.RULES)
DEVIATION = "| a rule | theirs | ours | why | – | `ATest.Holds` |\n"


SHOWN = "| it waits | `ATest.Holds` |\n"


def findings(covered=COVERED, deviations=DEVIATION, test="TEST(ATest, Holds) {}", shown=SHOWN):
    """(kind, words) of each finding in a tree with these rows and one test."""
    files = {
        "docs/reference/semantics_coverage.md": "| rule | what holds | held by |\n|---|---|---|\n" + covered,
        "docs/reference/deviations.md": "| rule | TensorFlow | Divvy | why | write instead | pinned by |\n|---|---|---|---|---|---|\n" + deviations,
        "docs/operating/operations.md": "| code |\n|---|\n| not looked at |\n\n| what | shown by |\n|---|---|\n" + shown,
        "a/a_test.cc": test + "\n",
        "tests/golden/scatter.json": "{}",
    }
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return [finding[2:] for finding in coverage.check(root)[0]]


def with_row(last):
    return COVERED + "| 1.1 | more | %s |\n" % last


class CoverageTest(unittest.TestCase):
    def test_what_is_so_passes(self):
        self.assertEqual([], findings(with_row("`scatter.json`, `deviations: a rule`")))
        self.assertEqual([], findings(with_row("no rule")))

    def test_tests_of_every_kind_are_found(self):
        for kind in ("TEST", "TEST_F", "TEST_P", "TYPED_TEST"):
            self.assertEqual([], findings(test="%s(ATest, Holds) {\n}" % kind))

    def test_a_test_that_is_not_there(self):
        self.assertEqual([("test", "ATest.Gone is not in a/a_test.cc")], findings(with_row("`a/a_test.cc`: `ATest.Gone`")))
        self.assertEqual([("test", "scatter_nd.json is not there")], findings(with_row("`scatter_nd.json`")))
        self.assertIn(("test", "b/b_test.cc is not there"), findings(with_row("`b/b_test.cc`: `ATest.Holds`")))

    def test_a_row_that_puts_off_what_it_should_name(self):
        for words in ("comes with", "TODO", "to come"):
            self.assertEqual([("placeholder", words)], findings(with_row("`ATest.Holds`; the rest %s checkpoints" % words)))
            self.assertEqual([("placeholder", words)], findings(deviations=DEVIATION.replace("`ATest.Holds`", "`ATest.Holds`, " + words)))
        self.assertEqual([("nothing", "1.1")], findings(with_row("with checkpoints")))

    def test_a_test_in_a_comment_is_none(self):
        self.assertIn(("test", "ATest.Holds is not in the tests"), findings(test="// TEST(ATest, Holds)"))

    def test_a_deviation_that_is_not_there_or_twice(self):
        self.assertEqual([("deviation", "another")], findings(with_row("`deviations: another`")))
        self.assertEqual([("deviation", "a rule")], findings(with_row("`deviations: a rule`"), deviations=DEVIATION * 2))

    def test_an_empty_cell(self):
        self.assertIn(("empty", "cell 3 of 1.1"), findings(with_row("")))
        self.assertEqual([("empty", "cell 4 of a rule")], findings(deviations=DEVIATION.replace("why", "")))

    def test_a_row_that_names_nothing(self):
        self.assertEqual([("nothing", "1.1")], findings(with_row("it is so")))
        self.assertEqual([("nothing", "a rule")], findings(deviations=DEVIATION.replace("`ATest.Holds`", "it is so")))

    def test_what_operators_are_told_and_nothing_shows(self):
        self.assertEqual([("nothing", "it waits it is so")], findings(shown="| it waits | it is so |\n"))
        self.assertEqual([("test", "ATest.Gone is not in the tests")], findings(shown="| it waits | `ATest.Gone` |\n"))
        self.assertEqual([("nothing", 'no table ends in "shown by"')], findings(shown=""))

    def test_a_rule_without_a_row_and_a_number_that_is_none(self):
        self.assertEqual([("rule", "G7 has no row")], findings(COVERED.replace("| G7 ", "| G6 ")))
        self.assertEqual([("rule", "G13 is no rule")], findings(COVERED + "| G13 | more | `ATest.Holds` |\n"))


SOURCE = "void f() {\n// guide: one\n  int a;\n    int b;\n// guide: end\n}\n"


class SnippetsTest(unittest.TestCase):
    def words(self, *pages):
        named = {"docs/guide/%d.md" % i: page for i, page in enumerate(pages)}
        return [words for _, _, words in snippets.compare(named, snippets.snippets(SOURCE))]

    def test_the_same_text_without_its_indentation(self):
        self.assertEqual([], self.words("<!-- snippet: one -->\n```cpp\nint a;\n  int b;\n```\n"))

    def test_what_differs_has_no_name_is_not_there_or_not_shown(self):
        self.assertIn("snippet one differs", self.words("<!-- snippet: one -->\n```cpp\nint c;\n```\n")[0])
        self.assertIn("without a name", self.words("```cpp\nint a;\n```\n")[0])
        self.assertEqual(["there is no snippet two", "snippet one is not shown"], self.words("<!-- snippet: two -->\n```cpp\nint a;\n```\n"))

    def test_a_snippet_is_shown_where_one_of_the_pages_shows_it(self):
        self.assertEqual([], self.words("no code\n", "<!-- snippet: one -->\n```cpp\nint a;\n  int b;\n```\n"))

    def test_an_update_fills_the_blocks_and_nothing_else(self):
        guide = "words\n<!-- snippet: one -->\n```cpp\n```\n```python\nx\n```\n"
        filled = snippets.updated(guide, snippets.snippets(SOURCE))
        self.assertEqual("words\n<!-- snippet: one -->\n```cpp\nint a;\n  int b;\n```\n```python\nx\n```\n", filled)


class LinksTest(unittest.TestCase):
    def words(self, text, **options):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "docs"))
            for path, content in {"docs/page.md": text, "docs/other.md": "# Files & Fences\n", "a.h": ""}.items():
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(content)
            return [words for _, words in links.missing(root, "docs/page.md", **options)]

    def test_what_is_there(self):
        self.assertEqual([], self.words("# Top\n[a](other.md) [b](../a.h) [c](other.md#files--fences) [d](#top) [e](https://x.y/z#w)\n`docs/other.md`\n"))

    def test_what_is_not(self):
        self.assertEqual(["gone.md is not there"], self.words("[a](gone.md)\n"))
        self.assertEqual(["other.md has no heading #fences"], self.words("[a](other.md#fences)\n"))
        self.assertEqual(["docs/gone.h is not there"], self.words("see `docs/gone.h`\n"))

    def test_links_alone(self):
        self.assertEqual(["gone.md is not there"], self.words("[a](gone.md) `docs/gone.h`\n", links_only=True))


TREE = {"a.cc": "int a;\n"}


class OutputsTest(unittest.TestCase):
    def words(self, text, page="README.md"):
        return [words for _, words in outputs.check(page, text, TREE.get)]

    def test_what_is_so_passes(self):
        self.assertEqual([], self.words("<!-- output: head=1 -->\n```\n$ echo a\na\n```\n"))
        self.assertEqual([], self.words("<!-- file: a.cc -->\n```cpp\nint a;\n```\n"))
        self.assertEqual([], self.words("```\n$ make \\\n    all\n```\n```cpp\nno command\n```\n"))

    def test_an_output_has_a_command_and_options_that_there_are(self):
        self.assertEqual(["an output without a command"], self.words("<!-- output -->\n```\na\n```\n"))
        self.assertEqual(["there is no option lines=3"], self.words("<!-- output: lines=3 -->\n```\n$ a\n```\n"))

    def test_a_file_is_as_it_stands_in_the_tree(self):
        self.assertEqual(["b.cc is not there"], self.words("<!-- file: b.cc -->\n```\n```\n"))
        self.assertIn("differs from a.cc", self.words("<!-- file: a.cc -->\n```\nint b;\n```\n")[0])

    def test_a_part_of_a_file_may_be_shown(self):
        page = "<!-- file: a.cc from=\"int b\" -->\n```cpp\nint b;\n```\n"
        self.assertEqual([], [w for _, w in outputs.check("README.md", page, {"a.cc": "int a;\nint b;\n"}.get)])

    def test_some_pages_show_no_output_that_nobody_made(self):
        block = "```\n$ echo a\na\n```\n"
        self.assertIn("that nobody made", self.words(block)[0])
        self.assertEqual([], self.words(block, page="docs/other.md"))

    def test_an_update_runs_the_commands_and_cuts_what_they_print(self):
        mark = "<!-- output: only=[abcd] from=b tail=1 head=1 -->\n"
        page = mark + "```\n$ echo 'a\nb'\nold\n```\n<!-- file: a.cc -->\n```\n```\n"
        made = outputs.filled(page, {"echo 'a\nb'": "a\nb \nc\nd\ne\n"}.get, TREE.get)
        self.assertEqual(mark + "```\n$ echo 'a\nb'\nb\n...\nd\n```\n"
                         "<!-- file: a.cc -->\n```\nint a;\n```\n", made)
        self.assertEqual(page.replace("```\n```", "```\nint a;\n```"), outputs.filled(page, None, TREE.get))

    def test_an_output_that_wants_what_is_not_there_stays(self):
        page = "<!-- output: wants=DIVVY_NO_SUCH_NAME -->\n```\n$ a\nold\n```\n"
        self.assertEqual(page, outputs.filled(page, {}.get, TREE.get))


SPEAKER = """// It says "a comment".
constexpr int kMost = 8  << 10;
void f() {
  Log(Cat("refuses connections: ", 1, " are open \\"now\\" "
          "(--most)"));
  Log(Cat(who, " may not ", "register as ", task, ": look"));
}
"""


class QuotesTest(unittest.TestCase):
    def findings(self, lines="| `may not` | yes |\n", limits="<!-- a.cc: kMost = 8 << 10 -->", test="",
                 troubles="| `may not` | yes |\n"):
        table = "| other |\n|---|\n| `not looked at` |\n\n| line | meaning |\n|---|---|\n%s\n%s\n"
        files = {quotes.PAGE: table % (lines, limits), quotes.TROUBLES: table % (troubles, ""),
                 "a.cc": SPEAKER, "b.cc": 'f("from b");', "a_test.cc": test}
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "docs/operating"))
            for path, content in files.items():
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(content)
            return [finding[2:] for finding in quotes.check(root)[0]]

    def test_what_the_source_says(self):
        for line in ("refuses connections: ... are open", 'open "now" (--most)', "... may not register as ...: look"):
            self.assertEqual([], self.findings("| `%s` | meaning |\n" % line), line)

    def test_what_no_source_says(self):
        said = ("refuses connection: ", "a comment", "may not ... from b", "may not look", "...")
        for line in said:
            self.assertEqual([("line", "no source says: " + line)], self.findings("| `%s` | meaning |\n" % line))

    def test_the_page_of_troubles_is_held_to_the_source_as_well(self):
        self.assertEqual([("line", "no source says: gone")], self.findings(troubles="| `gone` | x |\n"))
        self.assertEqual([("none", "no line of the log is quoted")], self.findings(troubles=""))

    def test_a_test_is_no_source(self):
        self.assertEqual([("line", "no source says: in a test")], self.findings("| `in a test` | x |\n", test='f("in a test");'))

    def test_every_text_of_the_first_column_counts_and_none_of_the_others(self):
        self.assertEqual([("line", "no source says: gone")], self.findings("| `may not`, `gone` | `also gone` |\n"))

    def test_a_limit_that_has_changed(self):
        self.assertEqual([("source", "a.cc does not have: kMost = 9")], self.findings(limits="<!-- a.cc: kMost = 9 -->"))
        self.assertEqual([("source", "gone.h is not there")], self.findings(limits="<!-- gone.h: kMost -->"))

    def test_a_page_that_quotes_nothing(self):
        self.assertEqual([("none", "no line of the log is quoted")], self.findings(lines=""))
        self.assertEqual([("none", "no limit names its source")], self.findings(limits=""))


if __name__ == "__main__":
    unittest.main()
