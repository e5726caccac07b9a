#!/usr/bin/env python3
"""What must not compile: the compiler refuses each piece of C++ below, with the words that say why.
The corrected piece compiles.

divvy.h is compiled once, as a precompiled header. Run it in the root of the headers (a test's
runfiles, or the tree).
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

COMPILER = ["g++", "-std=c++17", "-fsyntax-only", "-fdiagnostics-color=never"]
ROOT = os.getcwd()

# Declarations that the pieces use.
DECLARED = """
#include "divvy.h"

namespace the_users {
using namespace divvy;
absl::StatusOr<int64_t> Count(WorkerContext& worker, int64_t amount);
const Step kCount("count", Count);
absl::StatusOr<Metrics> Scaled(WorkerContext& worker, Iterator batches, double factor);
const Step kScaled("scaled", Scaled);
absl::Status Choose(WorkerContext& worker, bool first, std::optional<float> weight);
const Step kChoose("choose", Choose);
absl::Status Name(WorkerContext& worker, std::pair<std::string, int64_t> named);
const Step kNamed("name", Name);
absl::StatusOr<Dataset> Numbers(const InputContext& input, int64_t count);
const DataSource kNumbers("numbers", Numbers);
ModelOutput Forward(GradientTape& tape, const Nest& batch);
"""

MAY_CHANGE = "this argument may change on its way to the step or data source"

# (description, refused piece, words of the compiler's error, corrected piece). A piece is the body
# of a function with these parameters.
PARAMETERS = "Coordinator& coordinator, ReplicaContext& replica, int64_t large, size_t size, double half, const Var& ids, WorkerContext& worker, Iterator batches"
REFUSED = [
    ("a number that is cut", "(void)coordinator.Schedule(kCount, 1.9);", MAY_CHANGE,
     "(void)coordinator.Schedule(kCount, 2);"),
    ("a bool for a number", "(void)coordinator.Schedule(kCount, true);", MAY_CHANGE,
     "(void)coordinator.Schedule(kCount, 1);"),
    ("a number that may be out of range", "(void)coordinator.Schedule(kCount, size);", MAY_CHANGE,
     "(void)coordinator.Schedule(kCount, static_cast<int64_t>(size));"),
    ("text for a bool", '(void)coordinator.Schedule(kChoose, "text", 0.5f);', MAY_CHANGE,
     "(void)coordinator.Schedule(kChoose, true, 0.5f);"),
    ("a number for a bool", "(void)coordinator.Schedule(kChoose, 1, 0.5f);", MAY_CHANGE,
     "(void)coordinator.Schedule(kChoose, false, std::nullopt);"),
    ("a number that is rounded, in an optional", "(void)coordinator.Schedule(kChoose, true, 0.1);", MAY_CHANGE,
     "(void)coordinator.Schedule(kChoose, true, 0.1f);"),
    ("a number that is cut, of a numbered step", '(void)coordinator.ScheduleOnce("series", 0, kCount, half);', MAY_CHANGE,
     '(void)coordinator.ScheduleOnce("series", 0, kCount, int64_t{1});'),
    ("an integer that a loop's double does not hold", "(void)coordinator.RunEpoch(kScaled, kNumbers(3), large);", MAY_CHANGE,
     "(void)coordinator.RunEpoch(kScaled, kNumbers(3), 2);"),
    ("an argument of a data source that is cut", "(void)kNumbers(2.5);", MAY_CHANGE, "(void)kNumbers(2);"),
    ("a Var of a tape that has gone", 'const Var kernel = GradientTape(replica).Read("kernel");',
     "use of deleted function",
     'GradientTape tape(replica); const Var kernel = tape.Read("kernel"); (void)kernel;'),
    ("a lookup of a tape that has gone", 'const Var rows = GradientTape(replica).Lookup("table", ids);',
     "use of deleted function",
     'GradientTape other(replica); (void)other.Lookup("table", ids);'),
    ("a replica function that gives nothing to merge",
     "(void)worker.RunAndMerge(batches, [](ReplicaContext&, const Nest&) { return absl::OkStatus(); });",
     "RunAndMerge merges what the replicas return",
     "(void)worker.RunAndMerge(batches, [](ReplicaContext&, const Nest&) -> absl::StatusOr<Metrics> { return Metrics(); });"),
    ("a number that is cut, in a pair's braces", '(void)coordinator.Schedule(kNamed, {"x", 1.9});', MAY_CHANGE,
     '(void)coordinator.Schedule(kNamed, {"x", 1});'),
    ("text for a number", '(void)coordinator.Schedule(kCount, "1");', "cannot convert",
     "(void)coordinator.Schedule(kCount, 1);"),
]


def compiled(arguments, text=None):
    """The compiler's output; None if the text compiles."""
    run = subprocess.run(COMPILER + ["-I" + ROOT] + arguments, input=text, capture_output=True, text=True, check=False)
    return run.stderr if run.returncode else None


class Header:
    """divvy.h and DECLARED, compiled once."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.declared = os.path.join(self.folder.name, "declared.h")
        with open(self.declared, "w", encoding="utf-8") as file:
            file.write(DECLARED + "}  // namespace the_users\n")
        without_syntax_only = [word for word in COMPILER if word != "-fsyntax-only"]
        subprocess.run(without_syntax_only + ["-I" + ROOT, "-x", "c++-header", self.declared, "-o", self.declared + ".gch"], check=True)

    def refusal(self, body):
        text = "namespace the_users {\nvoid Body(%s) {\n%s\n}\n}\n" % (PARAMETERS, body)
        return compiled(["-include", self.declared, "-x", "c++", "-"], text)


class RefusedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.header = Header()

    @classmethod
    def tearDownClass(cls):
        cls.header.folder.cleanup()

    def test_each_is_refused_and_the_compiler_says_why(self):
        for what, refused, words, _ in REFUSED:
            with self.subTest(what):
                said = self.header.refusal(refused)
                self.assertIsNotNone(said, refused + " compiles")
                self.assertIn(words, re.sub(r"\s+", " ", said))

    def test_what_is_mended_compiles(self):
        said = self.header.refusal("\n".join(mended for _, _, _, mended in REFUSED))
        self.assertIsNone(said)


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(argv=sys.argv[:1])
