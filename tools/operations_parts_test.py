#!/usr/bin/env python3
"""Tests of tools/operations_test that need none of Debian's programs. Runs in the root of the tree."""
import os
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, TOOLS)

from operations import browser, common, faults, prometheus  # noqa: E402


def rules():
    return {rule["alert"]: rule for group in prometheus.shortened_rules()["groups"] for rule in group["rules"]}


class ShortenedRulesTest(unittest.TestCase):
    def test_ranges_and_waits_are_divided(self):
        self.assertEqual(prometheus.seconds_of("1h30m"), 5400)
        rule = rules()["DivvyStraggler"]
        self.assertIn("[20000ms]", rule["expr"])
        self.assertNotIn("[10m]", rule["expr"])
        self.assertEqual(rule["for"], "10000ms")
        self.assertEqual(prometheus.waiting_time("DivvyStraggler"), 10)

    def test_both_parts_of_a_subquery_are_divided(self):
        self.assertIn("[2880000ms:2000ms]", rules()["DivvyCheckpointOld"]["expr"])

    def test_thresholds_of_time_are_divided(self):
        self.assertIn("> 10\n", rules()["DivvyStepsStalled"]["expr"])
        self.assertIn(", 240) >", rules()["DivvyMemoryForecast"]["expr"])

    def test_an_alert_without_a_wait_has_none(self):
        self.assertNotIn("for", rules()["DivvyDiskFailing"])
        self.assertEqual(prometheus.waiting_time("DivvyDiskFailing"), 0)


class FaultsTest(unittest.TestCase):
    def test_each_alert_has_one_fault(self):
        self.assertEqual(sorted(fault.alert for fault in faults.FAULTS), sorted(rules()))

    def test_the_documentation_has_each_fault_and_what_it_is_allowed(self):
        page = common.read(os.path.join(common.ROOT, "docs/operating/operations.md"))
        for kind in faults.FAULTS:
            self.assertRegex(page, r"\| %s \| [0-9.]+ s \| %g s \|" % (kind.alert, kind().allowed_s))


    def test_a_fault_that_could_not_be_planted_can_be_removed(self):
        for kind in faults.FAULTS:
            if kind is not faults.LostCoordinator:
                kind().remove(None)


class ChecksTest(unittest.TestCase):
    def test_only_skipped_checks_are_no_success(self):
        checks = common.Checks()
        checks.skip("a fault", "no strace")
        self.assertEqual((checks.exit_code(), checks.verdict()), (77, "0 passed, 0 failed, 1 skipped"))
        checks.record("another", True)
        self.assertEqual(checks.exit_code(), 0)
        checks.record("a third", False)
        self.assertEqual((checks.exit_code(), checks.verdict()), (1, "1 passed, 1 failed, 1 skipped"))


class Unready(prometheus.Prometheus):
    """Answers nothing, since no process was started."""

    def __init__(self, log, was_ready):
        self.log, self._was_ready = log, was_ready
        # Port 0 takes no connection.
        self._url = "http://127.0.0.1:0"


class AnswersTest(unittest.TestCase):
    def test_no_answer_is_not_taken_for_no_alert(self):
        with tempfile.NamedTemporaryFile("w") as log:
            self.assertEqual(Unready(log.name, False).fired(), set())
            with self.assertRaisesRegex(RuntimeError, "does not answer any more"):
                Unready(log.name, True).fired()


class TextTest(unittest.TestCase):
    def test_a_page_is_what_a_person_reads(self):
        self.assertEqual(browser.text_of("<title>t</title><style>p{}</style><p>a&amp;b</p>\n<td>1</td><td>2</td>"), "a&b 1 2")


class CommandTest(unittest.TestCase):
    def run_it(self, *words):
        with tempfile.TemporaryDirectory() as empty:
            environment = dict(os.environ, XDG_CACHE_HOME=empty, PATH=os.path.dirname(sys.executable) + ":/bin")
            environment.pop("PROMTOOL", None)
            done = subprocess.run([sys.executable, os.path.join(TOOLS, "operations_test"), *words], env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        return done.returncode, done.stdout

    def test_an_unknown_part_is_named(self):
        code, said = self.run_it("rule")
        self.assertEqual(code, 64)
        self.assertIn("no part rule; there are rules, ", said)

    def test_a_wrong_name_is_refused_before_anything_runs(self):
        code, said = self.run_it("faults:DivvyHotShrad")
        self.assertEqual(code, 64)
        self.assertIn("no fault DivvyHotShrad; there are DivvyStraggler, DivvyHotShard, ", said)
        code, said = self.run_it("scrape:x")
        self.assertEqual(code, 64)
        self.assertIn('the part scrape takes no names: give it without ":x"', said)

    def test_help_has_each_part(self):
        code, said = self.run_it("--help")
        self.assertEqual(code, 0)
        for part in ("rules", "scrape", "faults", "browser", "slurm", "systemd", "compose"):
            self.assertIn("\n  %s " % part, said)

    def test_a_part_without_its_programs_says_what_to_do(self):
        if os.path.exists("/bin/prometheus"):
            self.skipTest("prometheus is installed")
        code, said = self.run_it("faults")
        self.assertEqual(code, 77)
        self.assertIn("SKIP: faults: no prometheus: run tools/install_deps --operations", said)
        self.assertIn("0 passed, 0 failed, 1 skipped", said)


if __name__ == "__main__":
    unittest.main()
