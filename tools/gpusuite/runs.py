"""Runs the programs of the pack, within a budget."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from gpusuite import machine

LEAST_S = 3  # of the budget must be left for a run to begin
TEST_S, MEMCHECK_S, CHECK_S, BENCH_S, REBUILD_S = 60, 150, 120, 120, 240
PEER_ASKED_S = 60  # to find out whether there is a PyTorch that sees a GPU
SOAK_END_S = 60  # from the last kill of a soak to the end of the job
UNSUPPORTED = "Device not supported"  # printed by compute-sanitizer, under gVisor for example
# Kernels that use shared memory: rows wider than a warp computes, reductions, sums of duplicates.
SHARED_MEMORY = {
    "backend_test_by_library": "GpuTest.*:*Row*:*Sums*:*Softmax*:*Duplicates*:*Scatter*"}
EVERY_CASE = {"backend_test_by_library": "*"}
# Takes each block from the driver, and returns it when it is freed. Otherwise a kernel that reads
# or writes beyond a block, or reads it before it was written, would hit memory that the process
# holds.
PLAIN_MEMORY = {"DIVVY_GPU_PLAIN_MEMORY": "1"}
# For each of the sanitizer's tools: the tests and cases (None: all), the time limit, the
# environment.
CHECKS = (("racecheck", SHARED_MEMORY, CHECK_S, {}), ("synccheck", SHARED_MEMORY, CHECK_S, {}),
          ("initcheck", EVERY_CASE, CHECK_S, PLAIN_MEMORY),
          ("memcheck", None, MEMCHECK_S, PLAIN_MEMORY))
KERNEL_SECTION = "Section: "  # the start of each of ncu's tables of a kernel


class Run:
    """The result of one command. state: ok, failed, not run, unsupported."""

    def __init__(self, name, state="not run", code=None, output="", seconds=0.0):
        self.name, self.state, self.code = name, state, code
        self.output, self.seconds = output, seconds
        self.passed, self.failed, self.skipped = 0, [], []

    def as_json(self):
        return {"name": self.name, "state": self.state, "exit_code": self.code,
                "passed": self.passed, "failed": self.failed, "skipped": self.skipped,
                "seconds": round(self.seconds, 1)}

    def fail(self, why):
        self.state = "failed"
        self.failed.append(why)


def bounded(command, limit_s, environment):
    """(exit code, output) of a command. Stops it, and all that it started, after `limit_s`."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, env=environment,
                                   start_new_session=True)
    except OSError as error:
        return 127, "%s: %s" % (command[0], error.strerror)
    try:
        output, _ = process.communicate(timeout=limit_s)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return 124, output.decode(errors="replace") + "\nstopped after %d s\n" % limit_s


