#!/usr/bin/env python3
"""structure_test.py: checks what deploy/prometheus and deploy/grafana ship, without Prometheus
(tools/operations_test asks promtool). Runs in the root of the tree."""
import io
import json
import os
import re
import subprocess
import sys
import unittest

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
HERE = os.path.join("deploy", "prometheus")
PAGE = "docs/operating/operations.md"
ALERTS = ["DivvyStepsStalled", "DivvyStraggler", "DivvyHotShard", "DivvyMemoryForecast", "DivvyCheckpointOld",
          "DivvyDiskFailing", "DivvyRecoveriesFrequent", "DivvyCoordinatorAway", "DivvyCertificateEnding", "DivvyInputBound"]
# Labels that Prometheus adds, and those that a target of `divvyctl gen prometheus` has.
TARGET_LABELS = {"job", "instance", "role", "task", "alertname", "alertstate"}
_KEYWORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "offset", "bool", "Inf", "NaN"}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def served_metrics():
    """name -> type: those that MetricsTest compares with what tasks serve."""
    return dict(re.findall(r'^ *\{"(\w+)", "(counter|gauge|histogram)",', read("tests/e2e/metric_names.h"), re.MULTILINE))


def labels_in_the_page():
    """name -> the metric's own labels, as the table of metrics in PAGE has them."""
    rows = re.findall(r"^\| `(\w+)(?:\{([\w,]+)\})?` \| (?:counter|gauge|histogram) \|", read(PAGE), re.MULTILINE)
    return {name: set(labels.split(",")) - {""} for name, labels in rows}


def known_metrics():
    """name -> labels, with the series of a histogram, and those that Prometheus makes."""
    metrics = {"ALERTS": set(), "up": set()}
    own_labels = labels_in_the_page()
    for name, kind in served_metrics().items():
        # Prometheus renames the label of a metric that its target has, too.
        labels = {"exported_job" if label == "job" else label for label in own_labels[name]}
        if kind == "histogram":
            metrics.update({name + "_bucket": labels | {"le"}, name + "_sum": labels, name + "_count": labels})
        else:
            metrics[name] = labels
    return metrics


def uses(expression):
    """(metrics, labels) of an expression in PromQL."""
    labels = set()
    text = re.sub(r"\[[^\]]*\]", " ", expression)
    for matchers in re.findall(r"\{([^}]*)\}", text):
        labels |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
    text = re.sub(r"\{[^}]*\}", " ", text)
    text = re.sub(r'"[^"]*"', " ", text)
    lists = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"
    for names in re.findall(lists, text):
        labels |= set(re.findall(r"\w+", names))
    text = re.sub(lists, " ", text)
    names = re.findall(r"(?<![\w.])([A-Za-z_:][\w:]*)(?!\s*\()(?![\w:])", text)
    return {name for name in names if name not in _KEYWORDS}, labels


def faults_of(expression, metrics):
    names, labels = uses(expression)
    faults = ["no metric: " + name for name in sorted(names - set(metrics))]
    known = TARGET_LABELS.union(*(metrics.get(name, set()) for name in names))
    return faults + ["no label: " + label for label in sorted(labels - known)] + ([] if names else ["no metric at all"])


def anchors(page):
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)}


def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


class UsesTest(unittest.TestCase):
    def test_an_expression_is_taken_apart(self):
        self.assertEqual(uses('sum by (job) (rate(a_total{role="ps", x!~"b"}[5m])) > on (job) group_left 3 * c unless on (q) d offset 5m'),
                         ({"a_total", "c", "d"}, {"job", "role", "x", "q"}))

    def test_unknown_names_are_faults(self):
        self.assertEqual(faults_of('rate(a_total{kind="x", k="y"}[1m]) / b', {"a_total": {"kind"}}), ["no metric: b", "no label: k"])
        self.assertEqual(faults_of("vector(1)", {}), ["no metric at all"])


