"""Chromium opens /statusz and /tracez of a cluster that trains, and after tasks were killed."""
import html
import os
import re
import signal
import subprocess
import urllib.request

from built import built

from . import common
from .cluster import LaunchedCluster

PROGRAM = "examples/digits"
SCREENSHOT_BYTES = 150_000


class Browser:
    def __init__(self, folder):
        self._program = common.debian("usr/lib/chromium/chromium", "chromium")
        self._words = [self._program, "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                       "--user-data-dir=" + os.path.join(folder, "profile"), "--virtual-time-budget=2000"]
        # Chromium's sandbox refuses root.
        if os.geteuid() == 0:
            self._words.append("--no-sandbox")

    def _run(self, *words):
        done = subprocess.run(self._words + list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=common.unpacked_environment(), timeout=120, universal_newlines=True, check=False)
        if done.returncode != 0:
            raise RuntimeError("chromium: " + "\n".join(done.stderr.splitlines()[-5:]))
        return done.stdout

    def document(self, url):
        """The page as Chromium has understood it."""
        return self._run("--dump-dom", url)

    def screenshot(self, url, path, width=1150, height=1100):
        self._run("--window-size=%d,%d" % (width, height), "--screenshot=" + path, url)


def text_of(document):
    """What a person reads: without tags and styles, one space between words."""
    bare = re.sub(r"<(style|script|title)\b.*?</\1>", " ", document, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", bare))).strip()


class Page:
    """The text of a page, and what must be in it."""

    def __init__(self, checks, name, document):
        self._checks, self._name, self.document, self.text = checks, name, document, text_of(document)

    def shows(self, what, pattern):
        self._checks.record("%s shows %s" % (self._name, what), re.search(pattern, self.text), self.text[:3000])
        return self


def _look(checks, folder, name, browser, task, path="/statusz"):
    """The page as Chromium gets it from the task. That the page is well formed is asked of a copy,
    because the next page may have other rows."""
    page = Page(checks, name, browser.document(task.url(path)))
    with urllib.request.urlopen(task.url(path), timeout=10) as answer:
        served = answer.read().decode()
    copy = os.path.join(folder, "page.html")
    common.write(copy, served)
    seen = browser.document("file://" + copy)

    def elements(text):
        return {element: len(re.findall(r"<%s\b" % element, text)) for element in ("table", "tr", "td", "svg", "rect", "h1", "h2", "h3", "details")}
    # Chromium repairs a page that is not well formed, and has other elements then.
    checks.record("%s is well formed" % name, elements(served) == elements(seen), "%s, and Chromium sees %s" % (elements(served), elements(seen)))
    checks.record(name + " loads nothing else", not re.findall(r"(?:src|href)=\"?https?:", page.document), page.document[:2000])
    return page


def _await_text(browser, task, pattern):
    common.await_true(lambda: re.search(pattern, text_of(browser.document(task.url("/statusz")))), 60)


def main(checks, screenshot=None):
    """`screenshot`: [the path of a PNG to write]."""
    common.debian("usr/lib/chromium/chromium", "chromium")
    bin_folder = built("//examples:digits", "//tools:divvyctl")
    with common.scratch() as folder, LaunchedCluster(
            folder, bin_folder, PROGRAM, ["--epochs=1000000", "--data=" + os.path.join(common.ROOT, "examples/data/digits.csv.gz"),
                                          "--checkpoint_every=5s", "--report_every=1s", "--memory_limit_bytes=100000000"],
            workers=3, launch_flags=["--max_restarts=50"]) as cluster:
        browser = Browser(folder)
        chief = cluster.all_tasks()[("chief", 0)]
        cluster.wait_for("step ")
        common.await_true(lambda: "steps/s:" in text_of(browser.document(chief.url("/statusz"))), 60)
        page = _look(checks, folder, "/statusz of a job that trains", browser, chief)
        page.shows("its state", r"^chief: running\b").shows("the steps and their rate", r"\bsteps [0-9]+ training, [0-9]+ read-only; [0-9.]+/s")
        page.shows("checkpoints", r"\bcheckpoints [0-9]+ made, 0 failed").shows("no recovery", r"\brecoveries 0 of workers, 0 of parameter servers, 0 rewinds")
        for task, load in (("ps 0", "shards"), ("ps 1", "shards"), ("worker 0", "steps/s"), ("worker 1", "steps/s"), ("worker 2", "steps/s")):
            # Its state, since when if that is not just now, and its load.
            page.shows(task, r"\b%s [a-z]+ (?:[0-9.]+ m?s )?[0-9.]+ %s" % (task, load))
        page.shows("the pictures of the last minutes", r"steps/s: .* examples/s: .* loss: .* rows/s of all ps: ")
        checks.record("no warning is shown", " Warnings " not in page.text, page.text)

        cluster.signal("worker", 2, signal.SIGKILL)
        _await_text(browser, chief, r"recoveries 1 of workers")
        cluster.signal("ps", 1, signal.SIGKILL)
        _await_text(browser, chief, r"1 of parameter servers, 1 rewinds.* ps 1 ready .* worker 2 [a-z]+ (?:[0-9.]+ m?s )?[0-9.]+ steps/s")
        page = _look(checks, folder, "/statusz after two kills", browser, chief)
        page.shows("its state", r"^chief: running\b").shows("the next epoch", r"\bepoch 2\b")
        page.shows("the recoveries", r"\brecoveries 1 of workers, 1 of parameter servers, 1 rewinds, [0-9]+ steps run again")
        page.shows("the warning of the coordinator", r"Warnings .*ps 1 \(unix:\S+\) restarted: the variables it held are gone")
        for role, shows in (("ps", r"^ps 0: ready\b"), ("worker", r"^worker 0: [a-z]+\b")):
            _look(checks, folder, "/statusz of " + role + " 0", browser, cluster.tasks()[(role, 0)]).shows("its state", shows)
        _look_at_traces(checks, folder, browser, cluster)
        if screenshot:
            _picture(checks, browser, chief.url("/statusz"), screenshot[0])
            _picture(checks, browser, chief.url("/tracez"), os.path.join(os.path.dirname(screenshot[0]), "tracez.png"), height=700)


def _look_at_traces(checks, folder, browser, cluster):
    tasks = cluster.all_tasks()
    page = _look(checks, folder, "/tracez of the chief", browser, tasks[("chief", 0)], "/tracez")
    step = r"\btraining step [0-9]+, worker [0-2]: [0-9.]+ m?u?s, ok "
    page.shows("steps with their times", step).shows("what a step did", r"\bcompute\b.* \bpull\b.* \bcommit\b")
    page.shows("the id that other roles know", r"traceparent 00-[0-9a-f]{32}-[0-9a-f]{16}-01; entry [0-9]+")
    checks.record("/tracez draws the times", page.document.count('<rect class="compute"') > 0, page.document[:2000])
    _look(checks, folder, "/tracez of worker 0", browser, tasks[("worker", 0)], "/tracez").shows("its steps", r"\btraining step [0-9]+")
    _look(checks, folder, "/tracez of ps 0", browser, tasks[("ps", 0)], "/tracez").shows(
        "pulls and commits, with the trace ids of their steps", r"\bcommit [0-9.]+ (?:us|ms|s) .*\b[0-9a-f]{32}\b")


def _picture(checks, browser, url, path, height=1100):
    browser.screenshot(url, path, height=height)
    size = os.path.getsize(path)
    checks.record("%s has %d bytes" % (os.path.basename(path), size), 0 < size <= SCREENSHOT_BYTES, "at most %d" % SCREENSHOT_BYTES)