class Suite:
    """A pack in a folder, on a machine with a GPU."""

    def __init__(self, folder, contents, report, budget_s, only=""):
        """`only`: a regular expression. Tests' runs whose names do not match are left out."""
        self.folder, self.contents, self.report = folder, contents, report
        self.ends, self.only = time.monotonic() + budget_s, only
        required = contents.get("require", "1")
        self.environment = dict(os.environ, DIVVY_REQUIRE_GPU=required,
                                DIVVY_GOLDEN_DIR=os.path.join(folder, "golden"))
        self.environment.pop("DIVVY_CUDA_LIBRARY", None)  # the library is beside the binaries

    def wants(self, name):
        return re.search(self.only, name) is not None

    def left_s(self):
        return self.ends - time.monotonic()

    def binary(self, name):
        return os.path.join(self.folder, "bin", name)

    def run(self, name, command, limit_s, environment=None):
        """Runs it for at most `limit_s`, or the rest of the budget. Does not report it yet."""
        if self.left_s() < LEAST_S:
            return Run(name)
        began = time.monotonic()
        code, output = bounded(command, min(limit_s, self.left_s()),
                               environment or self.environment)
        run = Run(name, "ok" if code == 0 else "failed", code, output, time.monotonic() - began)
        if code == 124:
            ended = self.left_s() <= 0
            run.failed.append("stopped after %.0f s%s" % (
                run.seconds, ", when the budget ended (--budget_s)" if ended else ""))
        return run

    def done(self, run):
        self.report.add(run)
        print("%-40s %s" % (run.name, run.state), flush=True)
        return run

    # ---- tests ----------------------------------------------------------------------------------

    def run_test(self, test, label="", prefix=(), cases=None, limit_s=TEST_S, more=()):
        """`cases`: a filter for googletest in place of the test's own arguments. `more`: additions
        to the environment."""
        with tempfile.TemporaryDirectory() as scratch:
            results = os.path.join(scratch, "cases.json")
            command = [*prefix, self.binary(test["binary"]), *test["args"]]
            command += ["--gtest_filter=" + cases] if cases else []
            environment = dict(self.environment, TEST_TMPDIR=scratch, **dict(more))
            run = self.run(label + test["name"], command + ["--gtest_output=json:" + results],
                           limit_s, environment)
            if run.state != "not run":
                judge(run, results, prefix)
        return run

    def run_tests(self):
        """Runs the library's own test first. False: it failed, so all others would fail too."""
        tests = sorted(self.contents["tests"], key=lambda test: test["name"] != "library_test")
        tests = [test for test in tests if self.wants(test["name"])]
        for i, test in enumerate(tests):
            run = self.run_test(test)
            if i == 0 and test["name"] == "library_test" and run.state == "failed":
                self.done(run)
                run = self.rebuilt(test)
                if run is None or run.state != "ok":
                    for other in tests[1:]:
                        self.done(Run(other["name"]))
                    return False
            self.done(run)
            self.run_again(test, run)
        self.run_in_plain_memory()
        return True

    def run_in_plain_memory(self):
        """Runs as on a machine whose CUDA has no memory pools."""
        for test in self.contents["tests"]:
            name = "plain_memory_" + test["name"]
            if test["name"] in EVERY_CASE and self.wants(name):
                self.done(self.run_test(test, "plain_memory_", more=PLAIN_MEMORY))

    def rebuilt(self, test):
        """Runs the test again with a library that was built here; None: it cannot be built."""
        script = os.path.join(self.folder, "rebuild")
        if not (os.path.exists(script) and machine.tool("nvcc")):
            self.report.note("the library's own test failed, and it cannot be built here: "
                             "there is no nvcc")
            return None
        build = self.done(self.run("rebuild", [script], REBUILD_S))
        if build.state != "ok":
            return None
        self.report.note("libdivvy_cuda.so was built again on this machine")
        return self.run_test(test, "rebuilt_")

    def run_again(self, test, failed):
        """Runs failed cases again, so that each error is reported by the call that caused it."""
        cases = [case for case in failed.failed if "." in case and " " not in case]
        if failed.state != "failed" or not cases:
            return
        for name, value in (("CUDA_LAUNCH_BLOCKING", "1"), ("DIVVY_GPU_SYNC", "1")):
            self.environment[name] = value
        self.done(self.run_test(test, "again_", cases=":".join(cases[:10])))
        for name in ("CUDA_LAUNCH_BLOCKING", "DIVVY_GPU_SYNC"):
            del self.environment[name]

    # ---- the sanitizer --------------------------------------------------------------------------

    def run_sanitizer(self, path):
        everything = {test["name"]: None for test in self.contents["tests"]}
        for tool, cases, limit_s, more in CHECKS:
            cases = everything if cases is None else cases
            prefix = [path, "--tool", tool, "--target-processes", "all", "--report-api-errors",
                      "no", "--error-exitcode", "9"]
            for test in self.contents["tests"]:
                if test["name"] in cases and self.wants("%s_%s" % (tool, test["name"])):
                    self.done(self.run_test(test, tool + "_", prefix, cases[test["name"]], limit_s,
                                            more))
        if any(run.state == "unsupported" for run in self.report.runs):
            self.report.note('compute-sanitizer says "%s" here: what it ran is neither passed nor '
                             "failed" % UNSUPPORTED)

    # ---- benchmarks -----------------------------------------------------------------------------

    def run_benchmarks(self, turns):
        """Runs our benchmarks and the peer in turns. Reports the medians of common figures."""
        ours, peers = [], []
        python, peer = machine.python3(), os.path.join(self.folder, "torch_peer.py")
        has_peer = self.has_pytorch(python)
        for turn in range(turns if has_peer else 1):
            for bench in self.contents["benchmarks"]:
                command = [self.binary(bench["binary"]), "--format=json", *bench["flags"]]
                run = self.run("bench_%s_%d" % (bench["name"], turn), command, BENCH_S)
                ours += judge_figures(run, bench.get("suffix", ""))
                self.done(run)
            if has_peer:
                # With the machine's own environment, without anything of the pack.
                run = self.run("torch_%d" % turn, [python, peer], BENCH_S, dict(os.environ))
                peers += judge_figures(run, "")
                self.done(run)
            self.report.figures, self.report.beside = ours, beside_the_peer(ours, peers)
            self.report.write()

    def has_pytorch(self, python):
        asked = "import torch, sys; sys.exit(not torch.cuda.is_available())"
        limit_s = min(PEER_ASKED_S, self.left_s())
        if limit_s >= LEAST_S and bounded([python, "-c", asked], limit_s, dict(os.environ))[0] == 0:
            return True
        self.report.note("python3 has no PyTorch that sees a GPU: nothing was measured beside it")
        return False

    def run_soak(self):
        """Runs a cluster whose workers share the GPU, and kills tasks of all roles again and again.
        The sum must be exact. It lasts as long as the pack says, or as the budget allows."""
        kills_s = min(self.contents["soak_s"], self.left_s() - SOAK_END_S)
        if kills_s <= 0:
            self.done(Run("soak"))
            return
        with tempfile.TemporaryDirectory() as scratch:
            command = [self.binary("chaos"), "--program=" + self.binary("counter_program"),
                       "--gpus=all", "--ps=2", "--workers=2", "--only_kills",
                       "--minutes=%.3f" % (kills_s / 60), "--directory=" + scratch]
            run = self.run("soak", command, kills_s + SOAK_END_S)
        lines = [line for line in run.output.splitlines() if line.startswith("chaos: ")]
        if run.state == "ok" and lines and "PASSED" in lines[-1]:
            run.passed = 1
            self.report.note("soak: " + lines[-2][len("chaos: "):])
        elif run.state != "not run":
            run.fail(lines[-1] if lines else "(it said nothing)")
        self.done(run)

    def run_profile(self, path):
        """Runs Nsight Compute on the kernels of reductions, triangles and duplicates."""
        for test in self.contents["tests"]:
            if test["name"] in SHARED_MEMORY:
                command = [path, "--launch-count", "200", "--section", "SpeedOfLight", "--section",
                           "LaunchStats", self.binary(test["binary"]),
                           "--gtest_filter=*Sums*:*Triangles*:*Duplicates*"]
                run = self.run("profile_" + test["name"], command, MEMCHECK_S)
                if run.state == "ok" and KERNEL_SECTION not in run.output:
                    run.fail("(no kernel was profiled)")
                self.done(run)