class MetricsTest(unittest.TestCase):
    def test_the_page_and_the_tasks_have_the_same_names(self):
        self.assertEqual(set(labels_in_the_page()), set(served_metrics()))

    def test_names_types_and_labels_are_read(self):
        metrics = known_metrics()
        self.assertEqual(metrics["divvy_steps_total"], {"kind"})
        self.assertEqual(metrics["divvy_recoveries_total"], {"exported_job"})
        self.assertEqual(metrics["grpc_server_call_duration_seconds_bucket"], {"grpc_method", "grpc_status", "le"})
        self.assertNotIn("grpc_server_call_duration_seconds", metrics)


class AlertsTest(unittest.TestCase):
    def setUp(self):
        groups = yaml.safe_load(read(HERE + "/alerts.yaml"))["groups"]
        self.rules = [rule for group in groups for rule in group["rules"]]

    def test_they_are_all_there(self):
        self.assertEqual([rule["alert"] for rule in self.rules], ALERTS)

    def test_they_use_known_names(self):
        metrics = known_metrics()
        for rule in self.rules:
            self.assertEqual(faults_of(rule["expr"], metrics), [], rule["alert"])

    def test_each_says_what_to_do_and_where_the_procedure_is(self):
        for rule in self.rules:
            self.assertIn(rule["labels"]["severity"], ("critical", "warning"))
            summary, link = rule["annotations"]["summary"], rule["annotations"]["runbook_url"]
            self.assertIn("{{ $labels.job }}", summary)
            self.assertGreaterEqual(len(re.split(r"[.:] ", summary)), 3, "says what, and what to do: " + summary)
            self.assertEqual(link, "%s#%s" % (PAGE, rule["alert"].lower()))
            self.assertIn(link.partition("#")[2], anchors(PAGE))

    def test_the_cases_are_those_of_the_script(self):
        made = subprocess.run([sys.executable, os.path.join(ROOT, HERE, "make_alerts_test.py")], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout
        self.assertTrue(made == read(HERE + "/alerts_test.yaml"), "run deploy/generate")

    def test_each_alert_fires_in_a_case(self):
        tests = yaml.safe_load(read(HERE + "/alerts_test.yaml"))["tests"]
        fires = {sample["labels"] for test in tests for expected in test["promql_expr_test"] for sample in expected["exp_samples"]}
        self.assertEqual(fires, {'{alertname="%s"}' % alert for alert in ALERTS})


class DashboardTest(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.load(io.StringIO(read("deploy/grafana/divvy.json")))

    def test_each_panel_has_a_title_a_unit_and_words(self):
        ids = [panel["id"] for panel in self.dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in panels(self.dashboard):
            self.assertTrue(panel["title"] and panel["description"], panel)
            self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], panel["title"])
            self.assertTrue(panel["targets"], panel["title"])

    def test_no_panel_covers_another(self):
        taken = set()
        for panel in self.dashboard["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(at["x"] + at["w"], 24)
            taken |= cells

    def test_the_expressions_use_known_names_of_one_job(self):
        metrics = known_metrics()
        for panel in panels(self.dashboard):
            for target in panel["targets"]:
                self.assertEqual(faults_of(target["expr"], metrics), [], panel["title"])
                for matchers in re.findall(r"\{([^}]*)\}", target["expr"]):
                    self.assertIn('job="$job"', matchers, panel["title"])

    def test_it_has_the_parts_of_a_job(self):
        rows = [panel["title"] for panel in self.dashboard["panels"] if panel["type"] == "row"]
        self.assertEqual(rows, ["Job", "Parameter servers", "Workers", "Input", "Checkpoints", "Memory"])


class ScrapeTest(unittest.TestCase):
    def test_it_reads_the_alerts_and_names_each_task(self):
        config = yaml.safe_load(read(HERE + "/scrape.yaml"))
        self.assertEqual(config["rule_files"], ["alerts.yaml"])
        labels = [scrape["static_configs"][0]["labels"] for scrape in config["scrape_configs"]]
        self.assertEqual({label["job"] for label in labels}, {"digits"})
        self.assertEqual(sorted((label["role"], label["task"]) for label in labels),
                         [("chief", "0"), ("ps", "0"), ("ps", "1"), ("worker", "0"), ("worker", "1")])


if __name__ == "__main__":
    unittest.main()
