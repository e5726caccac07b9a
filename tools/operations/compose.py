"""The file of `divvyctl gen compose --monitoring`: Prometheus reaches all tasks, and the volume of
checkpoints survives `down` and `up`. deploy/compose/test kills containers. Needs root and a container
engine: without one, tools/with_docker starts one."""
import json
import os
import re
import shutil
import subprocess
import sys

from built import built

from . import common

# Of 45 steps each: more than the test needs.
_EPOCHS = 20000
_TASKS = 5


def _run(*words, check=True, **options):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False, **options)
    if check and done.returncode != 0:
        raise RuntimeError("%s: %s" % (" ".join(words[:3]), done.stdout[-3000:]))
    return done.stdout


class Project:
    def __init__(self, folder):
        self._name = "divvyoperations%d" % os.getpid()
        self._file = os.path.join(folder, "compose.yml")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.compose("down", "--volumes", "--timeout", "5", check=False)

    def compose(self, *words, check=True):
        return _run("docker-compose", "--file", self._file, "--project-name", self._name, *words, check=check)

    def logs(self, service):
        return self.compose("logs", "--no-color", service, check=False)

    def address(self, service):
        container = self.compose("ps", "--quiet", service).strip()
        networks = json.loads(_run("docker", "inspect", "--format", "{{json .NetworkSettings.Networks}}", container))
        return next(iter(networks.values()))["IPAddress"]


def _targets(project):
    """Those of Prometheus, asked from where the containers are."""
    url = "http://%s:9090/api/v1/targets" % project.address("prometheus")
    enter = ["nsenter", "--net=" + os.environ["DOCKER_NETNS"]] if os.environ.get("DOCKER_NETNS") else []
    code = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"
    done = subprocess.run([*enter, sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, check=False)
    return json.loads(done.stdout)["data"]["activeTargets"] if done.returncode == 0 else []


def _steps(project):
    found = re.findall(r"step ([0-9,]+) ", project.logs("chief-0"))
    return int(found[-1].replace(",", "")) if found else 0


def _write_files(folder, bin_folder, tags):
    divvyctl = os.path.join(bin_folder, "tools/divvyctl")
    certs = os.path.join(folder, "certs")
    _run(divvyctl, "certs", "--out=" + certs, "--ps=2", "--workers=2")
    for name in os.listdir(certs):
        if name != "ca.key":
            shutil.chown(os.path.join(certs, name), 65532, 65532)
    text = _run(divvyctl, "gen", "compose", "--monitoring", "--ps=2", "--workers=2", "--image=" + tags[0], "--tls_dir=" + certs, "--",
                "/digits", "--data=/data/digits.csv.gz", "--epochs=%d" % _EPOCHS, "--checkpoint_every=2s", "--report_every=1s")
    common.write(os.path.join(folder, "compose.yml"), text.replace("divvy-prometheus:1", tags[1]))
    common.write(os.path.join(folder, "prometheus.yml"),
                 _run(divvyctl, "gen", "prometheus", "--of=compose", "--name=digits", "--ps=2", "--workers=2", "--tls_dir=/certs",
                      "--rules=/etc/prometheus/alerts.yaml"))


def _try(checks, project):
    project.compose("up", "--detach")
    up = common.await_true(lambda: len([t for t in _targets(project) if t["health"] == "up"]) == _TASKS, 90, 1)
    targets = _targets(project)
    checks.record("Prometheus reaches all %d tasks" % _TASKS, up and len(targets) == _TASKS,
                  "%s\n%s" % ([(t["scrapeUrl"], t["health"], t["lastError"]) for t in targets], project.logs("prometheus")[-2000:]))
    common.await_true(lambda: _steps(project) > 500, 60, 0.5)
    before = _steps(project)
    checks.record("the job trains (%d steps)" % before, before > 500, project.logs("chief-0")[-3000:])
    project.compose("down", "--timeout", "60")
    project.compose("up", "--detach")
    common.await_true(lambda: _steps(project) > before, 90, 0.5)
    logs = project.logs("chief-0")
    checks.record("after `down` and `up` it continues from its checkpoint (%d steps)" % _steps(project),
                  _steps(project) > before and re.search(r"ckpt-[0-9]+-[0-9]+", logs), logs[-3000:])
    first = re.search(r"step ([0-9,]+) ", logs)
    checks.record("and not from the beginning", first and int(first[1].replace(",", "")) >= before / 2, logs[:3000])


def main(checks):
    if not shutil.which("docker") or subprocess.run(["docker", "info"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        if os.environ.get("DOCKER_NETNS"):
            raise common.Skipped("no container engine")
        _again_with_an_engine(checks)
        return
    common.debian("usr/bin/prometheus")
    bin_folder = built("//tools:divvyctl")
    tags = ["divvy-digits:operations%d" % os.getpid(), "divvy-prometheus:operations%d" % os.getpid()]
    with common.scratch() as folder:
        os.chmod(folder, 0o755)
        try:
            _run("deploy/container/build", tags[0], "//examples:digits", "examples/data/digits.csv.gz", cwd=common.ROOT)
            _run("deploy/prometheus/build", tags[1], cwd=common.ROOT)
            _write_files(folder, bin_folder, tags)
            with Project(folder) as project:
                _try(checks, project)
        finally:
            _run("docker", "image", "rm", "--force", *tags, check=False)


def _again_with_an_engine(checks):
    """Runs this part again where tools/with_docker has started an engine, and counts what it says."""
    done = subprocess.run([os.path.join(common.ROOT, "tools/with_docker"), os.path.join(common.ROOT, "tools/operations_test"), "compose"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, universal_newlines=True, check=False)
    print(done.stdout, end="")
    if done.returncode == 77:
        raise common.Skipped((re.findall(r"^SKIP: (.*)$", done.stdout, re.M) or ["no container engine"])[0])
    counts = re.findall(r"^([0-9]+) passed, ([0-9]+) failed$", done.stdout, re.M)
    if not counts:
        raise RuntimeError("the part ended with %d" % done.returncode)
    checks.passed += int(counts[-1][0])
    checks.failed += int(counts[-1][1])
