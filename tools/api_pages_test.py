#!/usr/bin/env python3
"""What api_pages.py makes of a small header, and of the headers of this tree."""
import os
import tempfile
import unittest

import api_pages

HEADER = '''// What a well is.
#ifndef DIVVY_WELL_H_
#define DIVVY_WELL_H_

#include "absl/status/status.h"

namespace divvy {

class Later;

// A place with water. Thread-safe.
//   Well well(3);
//   well.Draw();
class Well : public Place {
 public:
  explicit Well(int depth) : depth_(depth) {}
  Well(const Well&) = delete;

  int depth() const { return depth_; }  // metres
  // NotFound: it is dry.
  absl::Status Draw();

 private:
  int Secret();
  int depth_;
};

namespace internal {
int Hidden();
}  // namespace internal

// Elementwise.
Var Exp(const Var& x);
Var Log(const Var& x);  // of what is above 0

enum class Kind { kDeep, kDry };
struct Options {
  int buckets = 2;
  Kind kind = Kind::kDeep;  // of the well
};

template <typename T>
T Twice(T value) {
  return value + value;
}

}  // namespace divvy

// Makes one.
#define DIVVY_WELL(...) \\
  static const ::divvy::Well well(__VA_ARGS__)

#endif  // DIVVY_WELL_H_
'''


def here():
    return os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


class PageTest(unittest.TestCase):
    def setUp(self):
        self.page = api_pages.page("well.h", api_pages.items(HEADER))

    def test_comments_stand_above_their_declarations(self):
        self.assertIn("# `well.h`\n\nWhat a well is.\n", self.page)
        self.assertIn('<a id="Well"></a>\n## `Well`\n\nA place with water. Thread-safe.\n\n```cpp\nWell well(3);\nwell.Draw();\n```\n', self.page)

    def test_a_class_is_its_public_part_without_bodies(self):
        self.assertIn("class Well : public Place {\n  explicit Well(int depth);\n\n  int depth() const;  // metres\n  // NotFound: it is dry.\n"
                      "  absl::Status Draw();\n};\n", self.page)

    def test_what_a_program_does_not_write_is_left_out(self):
        for word in ("Secret", "depth_", "Hidden", "delete", "Later", "#include", "DIVVY_WELL_H_", "value + value", "static const"):
            self.assertNotIn(word, self.page)

    def test_declarations_that_stand_together_stay_together(self):
        self.assertIn("## `Exp`, `Log`\n\nElementwise.\n\n```cpp\nVar Exp(const Var& x);\nVar Log(const Var& x);  // of what is above 0\n```\n", self.page)

    def test_structs_enums_templates_and_macros(self):
        self.assertIn("```cpp\nenum class Kind { kDeep, kDry };\n```\n", self.page)
        self.assertIn("struct Options {\n  int buckets = 2;\n  Kind kind = Kind::kDeep;  // of the well\n};\n", self.page)
        self.assertIn("```cpp\ntemplate <typename T>\nT Twice(T value);\n```\n", self.page)
        self.assertIn("Makes one.\n\n```cpp\n#define DIVVY_WELL(...)\n```\n", self.page)


class TreeTest(unittest.TestCase):
    def setUp(self):
        self.pages = api_pages.pages(here())

    def test_every_header_that_a_program_includes_has_a_page(self):
        for path in ("strategy/coordinator.h", "tensor/nest.h", "train/trainer.h", "program/main.h", "cluster/cluster_resolver.h"):
            self.assertIn("[%s](%s)" % (path, api_pages.file_of(path)), self.pages["index.md"])
        self.assertNotIn("cluster/messages.h", self.pages["index.md"])

    def test_names_lead_to_places_that_are_there(self):
        for name in ("Variable", "Strategy", "ReplicaContext", "Coordinator", "RemoteValue", "Step", "Trainer", "ReduceMean", "MinSizePartitioner", "DIVVY_PROGRAM"):
            self.assertIn("[`%s`]" % name, self.pages["names.md"])
        for line in self.pages["names.md"].split("\n")[2:-1]:
            file, anchor = line[line.index("](") + 2:-1].split("#")
            self.assertIn('<a id="%s"></a>' % anchor, self.pages[file], line)

    def test_no_private_member_is_shown(self):
        for file, text in self.pages.items():
            self.assertNotIn("private:", text, file)

    def test_pages_are_written(self):
        with tempfile.TemporaryDirectory() as folder:
            api_pages.main(os.path.join(folder, "api"), here())
            self.assertEqual(sorted(self.pages), sorted(os.listdir(os.path.join(folder, "api"))))


if __name__ == "__main__":
    unittest.main()
