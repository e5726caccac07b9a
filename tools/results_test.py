#!/usr/bin/env python3
"""Tests results in a copy of the tree, with programs, a divvyctl and a Bazel that are scripts."""
import importlib.machinery
import importlib.util
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
BAZEL = """#!/bin/bash
echo "$*" >>bazel.log
[[ $1 != info ]] || echo "$PWD/bin"
"""
# Prints the figures of its file, and what it was started with.
PROGRAM = """#!/bin/bash
echo "$*" >>"$0.flags"
echo "epoch 1/1"
cat "$0.json"
"""
# Runs the program as divvyctl does. Its figures are those of the file .chaos, if there is one.
DIVVYCTL = """#!/bin/bash
echo "$*" >>"$0.flags"
while [[ $1 != -- ]]; do shift; done
shift
[[ ! -e $1.chaos ]] || cp "$1.chaos" "$1.json"
"$@" | sed 's/^/chief    | /'
echo "launch   | usage: chief: 0.25 s of CPU time, 12.5 MB at most"
echo "launch   | usage: ps 0: 0.25 s of CPU time, 1034.5 MB at most"
echo "launch   | chaos: $(cat "$0.kills") kills before the job was complete"
"""
COUNTS = {"steps": 10, "steps_counted": 10, "steps_expected": 10, "examples_counted": 1234,
          "examples_expected": 1234}


class ResultsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = os.path.realpath(temporary.name)
        for folder in ("tools", "bin/tools", "bin/bench/results", "docs/reference", "data/a9a"):
            os.makedirs(os.path.join(self.root, folder))
        self.tool = shutil.copy(os.path.join(HERE, "results"), os.path.join(self.root, "tools"))
        self.script("bazel", BAZEL)
        self.script("bin/tools/divvyctl", DIVVYCTL)
        self.write("bin/tools/divvyctl.kills", "1,007")
        self.add_program("a9a", auc=0.9023, log_loss=0.324)
        self.write("data/a9a/a9a.gz", "")
        self.write("data/a9a.t", "")
        # These two generate their data, so they run in every test.
        self.add_program("dlrm", auc_of_ceiling=0.98, examples_per_core=9999.4)
        self.add_program("word2vec", loss_over_fixed=1.01, neighbours_of_topic=0.99)

    def write(self, name, text):
        path = os.path.join(self.root, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def script(self, name, text):
        path = self.write(name, text)
        os.chmod(path, 0o755)
        return path

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()

    def add_program(self, name, suffix=".json", **figures):
        self.script("bin/bench/results/" + name, PROGRAM)
        self.write("bin/bench/results/" + name + suffix,
                   json.dumps(dict(COUNTS, result=name, **figures)) + "\n")

    def run_tool(self, *flags, data="--data=data", environment=()):
        done = subprocess.run([sys.executable, self.tool, *([data] if data else []), *flags],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.root,
                              universal_newlines=True,
                              env={**os.environ, "BAZEL": os.path.join(self.root, "bazel"),
                                   "DIVVY_DATA": "", **dict(environment)})
        self.output, self.errors = done.stdout, done.stderr
        return done.returncode

    def rows(self):
        return [re.split(r"  +", row.strip()) for row in self.output.splitlines()]

    def test_prints_the_figures_of_what_is_there_and_where_the_rest_comes_from(self):
        self.assertEqual(self.run_tool(), 0, self.errors)
        rows = self.rows()
        self.assertEqual(rows[0][:5], ["result", "figure", "reached", "target", "published"])
        self.assertEqual(rows[1][:5], ["a9a, logistic regression with FTRL", "AUC", "0.90230",
                                       ">= 0.9022", "liblinear's optimum: 0.90222"])
        self.assertEqual(rows[1][-2:], ["1,234", "ok"])
        self.assertEqual(rows[2], ["log loss", "0.32400", "<= 0.3245",
                                   "liblinear's optimum: 0.32406", "ok"])
        self.assertIn("\nskipped: Adult, wide & deep, one epoch: no adult.data, adult.test in "
                      "data/adult; from https://archive.ics.uci.edu/dataset/2/adult\n", self.output)
        self.assertIn("no u1.base, u1.test, u2.base,", self.output)
        self.assertEqual(self.read("bazel.log").splitlines()[0],
                         "build //bench/results:a9a //bench/results:dlrm "
                         "//bench/results:word2vec //tools:divvyctl")

    def test_data_is_found_in_the_folder_and_in_that_of_the_row_plain_or_compressed(self):
        self.assertEqual(self.run_tool(), 0, self.errors)
        self.assertEqual(self.read("bin/bench/results/a9a.flags"),
                         "--train=%s/data/a9a/a9a.gz --test=%s/data/a9a.t\n" %
                         (self.root, self.root))

    def test_without_data_the_rows_that_generate_it_run_and_the_others_are_skipped(self):
        self.assertEqual(self.run_tool(data=None), 0, self.errors)
        self.assertEqual(self.output.count("skipped: "), 5)
        self.assertIn("no a9a, a9a.t in --data=DIR (nor in DIVVY_DATA); from", self.output)
        self.assertEqual(self.read("bazel.log").splitlines()[0],
                         "build //bench/results:dlrm //bench/results:word2vec //tools:divvyctl")
        self.assertEqual(self.rows()[1][1:4], ["AUC / planted", "0.9800", ">= 0.97"])
        self.assertEqual(self.rows()[2][:3], ["examples/s a core", "9999", ">= 7400"])
        self.assertEqual(self.read("bin/bench/results/dlrm.flags"), "\n")

    def test_where_nothing_is_left_nothing_is_built(self):
        self.assertEqual(self.run_tool("--only=^a9a", data=None), 0, self.errors)
        self.assertFalse(os.path.exists(os.path.join(self.root, "bazel.log")))

    def test_a_generated_text_has_words_of_one_topic_in_a_line(self):
        self.script("bin/bench/results/word2vec", """#!/bin/bash
for flag; do cp "${flag#*=}" "$(dirname "$0")/${flag%%=*}"; done
cat "$0.json"
""")
        self.assertEqual(self.run_tool("--only=word2vec"), 0, self.errors)
        for flag, count in (("--train", 10000), ("--test", 1000)):
            lines = self.read("bin/bench/results/" + flag).splitlines()
            self.assertEqual(len(lines), count)
            for line in lines:
                words = line.split()
                self.assertEqual(len(words), 12)
                self.assertEqual(len({word.partition("word")[0] for word in words}), 1, line)

    def test_with_chaos_there_is_no_figure_of_speed(self):
        self.assertEqual(self.run_tool("--chaos", "--only=DLRM"), 0, self.errors)
        self.assertEqual([row[0] for row in self.rows()[1:]],
                         ["DLRM, 26 dynamic tables, Criteo's cardinalities, Zipf 1.05",
                          "examples/s a core",
                          "DLRM, 26 dynamic tables, Criteo's cardinalities, Zipf 1.05, chaos"])

    def test_the_environment_names_the_folder_where_no_flag_does(self):
        self.assertEqual(self.run_tool(data=None, environment={"DIVVY_DATA": "data"}), 0)
        self.assertIn("0.9023", self.output)

    def test_with_chaos_each_row_comes_once_more(self):
        self.assertEqual(self.run_tool("--chaos", "--every=2s", "--seed=5"), 0, self.errors)
        self.assertEqual(self.rows()[3][0], "a9a, logistic regression with FTRL, chaos")
        self.assertEqual(self.rows()[3][-4:], ["1034", "1007", "1,234", "ok"])
        flags = self.read("bin/tools/divvyctl.flags")
        self.assertIn("--chaos=2s --chaos_roles=worker,ps,coordinator", flags)
        self.assertIn("--seed=5", flags)
        self.assertIn("--checkpoint_dir=", flags)

    def test_a_missed_target_is_a_failure(self):
        self.add_program("a9a", auc=0.9, log_loss=0.324)
        self.assertEqual(self.run_tool(), 1)
        self.assertIn("the target is >= 0.9022", self.output)
        self.assertIn("results: failed: a9a, logistic regression with FTRL, AUC\n", self.errors)

    def test_a_figure_is_rounded_to_four_digits_before_it_is_compared(self):
        self.add_program("a9a", auc=0.90216, log_loss=0.32454)
        self.assertEqual(self.run_tool(), 0, self.output)
        self.add_program("a9a", auc=0.90214, log_loss=0.32454)
        self.assertEqual(self.run_tool(), 1)

    def test_with_chaos_a_figure_is_held_against_the_one_without(self):
        self.add_program("a9a", auc=0.9023, log_loss=0.3244)
        self.add_program("a9a", suffix=".chaos", auc=0.9021, log_loss=0.3247)
        self.assertEqual(self.run_tool("--chaos"), 0, self.output)
        self.assertEqual(self.rows()[3][2:4], ["0.90210", "0.90230 +- 0.0005"])

    def test_a_wrong_count_is_a_failure(self):
        for wrong, said in ((("steps_counted", 11), "counted 11 of 10 steps"),
                            (("examples_counted", 1233), "counted 1233 of 1234 examples"),
                            (("steps", 9), "counted 9 of 10 steps")):
            self.add_program("a9a", auc=0.9023, log_loss=0.324, **dict([wrong]))
            self.assertEqual(self.run_tool(), 1)
            self.assertIn(said, self.output)

    def test_a_figure_that_chaos_changes_is_a_failure(self):
        self.add_program("a9a", suffix=".chaos", auc=0.9043, log_loss=0.324)
        self.assertEqual(self.run_tool("--chaos"), 1)
        self.assertIn("further than 0.0005 from 0.90230", self.output)
        self.assertIn("failed: a9a, logistic regression with FTRL, AUC, with chaos\n", self.errors)

    def test_chaos_that_kills_nothing_is_a_failure(self):
        self.write("bin/tools/divvyctl.kills", "0")
        self.assertEqual(self.run_tool("--chaos"), 1)
        self.assertIn("nothing was killed", self.output)

    def test_five_folds_are_five_runs_and_their_mean(self):
        for fold in range(1, 6):
            for part in ("base", "test"):
                self.write("data/u%d.%s" % (fold, part), "")
        self.add_program("movielens", rmse=0.93)
        self.assertEqual(self.run_tool("--only=MovieLens"), 0, self.errors)
        self.assertEqual(self.rows()[1][2:4], ["0.9300", "<= 0.94"])
        self.assertEqual(self.rows()[2][-2:], ["6,170", "ok"])
        self.assertEqual(len(self.read("bin/bench/results/movielens.flags").splitlines()), 6)

    def test_a_program_that_fails_is_named_with_its_output_and_the_others_run(self):
        self.write("data/adult.data", "")
        self.write("data/adult.test", "")
        self.add_program("adult", auc=0.9)
        self.script("bin/bench/results/a9a", "#!/bin/bash\necho no memory >&2\nexit 74\n")
        self.assertEqual(self.run_tool(), 1)
        self.assertIn("results: a9a, logistic regression with FTRL: exit code 74\nno memory",
                      self.errors)
        self.assertEqual(self.rows()[1],
                         ["a9a, logistic regression with FTRL", "failed", "exit code 74"])
        self.assertIn("failed: a9a, logistic regression with FTRL\n", self.errors)
        self.assertIn("0.9000", self.output)

    def test_a_row_that_failed_is_on_the_page(self):
        page = "docs/reference/results.md"
        self.write(page, "<!-- results: begin -->\n<!-- results: end -->\n")
        self.script("bin/bench/results/a9a", "#!/bin/bash\nkill -SEGV $$\n")
        self.assertEqual(self.run_tool("--chaos", "--write"), 1)
        self.assertRegex(self.read(page), r"FTRL +failed +exit code -11\n")
        self.assertRegex(self.read(page), r"FTRL, chaos +failed +no line of figures\n")
        self.assertIn("0.9800", self.read(page))

    def test_a_run_that_takes_too_long_is_killed_with_its_children_and_has_failed(self):
        self.script("bin/bench/results/a9a", "#!/bin/bash\necho begun\ncat %s &\nwait\n" %
                    os.path.join(self.root, "fifo"))
        os.mkfifo(os.path.join(self.root, "fifo"))
        # The child has the file open until it is dead.
        reader = subprocess.Popen(["bash", "-c", "exec 3>%s/fifo; echo begun >&3; exec cat >&3"
                                   % self.root], stdin=subprocess.PIPE)
        self.addCleanup(reader.communicate)
        self.assertEqual(self.run_tool("--timeout=0.5", "--only=a9a"), 1)
        self.assertEqual(self.rows()[1], ["a9a, logistic regression with FTRL", "failed",
                                          "not done after 0.5 s: give it longer with --timeout"])
        self.assertIn("begun", self.errors)
        # Nobody reads any more, so this write cannot succeed.
        reader.communicate(b"more\n")
        self.assertNotEqual(reader.returncode, 0)

    def test_an_interrupt_ends_at_once_and_kills_the_program_with_its_children(self):
        fifo = os.path.join(self.root, "fifo")
        os.mkfifo(fifo)
        # The program and its child have the file open until they are dead.
        program = self.script("program", "#!/bin/bash\nexec 3>%s\nsleep 3600 &\nwait\n" % fifo)
        loader = importlib.machinery.SourceFileLoader("results", self.tool)
        results = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("results", loader))
        loader.exec_module(results)
        files, timers = [], []
        self.addCleanup(lambda: [file.close() for file in files])

        def interrupt(*_):
            files.append(open(fifo, "rb"))  # returns when the program runs
            timers.extend(each for each in threading.enumerate()
                          if isinstance(each, threading.Timer))
            raise KeyboardInterrupt

        with unittest.mock.patch.object(os, "waitid", interrupt):
            with self.assertRaises(KeyboardInterrupt):
                results.run([program], os.path.join(self.root, "log"), timeout=3600)
        self.assertEqual([timer.daemon for timer in timers], [True])
        self.assertFalse(timers[0].is_alive())
        readable, _, _ = select.select(files, [], [], 60)
        self.assertTrue(readable, "the program or its child still runs")
        self.assertEqual(files[0].read(), b"")

    def test_a_program_without_figures_has_failed(self):
        self.script("bin/bench/results/a9a", "#!/bin/bash\necho done\n")
        self.assertEqual(self.run_tool(), 1)
        self.assertIn("no line of figures\ndone", self.errors)

    def test_a_line_without_a_figure_or_a_count_has_failed(self):
        self.add_program("a9a", auc=0.9023)
        self.assertEqual(self.run_tool(), 1)
        self.assertIn("its line of figures lacks log_loss", self.output)
        self.write("bin/bench/results/a9a.json", '{"result": "a9a", "auc": 1, "log_loss": 0}')
        self.assertEqual(self.run_tool(), 1)
        self.assertIn("its line of figures lacks steps", self.output)

    def test_a_folder_that_does_not_exist_and_an_unknown_row_are_errors(self):
        self.assertEqual(self.run_tool(data="--data=/nowhere"), 1)
        self.assertIn("/nowhere is no directory", self.errors)
        self.assertEqual(self.run_tool("--only=Netflix"), 1)
        self.assertIn("--only=Netflix matches no row (a9a, logistic", self.errors)

    def test_write_replaces_the_table_of_the_page_and_names_no_folder(self):
        page = "docs/reference/results.md"
        self.write(page, "before\n<!-- results: begin -->\nformer\n<!-- results: end -->\nafter\n")
        self.assertEqual(self.run_tool("--write"), 0, self.errors)
        text = self.read(page)
        self.assertRegex(text, r"(?s)^before\n.*begin -->\n.*`tools/results --data=DIR --write`")
        self.assertIn("0.9023", text)
        self.assertIn("no adult.data, adult.test in DIR/adult; from", text)
        self.assertTrue(text.endswith("<!-- results: end -->\nafter\n"))
        self.assertNotIn("former", text)
        self.assertNotIn(self.root, text)


if __name__ == "__main__":
    unittest.main()
