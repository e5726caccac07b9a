"""The report. It is rewritten after each step, so that an early end loses nothing."""
import io
import json
import os
import tarfile

LOG_BYTES = 1 << 20  # the end of each run's output
MEMORY = "device memory"  # the start of the names of figures that are no rates


class Report:
    """REPORT/report.md, report.json, and the output of all runs in logs.tar.gz."""

    def __init__(self, folder, facts, commit):
        self.folder = folder
        self.facts, self.commit = facts, commit
        self.runs, self.notes, self.figures, self.beside = [], [], [], {}
        self.logs = {}
        os.makedirs(folder, exist_ok=True)
        self.write()

    def add(self, run):
        self.runs.append(run)
        if run.output:
            self.logs[run.name] = run.output[-LOG_BYTES:]
        self.write()

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            self.write()

    @property
    def failed(self):
        return [run.name for run in self.runs if run.state == "failed"]

    @property
    def not_run(self):
        return [run.name for run in self.runs if run.state == "not run"]

    def verdict(self):
        if not self.runs:
            return "nothing ran"
        parts = []
        if self.failed:
            parts.append("failed: " + ", ".join(self.failed))
        if self.not_run:
            parts.append("not run: " + ", ".join(self.not_run))
        if all(run.state == "unsupported" for run in self.runs):
            parts.append("nothing checked")
        return "; ".join(parts) or "all well"

    def as_json(self):
        return {"verdict": self.verdict(), "machine": self.facts, "commit": self.commit,
                "runs": [run.as_json() for run in self.runs], "notes": self.notes,
                "figures": self.figures, "beside_pytorch": self.beside, "failed": self.failed,
                "not_run": self.not_run}

    def write(self):
        self._replace("report.json", json.dumps(self.as_json(), indent=2).encode())
        self._replace("report.md", self.markdown().encode())
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name, text in self.logs.items():
                data = text.encode(errors="replace")
                entry = tarfile.TarInfo("logs/%s.log" % name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        self._replace("logs.tar.gz", packed.getvalue())

    def _replace(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path + ".new", "wb") as file:
            file.write(data)
        os.replace(path + ".new", path)

    def markdown(self):
        facts = self.facts
        lines = ["# GPU suite: %s" % "; ".join(facts["gpus"]), "",
                 "%s, commit %s, %d cores, glibc %s, memory pools: %s." % (
                     facts["date"], self.commit, facts["cores"], facts["glibc"],
                     facts["memory_pools"]), "", "**%s**" % self.verdict(), "", "## Runs", "",
                 "| run | state | passed | failed | skipped | exit code | seconds |",
                 "|---|---|---|---|---|---|---|"]
        for run in self.runs:
            lines.append("| %s | %s | %d | %d | %d | %s | %.1f |" % (
                run.name, run.state, run.passed, len(run.failed), len(run.skipped),
                "" if run.code is None else run.code, run.seconds))
        for run in self.runs:
            lines += ["- %s: **%s**" % (run.name, case) for case in run.failed]
        lines += [""] + ["%s." % note for note in self.notes]
        return "\n".join(lines + self._speed() + self._beside_pytorch()) + "\n"

    def _speed(self):
        if not self.figures:
            return []
        lines = ["", "## Speed", "", "| what | rate | ceiling | of it |", "|---|---|---|---|"]
        for figure in self.figures:
            ceiling = ""
            if "ceiling" in figure:
                ceiling = "%s: %.4g %s" % (figure["ceiling"], figure["ceiling_rate"],
                                           figure["unit"])
            lines.append("| %s | %.4g %s | %s | %s |" % (
                figure["what"], figure["rate"], figure["unit"], ceiling, figure.get("ratio", "")))
        return lines

    def _beside_pytorch(self):
        if not self.beside:
            return []
        lines = ["", "## Beside PyTorch (eager), in turns", "",
                 "| what | Divvy | PyTorch | ratio |", "|---|---|---|---|"]
        for name, (ours, theirs) in self.beside.items():
            what = name + (" (less is better)" if name.startswith(MEMORY) else "")
            lines.append("| %s | %.4g | %.4g | %.2f |" % (what, ours, theirs, ours / theirs))
        return lines
