#!/usr/bin/env python3
"""Tests gpu_suite with binaries that pass, fail, crash, skip and hang, on a machine whose GPU,
sanitizer, PyTorch and libraries are scripts and empty files."""
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
SUITE = os.path.join(HERE, "gpu_suite")
sys.path.insert(0, HERE)
from gpusuite import SuiteError, machine, pack, sources  # noqa: E402

TEST = """#!/bin/bash
env >"$0.environment"
for arg; do [[ $arg == --gtest_output=json:* ]] && out=${arg#--gtest_output=json:}; done
cat >"$out" <<'END'
%s
END
exit %d
"""
# The suite asks it whether CUDA answers, for PyTorch, and for the folders of Python's wheels.
PYTHON = """#!/bin/bash
env >"$0.environment"
case "$*" in
  *libcuda*) echo %(pools)s ;;
  *torch_peer*) echo '{"what": "steps", "rate": 20}'
                echo '{"what": "device memory, steps", "rate": 10}' ;;
  *"import torch"*) %(torch)s; exit %(without_torch)d ;;
  *"import site"*) echo "%(site)s" ;;
esac
"""
FIGURE = ('{"what": "steps", "rate": 30, "unit": "steps/s", "ceiling": "cuBLAS", '
          '"ceiling_rate": 40, "ratio": 0.75}')


def cases(suite="Device", **results):
    """googletest's JSON of one suite with these cases."""
    listed = []
    for name, result in results.items():
        case = {"name": name, "status": "RUN",
                "result": "SKIPPED" if result == "skipped" else "COMPLETED"}
        if result == "failed":
            case["failures"] = [{"failure": "wrong"}]
        listed.append(case)
    return json.dumps({"testsuites": [{"name": suite, "testsuite": listed}]})


