#!/usr/bin/env python3
"""Tests benchmarks in a copy of the tree, with benchmarks, a Bazel and peers that are scripts."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
# `build` names its labels. `run --script_path=FILE LABEL` links FILE to the benchmark.
BAZEL = """#!/bin/bash
echo "$*" >>bazel.log
for last; do :; done
for arg; do [[ $arg == --script_path=* ]] && ln -s "$PWD/fake/${last#//bench:}" "${arg#*=}"; done
exit 0
"""
# Prints the next line of its file of ratios in each run.
BENCH = """#!/bin/bash
me=$(readlink -f "$0")
echo "$*" >>"$me.flags"
ratio=$(sed -n "$(wc -l <"$me.flags")p" "$me.ratios")
echo "a line that is no figure"
echo '{"bench": "%(bench)s", "what": "alone", "unit": "/s", "rate": 5}'
echo '{"bench": "%(bench)s", "what": "%(what)s", "unit": "GB/s", "rate": '$ratio', '\\
     '"ceiling": "memcpy", "ceiling_rate": 1, "ratio": '$ratio', "p99_us": 7}'
"""
CSV = "csv, 40 numbers, batched"


class BenchmarksTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = os.path.realpath(temporary.name)
        for folder in ("tools", "bench", "fake", "docs/reference"):
            os.makedirs(os.path.join(self.root, folder))
        self.tool = shutil.copy(os.path.join(HERE, "benchmarks"), os.path.join(self.root, "tools"))
        self.script("fake/bazel", BAZEL)
        self.add_bench("ops", "Relu", 0.5, 0.9, 0.6, 0.5, 0.5)
        self.add_bench("store", "changes", 0.25)

    def write(self, name, text):
        path = os.path.join(self.root, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def script(self, name, text):
        path = self.write(name, text)
        os.chmod(path, 0o755)
        return path

    def add_bench(self, bench, what, *ratios):
        """The last ratio is printed in all later runs too."""
        self.script("fake/" + bench, BENCH % {"bench": bench, "what": what})
        lines = list(ratios) + [ratios[-1]] * 9
        self.write("fake/%s.ratios" % bench, "".join("%s\n" % ratio for ratio in lines))

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()

    def hold(self, **ratios):
        self.write("bench/baseline.json",
                   json.dumps({name.replace("_", ": "): ratio for name, ratio in ratios.items()}))

    def run_tool(self, *flags, only="^(ops|store)"):
        done = subprocess.run([sys.executable, self.tool, "--only=" + only, *flags],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True,
                              env=dict(os.environ, BAZEL=os.path.join(self.root, "fake/bazel")))
        self.output, self.errors = done.stdout, done.stderr
        return done.returncode

    def rows(self):
        """The cells of each row of the table, without CPU-seconds and memory."""
        return [re.split(r"  +", row)[:5] for row in self.output.splitlines()]

    def test_prints_the_medians_of_three_rounds_in_turns(self):
        self.assertEqual(self.run_tool(), 0, self.errors)
        rows = self.rows()
        self.assertEqual(rows[0], ["figure", "rate", "beside", "its rate", "ratio"])
        self.assertEqual(rows[2], ["ops: Relu", "0.6 GB/s", "memcpy", "1", "0.6"])
        self.assertEqual(rows[4], ["store: changes", "0.25 GB/s", "memcpy", "1", "0.25"])
        self.assertRegex(self.output, r"(?m)^ops: alone +5 /s +[0-9.]+ +[0-9]+$")
        self.assertEqual(self.read("fake/ops.flags"), "--format=json\n" * 3)
        self.assertEqual(self.read("bazel.log").splitlines()[0], "build //bench:ops //bench:store")

    def test_quick_is_two_rounds_with_less_work(self):
        self.assertEqual(self.run_tool("--quick"), 0, self.errors)
        self.assertEqual(self.read("fake/store.flags"), "--format=json --rounds=2\n" * 2)

    def test_a_variant_is_its_benchmark_with_a_flag(self):
        self.add_bench("pull_push", "pull", 0.5)
        self.assertEqual(self.run_tool("--rounds=1", only="^pull_push"), 0, self.errors)
        self.assertEqual(self.read("fake/pull_push.flags"),
                         "--format=json\n--format=json --tls\n")
        self.assertEqual(self.read("bazel.log").splitlines()[0], "build //bench:pull_push")

    def test_only_runs_the_benchmarks_whose_figures_match(self):
        self.hold(ops_Relu=0.6)
        self.assertEqual(self.run_tool(only="Relu"), 0, self.errors)
        self.assertEqual([row[0] for row in self.rows()], ["figure", "ops: Relu"])

    def test_an_unknown_figure_is_named_and_nothing_is_built(self):
        self.assertEqual(self.run_tool(only="Swish"), 1)
        self.assertIn("--only=Swish matches no benchmark (embedded_steps, steps,", self.errors)
        self.assertFalse(os.path.exists(os.path.join(self.root, "bazel.log")))

    def test_bad_flags_are_usage_errors(self):
        for flag, said in (("--rounds=0", "at least 1"), ("--only=(", "is not a regular expression")):
            self.assertEqual(self.run_tool(flag), 2)
            self.assertIn(said, self.errors)

    def test_a_crash_fails_with_its_output_and_the_others_still_run(self):
        self.script("fake/ops", "#!/bin/bash\necho 'the disk is full' >&2\nexit 3\n")
        self.assertEqual(self.run_tool("--baseline"), 1)
        self.assertIn("benchmarks: ops: exit code 3\nthe disk is full", self.errors)
        self.assertIn("benchmarks: failed: ops", self.errors)
        self.assertEqual(self.errors.count("exit code 3"), 1)
        self.assertIn("store: changes", self.output)
        self.assertFalse(os.path.exists(os.path.join(self.root, "bench/baseline.json")))

    def test_a_benchmark_without_a_figure_has_failed(self):
        self.script("fake/ops", "#!/bin/bash\necho done\necho '{\"usage\": 1}'\n")
        self.assertEqual(self.run_tool(), 1)
        self.assertIn("benchmarks: ops: no figure\ndone", self.errors)

    def test_a_build_that_fails_ends_the_command(self):
        self.script("fake/bazel", "#!/bin/bash\nexit 4\n")
        self.assertEqual(self.run_tool(), 1)
        self.assertIn("build //bench:ops //bench:store failed (4)", self.errors)

    def test_what_baseline_wrote_passes_compare(self):
        self.assertEqual(self.run_tool("--baseline"), 0, self.errors)
        self.assertEqual(json.loads(self.read("bench/baseline.json")),
                         {"ops: Relu": 0.6, "store: changes": 0.25})
        self.add_bench("ops", "Relu", 0.6)
        self.assertEqual(self.run_tool("--compare", "--rounds=1"), 0, self.output)
        self.assertTrue(self.output.endswith("compare: all well\n"), self.output)

    def test_baseline_of_some_figures_keeps_the_others(self):
        self.hold(ops_Relu=0.1, mlp_x=0.7)
        self.assertEqual(self.run_tool("--baseline", only="ops"), 0, self.errors)
        self.assertEqual(json.loads(self.read("bench/baseline.json")),
                         {"ops: Relu": 0.6, "mlp: x": 0.7})

    def test_compare_runs_five_rounds_and_names_what_fell_by_more_than_15_percent(self):
        self.hold(ops_Relu=0.58, store_changes=0.3)  # 0.5 is 13.8 % less than 0.58
        self.assertEqual(self.run_tool("--compare"), 1)
        self.assertIn("\nfell by 17 %: store: changes, from 0.3 to 0.25\ncompare: FAILED\n",
                      self.output)
        self.assertNotIn("Relu, from", self.output)
        self.assertEqual(len(self.read("fake/store.flags").splitlines()), 5)

    def test_compare_names_figures_that_one_side_lacks_and_fails_if_one_was_not_measured(self):
        self.hold(ops_Relu=0.5)
        self.assertEqual(self.run_tool("--compare"), 0, self.output)
        self.assertIn("not in bench/baseline.json: store: changes\ncompare: all well", self.output)
        self.hold(ops_Relu=0.5, ops_Tanh=0.5, store_changes=0.25, mlp_x=1)
        self.assertEqual(self.run_tool("--compare"), 1)
        self.assertIn("not measured: ops: Tanh\ncompare: FAILED", self.output)

    def test_compare_without_a_baseline_is_an_error(self):
        self.assertEqual(self.run_tool("--compare"), 1)
        self.assertIn("there is no bench/baseline.json; --baseline writes it", self.errors)

    def test_json_has_the_machine_the_figures_and_the_runs(self):
        path = os.path.join(self.root, "results.json")
        self.assertEqual(self.run_tool("--json=" + path), 0, self.errors)
        results = json.loads(self.read("results.json"))
        relu = results["figures"][1]
        self.assertEqual((relu["what"], relu["ratio"], relu["ratios"], relu["p99_us"]),
                         ("Relu", 0.6, [0.5, 0.9, 0.6], 7))
        self.assertEqual(sorted(results["runs"]["ops"]), ["cpu_s", "peak_mb"])
        self.assertIn("processor", results["machine"])

    def test_write_replaces_the_table_of_the_page(self):
        page = "docs/reference/performance.md"
        marks = "<!-- benchmarks: begin -->\n%s<!-- benchmarks: end -->\n"
        self.write(page, "before\n" + marks % "old\n" + "after\n")
        self.assertEqual(self.run_tool("--write"), 0, self.errors)
        text = self.read(page)
        self.assertRegex(text, r"(?s)^before\n.*begin -->\n.*`tools/benchmarks --only=\S+ --write`")
        self.assertIn("```\n" + self.output + "```\n\n<!-- benchmarks: end -->\nafter\n", text)
        self.assertNotIn("old", text)

    def test_peers_stand_beside_the_input_and_are_not_held(self):
        self.add_bench("input", CSV, 300)
        peers = [{"what": "tensorflow", "absent": True}, {"peer": "pandas 3.1", "what": CSV, "rate": 200}]
        python = self.script("fake/python", "#!/bin/bash\ncat <<'END'\n%s\nEND\n" %
                             "\n".join(map(json.dumps, peers)))
        self.assertEqual(self.run_tool("--peers=" + python, "--baseline",
                                       only="^(input|peers)"), 0, self.errors)
        self.assertIn("absent: tensorflow", self.errors)
        self.assertIn(["peers: %s beside pandas" % CSV, "300 k records/s", "pandas 3.1", "200",
                       "1.5"], self.rows())
        self.assertEqual(list(json.loads(self.read("bench/baseline.json"))), ["input: " + CSV])

    def test_a_peer_that_does_not_exist_is_an_error(self):
        self.add_bench("input", CSV, 300)
        self.assertEqual(self.run_tool("--peers=/nowhere/python", only="^input"), 1)
        self.assertIn("/nowhere/python: No such file or directory", self.errors)


if __name__ == "__main__":
    unittest.main()
