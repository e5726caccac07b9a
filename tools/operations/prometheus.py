"""Debian's Prometheus, and a copy of the alerts in which time runs faster."""
import json
import os
import re
import time
import urllib.parse
import urllib.request

import yaml

from . import common

RULES = os.path.join(common.ROOT, "deploy/prometheus/alerts.yaml")
# So many seconds of production are one of the test.
FASTER = 30
SCRAPE_S = 15 / FASTER
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Seconds that stand in an expression as numbers. A certificate's week stays: the fault's two minutes
# are less.
_NUMBERS = {"DivvyStepsStalled": ("> 300", "> %g" % (300 / FASTER)),
            "DivvyMemoryForecast": ("2 * 3600", "%g" % (2 * 3600 / FASTER))}


def seconds_of(text):
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)([smhd])", text))


def _shorter(text):
    return "%dms" % (seconds_of(text) * 1000 // FASTER)


def _shorten(rule):
    expression = re.sub(r"\[([0-9a-z]+)(?::([0-9a-z]+))?\]",
                        lambda m: "[" + _shorter(m[1]) + (":" + _shorter(m[2]) if m[2] else "") + "]", rule["expr"])
    if rule["alert"] in _NUMBERS:
        old, new = _NUMBERS[rule["alert"]]
        assert old in expression, "%s has no %r any more" % (rule["alert"], old)
        expression = expression.replace(old, new)
    return dict(rule, expr=expression, **({"for": _shorter(rule["for"])} if "for" in rule else {}))


def shortened_rules():
    """The alerts of deploy/prometheus with ranges, `for` and thresholds of time divided by FASTER."""
    rules = yaml.safe_load(common.read(RULES))
    for group in rules["groups"]:
        group["rules"] = [_shorten(rule) for rule in group["rules"]]
    return rules


def waiting_time(alert):
    """The seconds of the copy's `for`."""
    rule = next(r for group in yaml.safe_load(common.read(RULES))["groups"] for r in group["rules"] if r["alert"] == alert)
    return seconds_of(rule.get("for", "")) / FASTER


class Prometheus(common.Process):
    """Scrapes the targets of `set_targets`, or of `scrape_configs`, and evaluates the copy of the rules."""

    def __init__(self, folder, scrape_configs=None):
        self._targets = os.path.join(folder, "targets.json")
        common.write(self._targets, "[]")
        common.write(os.path.join(folder, "alerts.yaml"), yaml.safe_dump(shortened_rules()))
        every = "%dms" % (SCRAPE_S * 1000)
        config = {"global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
                  "rule_files": ["alerts.yaml"],
                  "scrape_configs": scrape_configs or [{"job_name": "divvy", "file_sd_configs": [{"files": [self._targets]}]}]}
        path = os.path.join(folder, "prometheus.yaml")
        common.write(path, yaml.safe_dump(config))
        super().__init__([common.debian("usr/bin/prometheus"), "--config.file=" + path, "--web.listen-address=127.0.0.1:0",
                          "--storage.tsdb.path=" + os.path.join(folder, "data"),
                          "--query.lookback-delta=%s" % _shorter("5m")], os.path.join(folder, "prometheus.log"))
        listens = common.await_true(lambda: re.search(r'msg="Listening on" address=(127\.0\.0\.1:[0-9]+)', self.output()), 30)
        if not listens:
            self.end()
            raise RuntimeError("Prometheus does not start:\n" + common.tail(self.log))
        self._url = "http://" + listens[1]
        self._was_ready = False

    def set_targets(self, job, tasks):
        """With the labels of `divvyctl gen prometheus`. A task that has another port is the same instance."""
        entries = [{"targets": [task.address], "labels": {"job": job, "role": task.role, "task": str(task.index), "instance": task.name}}
                   for task in tasks.values()]
        if json.dumps(entries) != common.read(self._targets):
            common.write(self._targets, json.dumps(entries))

    def ask(self, path, **query):
        """The data of an answer, or None until Prometheus is ready. RuntimeError: it does not answer any more.
        Without this error a Prometheus that has died would be taken for one in which no alert fires."""
        try:
            with urllib.request.urlopen("%s/api/v1/%s?%s" % (self._url, path, urllib.parse.urlencode(query)), timeout=10) as answer:
                data = json.load(answer)["data"]
        except OSError as error:
            if self._was_ready:
                raise RuntimeError("Prometheus does not answer any more: %s\n%s" % (error, common.tail(self.log))) from error
            return None
        self._was_ready = True
        return data

    def value(self, expression):
        """The samples of an instant query: their labels and values."""
        data = self.ask("query", query=expression)
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]] if data else []

    def healthy_targets(self):
        """(those that are up, the errors of the others)"""
        active = (self.ask("targets") or {"activeTargets": []})["activeTargets"]
        return ([t for t in active if t["health"] == "up"], ["%s: %s" % (t["scrapeUrl"], t["lastError"]) for t in active if t["health"] != "up"])

    def firing(self):
        """The names of the alerts that fire now."""
        alerts = (self.ask("alerts") or {"alerts": []})["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def fired(self):
        """The names of the alerts that have fired since Prometheus was started."""
        return {labels["alertname"] for labels, _ in self.value('count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))')}

    def await_firing(self, alert, seconds, meanwhile=lambda: None):
        """The seconds until the alert fires; None: it did not within `seconds`. Calls `meanwhile` again and again."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            meanwhile()
            if alert in self.firing():
                return time.monotonic() - began
            time.sleep(0.05)
        return None