def judge(run, results, prefix):
    """Adds googletest's cases. A binary that passed nothing or skipped something has failed."""
    if prefix and run.code != 0 and UNSUPPORTED in run.output:
        run.state = "unsupported"
        return
    try:
        with open(results, encoding="utf-8") as file:
            count(json.load(file), run)
    except (OSError, ValueError):
        run.fail("(no cases: it ended early, with %s)" % run.code)
        return
    # Cases of TensorFlow's answers from which Divvy deviates on purpose are skipped everywhere.
    skipped = [case for case in run.skipped if not case.startswith("golden.")]
    for case in skipped:
        run.fail("%s (skipped, though a GPU is required)" % case)
    if run.passed == 0 and not run.failed:
        run.fail("(no case passed)")
    if run.failed:
        run.state = "failed"


def count(results, run):
    for suite in results.get("testsuites", []):
        for case in suite.get("testsuite", []):
            name = "%s.%s" % (suite["name"], case["name"])
            if case.get("failures"):
                run.failed.append(name)
            elif case.get("result") == "SKIPPED":
                run.skipped.append(name)
            elif case.get("status") == "RUN":
                run.passed += 1


def judge_figures(run, suffix):
    """The lines that are JSON objects. A benchmark without one has failed. `suffix`: added to the
    names of figures that the peer does not measure."""
    figures = []
    for line in run.output.splitlines():
        try:
            figure = json.loads(line)
        except ValueError:
            continue
        if isinstance(figure, dict) and "what" in figure and "rate" in figure:
            figures.append(dict(figure, what=figure["what"] + suffix, work=figure["what"]))
    if run.state == "ok" and not figures:
        run.fail("(no figure)")
    return figures


def beside_the_peer(ours, peers):
    """Rates that both have measured: {name: (ours, theirs)}, as medians."""
    pairs = {}
    for name, work in sorted({(figure["what"], figure["work"]) for figure in ours}):
        mine = [figure["rate"] for figure in ours if figure["what"] == name]
        theirs = [figure["rate"] for figure in peers if figure["work"] == work]
        if theirs:
            pairs[name] = (median(mine), median(theirs))
    return pairs


def median(values):
    return sorted(values)[len(values) // 2]
