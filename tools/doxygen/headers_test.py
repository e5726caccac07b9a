#!/usr/bin/env python3
"""Tests headers.py on a small header, and on the headers of this tree."""
import os
import re
import unittest

import headers

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

HEADER = r'''// What a well is. And more.
#ifndef DIVVY_WELL_H_
#define DIVVY_WELL_H_

#include "absl/status/status.h"

namespace divvy {

// About all wells of this header.

class Later;

// A place with water. Thread-safe.
//   Well well(3);  // not /*dry=*/true
//
//   well.Draw();
class Well : public Place {
 public:
  enum class Kind {
    kDeep,  // more than
            // ten metres
    kDry
  };
  explicit Well(int depth) : depth_{depth} {}  // in metres
  Well(const Well&) = delete;
  int Draw() && = delete;

  int depth() const { return depth_; }  // metres
  // NotFound: it is dry.
  absl::Status Draw() {
    // Nobody reads this.
    return absl::OkStatus();  // nor this
  }
  operator std::string() const { return ""; }
  friend class Rope;

 protected:
  // Not told.
  int Secret();

 private:
  int depth_;  // nor this
};

namespace internal {
// Not told.
int Hidden();
}  // namespace internal

// ---- functions ----------------------

// Elementwise.
Var Exp(const Var& x);
Var Log(const Var& x);  // of what is above 0

// Of a well:
//   OK        there is water
//   NotFound  it is dry; dig
struct Options {  // all of them
  int buckets = 2;
  char quote = '"', brace = '{';
  std::vector<int> sizes = {1, 2};
};

// A type that travels.
template <typename T>
struct Codec;
template <>
struct Codec<int> {
  static int Encode(int value) { return value; }
};

// Of a function.
template <typename R, typename... Args>
class Codec<R(Args...)> {
 public:
  int Encode();

 private:
  int depth_;
};

template <typename T>
T Twice(T value) {
  return value + value;
}

}  // namespace divvy

// Makes one.
#define DIVVY_WELL(...) \
  static const ::divvy::Well DIVVY_WELL_NAME(__VA_ARGS__)
#define DIVVY_WELL_NAME(x) x

#endif  // DIVVY_WELL_H_
'''


class HeaderTest(unittest.TestCase):
    def setUp(self):
        self.text, self.lines = headers.for_doxygen(HEADER)

    def test_comments_stand_above_their_declarations(self):
        self.assertIn('/// @brief A place with water.\n///\n/// Thread-safe.\n'
                      '/// @code{.cpp}\n/// Well well(3);  // not \ue000dry=\ue001true\n///\n'
                      '/// well.Draw();\n/// @endcode\nclass Well : public Place {', self.text)
        self.assertIn("  /// @brief NotFound: it is dry.\n  ///\n  absl::Status Draw() {",
                      self.text)

    def test_comments_behind_a_declaration_stand_above_it(self):
        self.assertIn("  /// @brief metres\n  ///\n  int depth() const", self.text)
        self.assertIn("    /// @brief more than ten metres\n    ///\n    kDeep,\n    kDry\n",
                      self.text)
        self.assertIn("  /// @brief in metres\n  ///\n  explicit Well(int depth)", self.text)
        self.assertIn("///\n/// all of them\nstruct Options {\n", self.text)

    def test_a_comment_is_about_all_functions_that_stand_together(self):
        self.assertIn("/// @brief Elementwise.\n///\nVar Exp(const Var& x);\n"
                      "/// @brief Elementwise.\n///\n///\n/// of what is above 0\nVar Log(",
                      self.text)

    def test_the_first_comment_and_those_that_stand_alone_are_about_the_file(self):
        self.assertTrue(self.text.startswith("/// @file\n/// @brief What a well is.\n///\n"
                                             "/// And more.\n///\n"
                                             "/// About all wells of this header.\n\n"))

    def test_tables_are_no_code(self):
        self.assertIn("/// @brief Of a well:\n///\n/// @code{.unparsed}\n"
                      "/// OK        there is water\n/// NotFound  it is dry; dig\n/// @endcode\n",
                      self.text)

    def test_what_a_program_does_not_use_is_left_out(self):
        for word in ("Secret", "int depth_", "Hidden", "Later", "Rope", "Not told", "Nobody",
                     "nor this", "private", "protected", "#define DIVVY_WELL_H_", "static const",
                     "----", "WELL_NAME", "Codec<int>", "&& = delete"):
            self.assertNotIn(word, self.text)

    def test_conversions_are_shown(self):
        self.assertIn("  operator std::string() const {", self.text)

    def test_macros_have_no_expansion(self):
        self.assertIn("/// @brief Makes one.\n///\n#define DIVVY_WELL(...)\n", self.text)

    def test_a_template_that_is_only_declared_is_shown(self):
        self.assertIn("/// @brief A type that travels.\n///\ntemplate <typename T>\n"
                      "struct Codec {};\n", self.text)

    def test_a_specialisation_with_a_comment_is_shown(self):
        self.assertIn("class Codec<R(Args...)> {\n public:\n  int Encode();\n};\n", self.text)

    def test_lines_are_those_of_the_header(self):
        line = self.text[:self.text.index("int depth() const")].count("\n")
        self.assertEqual(HEADER.split("\n")[self.lines[line] - 1],
                         "  int depth() const { return depth_; }  // metres")