class Machine(unittest.TestCase):
    """A folder with a pack, and a folder that is PATH."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.path = os.path.join(self.folder, "path")
        os.makedirs(os.path.join(self.folder, "bin", "lib"))
        os.mkdir(self.path)
        self.suite = {"commit": "abc", "require": "1", "glibc": "2.2", "needs": [], "tests": [],
                      "benchmarks": [], "soak_s": 2}
        self.script("path/nvidia-smi", "#!/bin/bash\necho 'A GPU, 580.65, 3 MiB'\n")
        self.python()
        self.script("path/ldd", "#!/bin/bash\n")
        self.script("path/ldconfig", "#!/bin/bash\n")

    def script(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def python(self, pools="yes", without_torch=1, site="/nowhere", torch=":"):
        self.script("path/python3", PYTHON % {"pools": pools, "without_torch": without_torch,
                                              "site": site, "torch": torch})

    def add_test(self, name, results, code=0):
        self.script("bin/" + name, TEST % (results, code))
        self.suite["tests"].append({"name": name, "binary": name, "args": []})

    def add_benchmark(self, name="gpu", line=FIGURE, suffix=""):
        self.script("bin/" + name, "#!/bin/bash\necho '%s'\n" % line)
        self.suite["benchmarks"].append({"name": name, "binary": name, "flags": [],
                                         "suffix": suffix})

    def run_suite(self, *flags, **environment):
        with open(os.path.join(self.folder, "suite.json"), "w", encoding="utf-8") as file:
            json.dump(self.suite, file)
        self.report = os.path.join(self.folder, "report")
        command = [sys.executable, SUITE, "--binaries=" + self.folder, "--report=" + self.report]
        given = {"PATH": self.path + ":/usr/bin:/bin", "CUDA_HOME": self.path}
        done = subprocess.run(command + list(flags), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True,
                              env=dict(given, **environment))
        self.output, self.code = done.stdout, done.returncode
        if not os.path.exists(os.path.join(self.report, "report.json")):
            return None
        with open(os.path.join(self.report, "report.md"), encoding="utf-8") as file:
            self.page = file.read()
        with open(os.path.join(self.report, "report.json"), encoding="utf-8") as file:
            return json.load(file)

    def environment_of(self, binary):
        path = os.path.join(self.folder, "bin", binary + ".environment")
        with open(path, encoding="utf-8") as file:
            return dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)


class TestsTest(Machine):
    def test_counts_cases(self):
        self.add_test("ops_test", cases(Adds="ok", Multiplies="ok"))
        report = self.run_suite("--steps=tests")
        self.assertEqual(self.code, 0, self.output)
        self.assertEqual(report["machine"]["gpus"], ["A GPU, 580.65, 3 MiB"])
        self.assertEqual([(run["name"], run["passed"]) for run in report["runs"]],
                         [("ops_test", 2)])
        self.assertIn("**all well**", self.page)

    def test_a_failed_case_is_named_fails_the_suite_and_runs_again_with_errors_at_their_calls(self):
        self.add_test("ops_test", cases(Adds="failed", Multiplies="ok"), 1)
        report = self.run_suite("--steps=tests")
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual(report["failed"], ["ops_test", "again_ops_test"])
        self.assertIn("- ops_test: **Device.Adds**", self.page)
        self.assertEqual(self.environment_of("ops_test")["CUDA_LAUNCH_BLOCKING"], "1")

    def test_a_test_that_ends_without_its_cases_is_a_failure(self):
        self.script("bin/crashes", "#!/bin/bash\nexit 134\n")
        self.suite["tests"].append({"name": "crashes", "binary": "crashes", "args": []})
        report = self.run_suite("--steps=tests")
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual(report["runs"][0]["failed"], ["(no cases: it ended early, with 134)"])

    def test_a_skip_is_a_failure(self):
        self.add_test("ops_test", cases("GpuTest", IsThere="skipped", Adds="ok"))
        report = self.run_suite("--steps=tests")
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual(report["runs"][0]["failed"],
                         ["GpuTest.IsThere (skipped, though a GPU is required)"])

    def test_a_binary_that_passed_nothing_is_a_failure(self):
        self.add_test("ops_test", cases())
        report = self.run_suite("--steps=tests")
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual(report["runs"][0]["failed"], ["(no case passed)"])

    def test_a_deviation_from_tensorflow_may_be_skipped(self):
        self.add_test("losses", cases("golden", first="ok", second="skipped"))
        self.run_suite("--steps=tests")
        self.assertEqual(self.code, 0, self.output)

    def test_the_comparisons_with_the_cpu_run_in_plain_memory_too(self):
        self.add_test("backend_test_by_library", cases(Adds="ok"))
        self.add_test("ops_test", cases(Adds="ok"))
        report = self.run_suite("--steps=tests")
        self.assertEqual([run["name"] for run in report["runs"]],
                         ["backend_test_by_library", "ops_test",
                          "plain_memory_backend_test_by_library"])
        environment = self.environment_of("backend_test_by_library")
        self.assertEqual(environment["DIVVY_GPU_PLAIN_MEMORY"], "1")
        self.assertNotIn("DIVVY_GPU_PLAIN_MEMORY", self.environment_of("ops_test"))

    def test_tests_are_told_that_a_gpu_is_required_and_get_no_library_path(self):
        self.add_test("ops_test", cases(Adds="ok"))
        self.run_suite("--steps=tests", DIVVY_CUDA_LIBRARY="/elsewhere.so")
        environment = self.environment_of("ops_test")
        self.assertEqual(environment["DIVVY_REQUIRE_GPU"], "1")
        self.assertNotIn("LD_LIBRARY_PATH", environment)
        self.assertNotIn("DIVVY_CUDA_LIBRARY", environment)

    def test_where_the_library_cannot_compute_nothing_else_is_run_and_that_is_no_success(self):
        self.add_test("library_test", cases(Counts="failed"), 1)
        self.add_test("ops_test", cases(Adds="ok"))
        self.add_benchmark()
        report = self.run_suite()
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual((report["failed"], report["not_run"]),
                         (["library_test"], ["ops_test", "bench"]))
        self.assertIn("there is no nvcc", " ".join(report["notes"]))

    def test_a_library_that_cannot_compute_is_built_again_on_the_machine(self):
        self.add_test("library_test", cases(Counts="failed"), 1)
        self.add_test("ops_test", cases(Adds="ok"))
        self.script("path/nvcc", "#!/bin/bash\n")
        self.script("good", TEST % (cases(Counts="ok"), 0))
        self.script("rebuild", '#!/bin/bash\ncd "$(dirname "$0")" && cp good bin/library_test\n')
        report = self.run_suite("--steps=tests")
        self.assertEqual([(run["name"], run["state"]) for run in report["runs"]],
                         [("library_test", "failed"), ("rebuild", "ok"),
                          ("rebuilt_library_test", "ok"), ("ops_test", "ok")])


class BudgetTest(Machine):
    def test_a_hang_ends_with_the_budget_and_what_ran_before_is_reported(self):
        self.add_test("first", cases(Adds="ok"))
        # It also has a child that would keep the output open.
        self.script("bin/hangs", "#!/bin/bash\nsleep 1000 & sleep 1000\n")
        self.suite["tests"].append({"name": "hangs", "binary": "hangs", "args": []})
        self.add_test("last", cases(Adds="ok"))
        report = self.run_suite("--steps=tests", "--budget_s=6")
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual([(run["name"], run["state"]) for run in report["runs"]],
                         [("first", "ok"), ("hangs", "failed"), ("last", "not run")])
        self.assertIn("stopped after", report["runs"][1]["failed"][0])

    def test_the_report_is_there_while_a_later_run_goes_on(self):
        self.add_test("first", cases(Adds="ok"))
        self.script("bin/second", '#!/bin/bash\ncp "$SEEN/report/report.json" "$SEEN/seen.json"\n')
        self.suite["tests"].append({"name": "second", "binary": "second", "args": []})
        self.run_suite("--steps=tests", SEEN=self.folder)
        with open(os.path.join(self.folder, "seen.json"), encoding="utf-8") as file:
            self.assertEqual([run["name"] for run in json.load(file)["runs"]], ["first"])

    def test_the_report_is_three_files_with_every_output(self):
        self.add_test("ops_test", cases(Adds="ok"))
        self.add_benchmark()
        self.run_suite()
        self.assertEqual(sorted(os.listdir(self.report)),
                         ["logs.tar.gz", "report.json", "report.md"])
        with tarfile.open(os.path.join(self.report, "logs.tar.gz")) as logs:
            self.assertIn(b"steps", logs.extractfile("logs/bench_gpu_0.log").read())


class SanitizerTest(Machine):
    def run_sanitizer(self, text, *flags):
        self.add_test("backend_test_by_library", cases(Adds="ok"))
        self.add_test("ops_test", cases(Adds="ok"))
        sanitizer = self.script("path/sanitizer", "#!/bin/bash\n" + text)
        return self.run_suite("--steps=sanitizer", "--sanitizer=" + sanitizer, *flags)

    def test_its_finding_fails_the_suite(self):
        report = self.run_sanitizer('"${@:9}"\n[[ $2 != racecheck ]] || exit 9\n')
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual([(run["name"], run["state"]) for run in report["runs"]], [
            ("racecheck_backend_test_by_library", "failed"),
            ("synccheck_backend_test_by_library", "ok"),
            ("initcheck_backend_test_by_library", "ok"),
            ("memcheck_backend_test_by_library", "ok"), ("memcheck_ops_test", "ok")])

    def test_it_sees_each_block_only_where_none_is_kept(self):
        self.run_sanitizer('"${@:9}"\necho "$2: $DIVVY_GPU_PLAIN_MEMORY" >>"$0.said"\n')
        with open(os.path.join(self.path, "sanitizer.said"), encoding="utf-8") as file:
            self.assertEqual(sorted(set(file.read().splitlines())),
                             ["initcheck: 1", "memcheck: 1", "racecheck: ", "synccheck: "])

    def test_what_was_not_reached_can_be_run_alone(self):
        report = self.run_sanitizer('"${@:9}"\n', "--only=^memcheck_(ops|other)")
        self.assertEqual(self.code, 0, self.output)
        self.assertEqual([run["name"] for run in report["runs"]], ["memcheck_ops_test"])

    def test_where_no_name_matches_nothing_ran_and_that_is_no_success(self):
        report = self.run_sanitizer('"${@:9}"\n', "--only=nonsense")
        self.assertEqual((self.code, report["verdict"]), (1, "nothing ran"), self.output)

    def test_where_it_cannot_run_that_is_neither_passed_nor_failed(self):
        report = self.run_sanitizer('echo "========= Error: Device not supported"; exit 1\n')
        self.assertEqual((self.code, report["verdict"]), (1, "nothing checked"), self.output)
        self.assertEqual({run["state"] for run in report["runs"]}, {"unsupported"})
        self.assertIn("neither passed nor failed", " ".join(report["notes"]))

    def test_where_there_is_none_the_step_was_not_run(self):
        report = self.run_suite("--steps=sanitizer")
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual(report["not_run"], ["sanitizer"])
        self.assertIn("compute-sanitizer was not found", " ".join(report["notes"]))


class ProfileTest(Machine):
    def run_profile(self, text):
        self.add_test("backend_test_by_library", cases(Adds="ok"))
        self.script("path/ncu", "#!/bin/bash\n" + text)
        return self.run_suite("--steps=profile")

    def test_a_kernel_was_profiled(self):
        self.run_profile("echo '    Section: GPU Speed Of Light Throughput'\n")
        self.assertEqual(self.code, 0, self.output)

    def test_where_no_kernel_was_that_is_a_failure(self):
        report = self.run_profile("echo '==WARNING== No kernels were profiled.'\n")
        self.assertEqual((self.code, report["failed"]),
                         (1, ["profile_backend_test_by_library"]), self.output)
        self.assertEqual(report["runs"][0]["failed"], ["(no kernel was profiled)"])


class SoakTest(Machine):
    SAYS = "#!/bin/bash\necho 'chaos: 7 kills'\necho 'chaos: %s'\nenv > \"$0.environment\"\n" \
           "echo \"$@\" > \"$0.arguments\"\nexit %d\n"

    def test_the_sum_is_exact_and_the_report_says_what_was_done(self):
        self.script("bin/chaos", self.SAYS % ("PASSED: 0 violations", 0))
        report = self.run_suite("--steps=soak")
        self.assertEqual((self.code, report["runs"][0]["passed"]), (0, 1), self.output)
        self.assertIn("soak: 7 kills", report["notes"])
        with open(os.path.join(self.folder, "bin", "chaos.arguments"), encoding="utf-8") as file:
            arguments = file.read().split()
        self.assertIn("--gpus=all", arguments)
        self.assertIn("--minutes=0.033", arguments)

    def test_a_violation_fails_the_suite(self):
        self.script("bin/chaos", self.SAYS % ("FAILED: 1 violation", 1))
        report = self.run_suite("--steps=soak")
        self.assertEqual((self.code, report["failed"]), (1, ["soak"]), self.output)
        self.assertIn("chaos: FAILED: 1 violation", report["runs"][0]["failed"])

    def test_a_soak_that_ends_without_a_verdict_is_a_failure(self):
        self.script("bin/chaos", "#!/bin/bash\n")
        report = self.run_suite("--steps=soak")
        self.assertEqual((self.code, report["failed"]), (1, ["soak"]), self.output)

    def test_where_the_budget_has_no_room_for_it_it_was_not_run(self):
        self.script("bin/chaos", self.SAYS % ("PASSED: 0 violations", 0))
        report = self.run_suite("--steps=soak", "--budget_s=50")
        self.assertEqual((self.code, report["not_run"]), (1, ["soak"]), self.output)


class BenchmarksTest(Machine):
    def test_figures_stand_beside_their_ceilings(self):
        self.add_benchmark()
        self.add_benchmark("train", '{"what": "mlp", "rate": 7, "unit": "steps/s"}', ", depth 3")
        report = self.run_suite("--steps=bench")
        self.assertEqual(self.code, 0, self.output)
        self.assertIn("| steps | 30 steps/s | cuBLAS: 40 steps/s | 0.75 |", self.page)
        self.assertIn("| mlp, depth 3 | 7 steps/s |", self.page)
        self.assertIn("PyTorch", " ".join(report["notes"]))

    def test_a_benchmark_without_a_figure_is_a_failure(self):
        self.add_benchmark(line="nothing")
        report = self.run_suite("--steps=bench")
        self.assertEqual((self.code, report["failed"]), (1, ["bench_gpu_0"]), self.output)

    def test_pytorch_is_measured_in_turns_in_the_environment_of_the_machine(self):
        self.add_benchmark()
        self.python(without_torch=0)
        report = self.run_suite("--steps=bench", "--rounds=2", LD_LIBRARY_PATH="/the/machines/own")
        self.assertEqual(self.code, 0, self.output)
        self.assertEqual([run["name"] for run in report["runs"]],
                         ["bench_gpu_0", "torch_0", "bench_gpu_1", "torch_1"])
        self.assertEqual(report["beside_pytorch"], {"steps": [30, 20]})
        self.assertIn("| steps | 30 | 20 | 1.50 |", self.page)
        with open(os.path.join(self.path, "python3.environment"), encoding="utf-8") as file:
            environment = file.read()
        self.assertIn("LD_LIBRARY_PATH=/the/machines/own\n", environment)
        self.assertNotIn("DIVVY", environment)


    def test_with_a_flag_of_its_own_it_stands_beside_the_same_work_of_pytorch(self):
        self.add_benchmark("train", FIGURE, ", depth 3")
        self.python(without_torch=0)
        report = self.run_suite("--steps=bench")
        self.assertEqual(report["beside_pytorch"], {"steps, depth 3": [30, 20]})

    def test_of_memory_less_is_better(self):
        self.add_benchmark(line='{"what": "device memory, steps", "rate": 15, "unit": "MB"}')
        self.python(without_torch=0)
        self.run_suite("--steps=bench")
        self.assertIn("| device memory, steps (less is better) | 15 | 10 | 1.50 |", self.page)

    def test_a_pytorch_that_does_not_answer_ends_with_the_budget(self):
        self.add_benchmark()
        self.python(without_torch=0, torch="sleep 1000")
        began = time.monotonic()
        report = self.run_suite("--steps=bench", "--budget_s=4")
        self.assertLess(time.monotonic() - began, 40)
        self.assertEqual((self.code, report["not_run"]), (1, ["bench_gpu_0"]), self.output)


class FitTest(Machine):
    """The checks of a machine, before the suite runs anything."""

    def expect_unfit(self, text):
        self.add_test("ops_test", cases(Adds="ok"))
        report = self.run_suite()
        self.assertEqual(self.code, 78, self.output)
        self.assertIn(text, self.output)
        if report:
            self.assertEqual((report["runs"], report["verdict"]), ([], "nothing ran"))
            self.assertIn(text, " ".join(report["notes"]))

    def test_no_gpu(self):
        self.script("path/nvidia-smi", "#!/bin/bash\nexit 9\n")
        self.expect_unfit("there is no GPU")

    def test_an_old_driver(self):
        self.script("path/nvidia-smi", "#!/bin/bash\necho 'Old, 570.86.10, 3 MiB'\n")
        self.expect_unfit("the driver of Old is 570.86.10, and CUDA 13 wants 580 or newer")

    def test_a_driver_that_cannot_be_loaded(self):
        self.python(pools="")
        self.expect_unfit("libcuda.so.1, a part of the driver, cannot be loaded")

    def test_a_driver_that_answers_with_an_error(self):
        self.python(pools="CUDA error 802")
        self.expect_unfit("the driver answers with CUDA error 802")

    def test_an_old_c_library(self):
        self.suite["glibc"] = "99.1"
        self.expect_unfit("and the pack was built for 99.1")

    def test_no_cublas(self):
        self.suite["needs"] = ["libcublas.so.99"]
        self.expect_unfit("there is no libcublas.so.99: looked in %s/lib64" % self.path)

    def test_a_library_that_is_missing(self):
        self.script("path/ldd", "#!/bin/bash\necho '  libgone.so.1 => not found'\n")
        self.expect_unfit("ops_test needs libgone.so.1, which this machine lacks")

    def loads_from(self, folder):
        """The suite's output for a rehearsal's binary whose library is in `folder`."""
        self.suite["require"] = "host"
        self.add_test("ops_test", cases(Adds="ok"))
        self.script("path/ldd", """#!/bin/bash
            echo ' libc.so.6 => /usr/lib/libc.so.6 (0x1)'
            echo ' libstdc++.so.6 => /usr/lib/libstdc++.so.6 (0x1)'
            echo ' libgrpc.so.1 => %s/libgrpc.so.1 (0x1)'\n""" % folder)
        self.run_suite("--steps=tests")
        return self.code

    def test_in_a_rehearsal_a_library_that_the_machine_has_must_still_be_packed(self):
        self.assertEqual(self.loads_from("/usr/lib"), 78, self.output)
        self.assertIn("ops_test loads /usr/lib/libgrpc.so.1, and not what is packed", self.output)

    def test_in_a_rehearsal_packed_libraries_are_loaded(self):
        self.assertEqual(self.loads_from(os.path.join(self.folder, "bin", "lib")), 0, self.output)

    def cublas_in(self, folder):
        path = os.path.join(self.folder, folder, "libcublas.so.99")
        os.makedirs(os.path.dirname(path))
        open(path, "w").close()
        return path

    def expect_found(self, path):
        self.suite["needs"] = ["libcublas.so.99"]
        self.add_test("ops_test", cases(Adds="ok"))
        self.run_suite("--steps=tests")
        self.assertEqual(self.code, 0, self.output)
        self.assertEqual(os.readlink(os.path.join(self.folder, "bin/lib/libcublas.so.99")), path)

    def test_cublas_in_the_toolkit(self):
        self.expect_found(self.cublas_in("path/lib64"))

    def test_cublas_where_the_loader_finds_it(self):
        path = self.cublas_in("system")
        self.script("path/ldconfig", "#!/bin/bash\necho '\tlibcublas.so.99 (libc6) => %s'\n" % path)
        self.expect_found(path)

    def test_cublas_in_pythons_wheels(self):
        path = self.cublas_in("site/nvidia/cu99/lib")
        self.python(site=os.path.join(self.folder, "site"))
        self.expect_found(path)

    def test_the_newer_of_two_cxx_libraries_is_loaded(self):
        lib = os.path.join(self.folder, "bin", "lib")
        packed = self.script("bin/cxx/libstdc++.so.6.0.30", "")
        for theirs, wanted in (("6.0.29", packed), ("6.0.33", None)):
            real = self.script("system/libstdc++.so." + theirs, "")
            machine.link(real, os.path.join(self.folder, "system/libstdc++.so.6"))
            self.script("path/ldconfig", "#!/bin/bash\necho '\tlibstdc++.so.6 (libc6) => "
                        "%s/system/libstdc++.so.6'\n" % self.folder)
            with unittest.mock.patch.dict(os.environ, PATH=self.path + ":/usr/bin:/bin"):
                machine.place_cxx(os.path.dirname(packed), lib)
            at = os.path.join(lib, "libstdc++.so.6")
            self.assertEqual(os.readlink(at) if os.path.lexists(at) else None, wanted)


class PackTest(Machine):
    def test_a_folder_that_was_not_packed_is_refused(self):
        done = subprocess.run([sys.executable, SUITE, "--binaries=" + self.path],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, cwd=self.folder,
                              env={"PATH": self.path + ":/usr/bin:/bin"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("--pack=", done.stdout)

    def test_without_bazel_it_says_where_a_pack_is_made(self):
        with unittest.mock.patch.dict(os.environ, BAZEL="/nowhere/bazel"):
            with self.assertRaisesRegex(SuiteError, "--pack=FILE.tar.xz there, and copy the file"):
                pack.bazel("info")

    def test_what_travels_is_all_that_is_not_the_machines(self):
        for name, stays in (("libopenblas.so.0", False), ("libcurl.so.4", False),
                            ("libc.so.6", True), ("libcublasLt.so.13", True),
                            ("libcuda.so.1", True), ("libnccl.so.2", True),
                            ("ld-linux-x86-64.so.2", True), ("libcares.so.2", False),
                            ("libmvec.so.1", False)):
            self.assertEqual(bool(machine.OF_THE_MACHINE.match(name)), stays, name)

    def test_a_library_that_is_missing_where_the_pack_is_made_is_named(self):
        self.script("path/ldd", "#!/bin/bash\necho ' libgone.so => not found'\n")
        with unittest.mock.patch.dict(os.environ, PATH=self.path + ":" + os.environ["PATH"]):
            with self.assertRaisesRegex(SuiteError, "ops_test needs libgone.so, which is not here"):
                pack.libraries_of("ops_test")

    def test_a_file_that_is_too_large_is_refused_and_not_left(self):
        file = os.path.join(self.folder, "pack.tar.xz")
        with unittest.mock.patch.object(pack, "fill", lambda folder, *_: os.mkdir(folder)):
            with unittest.mock.patch.object(pack, "MOST_BYTES", 10):
                with self.assertRaisesRegex(SuiteError, "more than 0: name fewer --archs"):
                    pack.write_file(file, {})
        self.assertEqual([name for name in os.listdir(self.folder) if "pack" in name], [])

    def test_what_is_unpacked_nobody_else_may_write(self):
        entry = tarfile.TarInfo("libdivvy_cuda.so")
        entry.mode, entry.uid = 0o775, 1000
        packed = pack.as_root(entry)
        self.assertEqual((packed.mode, packed.uid), (0o755, 0))

    def test_the_library_is_built_again_with_the_flags_of_this_build_alone(self):
        command = ["/usr/local/cuda/bin/nvcc", "-c", "-std=c++17", "-ccbin", "/usr/bin/g++",
                   "-Xcompiler", "-fPIC", "-O3", "-gencode=arch=compute_90,code=sm_90", "-I.",
                   "-Ibazel-out/bin", "-I", "external/cuda", "-isystem", "external/x", "-o",
                   "cast.pic.o", "ops/cuda/cast.cu"]
        self.assertEqual(sources.flags_of(command),
                         ["-c", "-std=c++17", "-Xcompiler", "-fPIC", "-O3"])


if __name__ == "__main__":
    unittest.main()
