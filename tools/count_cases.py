#!/usr/bin/env python3
"""count_cases.py EVENTS EXIT_CODE: counts the test cases of one `bazel test`.

EVENTS is the file of --build_event_json_file, EXIT_CODE is bazel's exit code.
The cases are read from the XML files of the targets of that run. A sharded
target has several; files of other runs are ignored. A failure that belongs to
no case counts as one failed case: a target that crashed, was stopped, found a
leak at its end or did not build, and a run that failed as a whole or tested
nothing.

Names the failures, prints the line `N passed, M failed` at the end, and exits
with 0 only if something ran and nothing failed. All counting is done here.
"""
import json
import sys
import urllib.parse
import xml.etree.ElementTree


class Tally:
    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.failures = []

    def add_xml(self, label, text):
        """Adds the cases of one test.xml. Returns the number of failed ones."""
        before = len(self.failures)
        for case in xml.etree.ElementTree.fromstring(text).iter("testcase"):
            name = ".".join(filter(None, [case.get("classname"), case.get("name")]))
            if case.find("failure") is not None or case.find("error") is not None:
                self.failures.append("%s %s" % (label, name))
            elif case.get("result") == "skipped" or case.find("skipped") is not None:
                self.skipped += 1
            elif case.get("status") != "notrun":  # a disabled test is not a case
                self.passed += 1
        return len(self.failures) - before

    def add_result(self, label, result):
        """Adds one shard of one target."""
        failed = 0
        for output in result.get("testActionOutput", []):
            if output["name"] == "test.xml":
                failed += self._add_file(label, output["uri"])
        status = result.get("status", "NO_STATUS")
        if status != "PASSED" and failed == 0:
            self.failures.append("%s (%s)" % (label, status))

    def _add_file(self, label, uri):
        path = urllib.parse.unquote(urllib.parse.urlparse(uri).path)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return self.add_xml(label, file.read())
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            self.failures.append("%s (no cases: %s)" % (label, error))
            return 1


def count(events, exit_code):
    """The tally of a run, from its events in order."""
    tests, results, with_results, broken = set(), {}, set(), set()
    for event in events:
        kind = event["id"]
        if "targetConfigured" in kind:
            if event.get("configured", {}).get("targetKind", "").endswith("_test rule"):
                tests.add(kind["targetConfigured"]["label"])
        elif "targetCompleted" in kind:
            # A target that is not for this configuration, such as a CUDA target without CUDA.
            if event.get("aborted", {}).get("reason") == "SKIPPED":
                continue
            if not event.get("completed", {}).get("success"):
                broken.add(kind["targetCompleted"]["label"])
        elif "testResult" in kind and "testResult" in event:
            key = kind["testResult"]
            with_results.add(key["label"])
            # A later attempt of the same shard replaces an earlier one.
            results[key["label"], key.get("run", 1), key.get("shard", 1)] = event["testResult"]
    tally = Tally()
    for (label, _, _), result in sorted(results.items(), key=lambda item: item[0]):
        tally.add_result(label, result)
    tally.failures += ["%s (did not build)" % label for label in sorted((tests & broken) - with_results)]
    if exit_code != 0 and not tally.failures:
        tally.failures.append("(bazel ended with %d)" % exit_code)
    if not tally.passed and not tally.failures:
        tally.failures.append("(nothing ran)")
    return tally


def main(path, exit_code):
    try:
        with open(path, encoding="utf-8") as file:
            events = [json.loads(line) for line in file if line.strip()]
    except OSError:
        events = []  # bazel failed before it wrote events
    tally = count(events, int(exit_code))
    for failure in tally.failures:
        print("FAILED: " + failure)
    if tally.skipped:
        print("%d skipped" % tally.skipped)
    print("%d passed, %d failed" % (tally.passed, len(tally.failures)))
    return 1 if tally.failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: count_cases.py EVENTS EXIT_CODE")
    sys.exit(main(sys.argv[1], sys.argv[2]))