class WordsTest(unittest.TestCase):
    def test_nothing_is_a_command_a_tag_or_a_link(self):
        self.assertEqual(headers.doc([r'a <b> @c \d &e %f #g $h --flag "x" ::y']),
                         [r'@brief a \<b\> \@c \\d \&e \%f \#g \$h \--flag \"x\" \::y', ""])

    def test_code_in_backticks(self):
        self.assertEqual(headers.doc(["Gives `Tensor<T>", "x`, *once*, not 2 * 3 * 4 or `*x*`."]),
                         [r"@brief Gives <code>Tensor\<T\> x</code>, <em>once</em>, "
                          "not 2 * 3 * 4 or <code>*x*</code>.", ""])

    def test_a_sentence_ends_where_people_see_its_end(self):
        self.assertEqual(
            headers.doc(["By Kingma et al. In 0.5 s, e.g. Adam ... The rest. Behind."]),
            ["@brief By Kingma et al. In 0.5 s, e.g. Adam ... The rest.", "", "Behind."])
        self.assertEqual(headers.doc(["Of `a. B` alone. Behind."]),
                         ["@brief Of <code>a. B</code> alone.", "", "Behind."])

    def test_paragraphs_and_lists(self):
        self.assertEqual(
            headers.doc(["One", "two.", "", "Either:", "- three", "  four", "- five", "", "a",
                         "- b"]),
            ["@brief One two.", "", "", "Either:", "- three four", "- five", "", "a - b"])


class TreeTest(unittest.TestCase):
    def setUp(self):
        self.texts = headers.public(TREE)
        self.headers = {path: headers.Header(text) for path, text in self.texts.items()}

    def names(self):
        """The names of classes, functions and types outside classes."""
        found = set()

        def add(declarations):
            for one in declarations:
                if one.kind == "namespace" and not one.hidden:
                    add(one.children)
                elif not one.hidden:
                    name = one.function() or re.search(
                        r"(?:class|struct|enum class|using) (?:\[\[\w+\]\] )?(\w+)", one.words)
                    found.add(name if isinstance(name, str) or not name else name.group(1))
        for header in self.headers.values():
            add(header.declarations)
            found.update(headers.macro_name(text) for line, text in header.macros.items()
                         if line in header.about_macros)
        return found

    def test_every_header_that_divvy_h_includes_is_public(self):
        with open(os.path.join(TREE, "divvy.h"), encoding="utf-8") as file:
            included = re.findall(r'#include "(.*)"', file.read())
        self.assertGreater(len(included), 20)
        for path in included + ["divvy.h", "program/main.h"]:
            self.assertIn(path, self.texts)

    def test_what_programs_use_is_there(self):
        names = self.names()
        for name in ("Variable", "Strategy", "ReplicaContext", "Coordinator", "RemoteValue", "Step",
                     "Trainer", "ReduceMean", "MinSizePartitioner", "StartEmbedded", "Metrics",
                     "DIVVY_PROGRAM"):
            self.assertIn(name, names)

    def test_nothing_of_the_protocol_is_there(self):
        with open(os.path.join(TREE, "tests", "api", "names_test.cc"), encoding="utf-8") as file:
            inside = set(re.findall(r"\bV\((\w+)\)", file.read()))
        self.assertGreater(len(inside), 50)
        self.assertEqual(inside & self.names(), set())

    def test_every_class_and_every_function_outside_classes_has_a_comment(self):
        for path, header in self.headers.items():
            header.for_doxygen()
            for one in header.shown():
                if one.outside and (one.kind != "other" or one.function()) and (
                        "operator" not in one.words):
                    self.assertTrue(one.above or one.behind, "%s: %s" % (path, one.words))

    def test_every_header_says_what_it_is_about(self):
        for path, text in self.texts.items():
            self.assertGreater(len(headers.summary(text)), 10, path)

    def test_every_backtick_is_closed(self):
        for path, header in self.headers.items():
            comments = [words for _, words in header.loose] + [header.about] + [
                comment for one in header.shown() for comment in (one.above, one.behind)]
            for comment in comments:
                for paragraph in "\n".join(comment).split("\n\n"):
                    self.assertEqual(paragraph.count("`") % 2, 0, "%s: %s" % (path, paragraph))

    def test_files_that_comments_name_are_there(self):
        for path, header in self.headers.items():
            text = self.texts[path]
            for offset in header.comments:
                line = text[offset:text.index("\n", offset)]
                for name in re.findall(r"(?<![\w/<.])(?:\w+/)+\w+\.(?:h|cc|md)\b", line):
                    self.assertTrue(os.path.exists(os.path.join(TREE, name)),
                                    "%s names %s" % (path, name))


if __name__ == "__main__":
    unittest.main()
