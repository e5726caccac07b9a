#!/usr/bin/env python3
"""Tests count_cases.py on the events and files of a run."""
import os
import tempfile
import unittest

import count_cases

CLEAN = '<testsuites><testsuite><testcase name="A" status="run" classname="T"/><testcase name="B" status="run" classname="T"/></testsuite></testsuites>'
ONE_FAILS = '<testsuites><testsuite><testcase name="A" classname="T"/><testcase name="B" classname="T"><failure/></testcase></testsuite></testsuites>'
CRASHED = '<testsuites><testsuite><testcase name="t/crash_test"><error message="exited with error code 134"></error></testcase></testsuite></testsuites>'
NOT_RUN = ('<testsuites><testsuite><testcase name="A" status="notrun" result="suppressed"/><testcase name="B" status="run" result="skipped"/>'
           '<testcase name="C" status="run" result="completed"/></testsuite></testsuites>')


class CountTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.files = 0

    def result(self, label, text, status="PASSED", shard=1, attempt=1):
        """The event of one shard, and its test.xml (None: there is none)."""
        self.files += 1
        path = os.path.join(self.folder, "shard %d.xml" % self.files)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        output = {"name": "test.xml", "uri": "file://" + path.replace(" ", "%20")}
        return {"id": {"testResult": {"label": label, "run": 1, "shard": shard, "attempt": attempt}},
                "testResult": {"status": status, "testActionOutput": [{"name": "test.log", "uri": "file:///none"}, output]}}

    @staticmethod
    def target(label, kind="cc_test rule", built=True):
        return [{"id": {"targetConfigured": {"label": label}}, "configured": {"targetKind": kind}},
                {"id": {"targetCompleted": {"label": label}}, "completed": {"success": True} if built else {}}]

    def check(self, events, passed, failures, exit_code=0):
        tally = count_cases.count(events, exit_code)
        self.assertEqual((tally.passed, tally.failures), (passed, failures))
        return tally

    def test_the_cases_of_every_shard_are_added(self):
        self.check(self.target("//t:a") + [self.result("//t:a", CLEAN, shard=1), self.result("//t:a", CLEAN, shard=2)], 4, [])

    def test_a_failed_case_is_named(self):
        self.check([self.result("//t:a", ONE_FAILS, "FAILED")], 1, ["//t:a T.B"], 3)

    def test_disabled_cases_do_not_count_and_skipped_ones_neither_pass_nor_fail(self):
        self.assertEqual(self.check([self.result("//t:a", NOT_RUN)], 1, []).skipped, 1)

    def test_a_target_that_is_not_for_this_configuration_counts_as_nothing(self):
        incompatible = self.target("//t:gpu")[:1] + [{"id": {"targetCompleted": {"label": "//t:gpu"}}, "aborted": {"reason": "SKIPPED"}}]
        self.check(incompatible + [self.result("//t:a", CLEAN)], 2, [])

    def test_a_crash_is_one_failed_case(self):
        self.check([self.result("//t:a", CRASHED, "FAILED")], 0, ["//t:a t/crash_test"], 3)

    def test_a_target_that_fails_though_all_its_cases_pass_is_one_failed_case(self):
        self.check([self.result("//t:a", CLEAN, "FAILED")], 2, ["//t:a (FAILED)"], 3)

    def test_a_target_without_xml_is_one_failed_case(self):
        tally = count_cases.count([self.result("//t:a", None)], 0)
        self.assertEqual((tally.passed, len(tally.failures)), (0, 1))

    def test_broken_xml_is_one_failed_case(self):
        tally = count_cases.count([self.result("//t:a", "<testsuites>")], 0)
        self.assertEqual((tally.passed, len(tally.failures)), (0, 1))

    def test_the_last_attempt_of_a_flaky_shard_counts(self):
        self.check([self.result("//t:a", ONE_FAILS, "FAILED"), self.result("//t:a", CLEAN, attempt=2)], 2, [])

    def test_a_test_that_did_not_build_is_one_failed_case_and_a_library_is_not_a_test(self):
        events = self.target("//t:a", built=False) + self.target("//t:lib", "cc_library rule", built=False) + [self.result("//t:b", CLEAN)]
        self.check(events, 2, ["//t:a (did not build)"], 1)

    def test_a_test_that_the_run_left_out_does_not_count(self):
        self.check(self.target("//t:a") + [self.result("//t:b", CLEAN)], 2, [])

    def test_a_library_that_did_not_build_fails_the_run(self):
        self.check(self.target("//t:lib", "cc_library rule", built=False) + [self.result("//t:b", CLEAN)], 2, ["(bazel ended with 1)"], 1)

    def test_a_run_of_nothing_fails(self):
        self.check([], 0, ["(nothing ran)"])


if __name__ == "__main__":
    unittest.main()
