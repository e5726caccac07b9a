"""promtool's judgement of the alerts, their cases, the configuration and the dashboard in deploy/."""
import json
import os
import shutil
import subprocess

import yaml

from . import common
from .prometheus import shortened_rules

PROMETHEUS = os.path.join(common.ROOT, "deploy/prometheus")


class Promtool:
    def __init__(self, checks):
        self._checks = checks
        self._program = os.environ.get("PROMTOOL") or common.debian("usr/bin/promtool")

    def check(self, name, *words, text=None):
        """Records whether promtool is content with the files of `words`, or with `text`."""
        done = subprocess.run([self._program, *words], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        self._checks.record(name, done.returncode == 0, done.stdout)


def expressions(dashboard):
    """As Grafana would ask them: its variables replaced."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$job", "digits").replace("$__rate_interval", "1m")


def _dashboard(promtool, folder):
    dashboard = json.loads(common.read(os.path.join(common.ROOT, "deploy/grafana/divvy.json")))
    rules = [{"record": "divvy:panel%d" % i, "expr": expression} for i, expression in enumerate(expressions(dashboard))]
    path = os.path.join(folder, "panels.yaml")
    common.write(path, yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool.check("%d expressions of the dashboard" % len(rules), "check", "rules", path)


def _configuration(promtool, folder):
    """The files of the certificates are not there."""
    path = os.path.join(folder, "scrape.yaml")
    shutil.copy(os.path.join(PROMETHEUS, "alerts.yaml"), folder)
    shutil.copy(os.path.join(PROMETHEUS, "scrape.yaml"), path)
    promtool.check("scrape.yaml", "check", "config", "--syntax-only", path)


def main(checks):
    promtool = Promtool(checks)
    promtool.check("alerts.yaml", "check", "rules", os.path.join(PROMETHEUS, "alerts.yaml"))
    promtool.check("alerts_test.yaml", "test", "rules", os.path.join(PROMETHEUS, "alerts_test.yaml"))
    with common.scratch() as folder:
        path = os.path.join(folder, "shortened.yaml")
        common.write(path, yaml.safe_dump(shortened_rules()))
        promtool.check("the copy of alerts.yaml in which time runs faster", "check", "rules", path)
        _configuration(promtool, folder)
        _dashboard(promtool, folder)
