#!/usr/bin/env python3
"""What gpu_suite reports of binaries that pass, fail, crash and skip, on a machine whose GPU, sanitizer and PyTorch are scripts."""
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SUITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_suite")
TEST = """#!/bin/bash
for arg; do [[ $arg == --gtest_output=json:* ]] && out=${arg#--gtest_output=json:}; done
cat >"$out" <<'END'
%s
END
exit %d
"""


def cases(**results):
    """googletest's JSON of one suite, "Device", with these cases."""
    listed = []
    for name, result in results.items():
        case = {"name": name, "status": "RUN", "result": "SKIPPED" if result == "skipped" else "COMPLETED"}
        if result == "failed":
            case["failures"] = [{"failure": "wrong"}]
        listed.append(case)
    return json.dumps({"testsuites": [{"name": "Device", "testsuite": listed}]})


class GpuSuiteTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name
        for part in ("bin", "path"):
            os.mkdir(os.path.join(self.folder, part))
        self.tests = []
        self.script("path/nvidia-smi", "#!/bin/bash\necho 'A GPU, 1.2, 3 MiB'\n")
        self.script("path/python3", "#!/bin/bash\nexit 1\n")
        self.script("bin/gpu", '#!/bin/bash\necho \'{"what": "steps", "rate": 30, "unit": "steps/s", "ceiling": "cuBLAS", "ceiling_rate": 40, "ratio": 0.75}\'\n')

    def script(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def add_test(self, name, results, code=0):
        self.script("bin/" + name, TEST % (results, code))
        self.tests.append([name])

    def run_suite(self, *flags):
        with open(os.path.join(self.folder, "suite.json"), "w", encoding="utf-8") as file:
            json.dump({"commit": "abc", "tests": self.tests, "benchmarks": [["gpu"]]}, file)
        path = os.path.join(self.folder, "path")
        report = os.path.join(self.folder, "report")
        done = subprocess.run([sys.executable, SUITE, "--binaries=" + self.folder, "--report=" + report, *flags], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env={"PATH": path + ":/usr/bin:/bin", "CUDA_HOME": path})
        self.output, self.code = done.stdout, done.returncode
        if not os.path.exists(os.path.join(report, "report.json")):
            return None
        with open(os.path.join(report, "report.md"), encoding="utf-8") as file:
            self.page = file.read()
        with open(os.path.join(report, "report.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_counts_cases_and_says_what_did_not_run(self):
        self.add_test("ops_test", cases(Adds="ok", Multiplies="ok", Peers="skipped"))
        report = self.run_suite()
        self.assertEqual(self.code, 0, self.output)
        self.assertEqual(report["machine"]["gpus"], ["A GPU, 1.2, 3 MiB"])
        self.assertEqual([(run["name"], run["passed"], run["skipped"]) for run in report["tests"]], [("ops_test", 2, ["Device.Peers"])])
        self.assertEqual([note.split(" ")[0] for note in report["notes"]], ["compute-sanitizer", "python3"])
        self.assertIn("| steps | 30 steps/s | cuBLAS: 40 steps/s | 0.75 |", self.page)

    def test_a_failed_case_is_named_and_fails_the_suite(self):
        self.add_test("ops_test", cases(Adds="failed", Multiplies="ok"), 1)
        report = self.run_suite("--no-bench")
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual(report["failed"], ["ops_test"])
        self.assertIn("- ops_test: **Device.Adds** failed", self.page)

    def test_a_test_that_ends_without_its_cases_is_a_failure(self):
        self.script("bin/crashes", "#!/bin/bash\nexit 134\n")
        self.tests.append(["crashes"])
        report = self.run_suite("--no-bench")
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual(report["tests"][0]["failed"], ["(no cases: it ended early, with 134)"])

    def test_the_sanitizer_runs_each_test_twice_and_its_finding_fails_the_suite(self):
        self.add_test("ops_test", cases(Adds="ok"))
        self.script("path/sanitizer", '#!/bin/bash\n"${@:5}"\n[[ $2 != racecheck ]] || exit 9\n')
        report = self.run_suite("--no-bench", "--sanitizer=" + os.path.join(self.folder, "path", "sanitizer"))
        self.assertEqual(self.code, 1, self.output)
        self.assertEqual([(run["name"], run["exit_code"]) for run in report["tests"]], [("ops_test", 0), ("memcheck_ops_test", 0), ("racecheck_ops_test", 9)])
        self.assertEqual(report["failed"], ["racecheck_ops_test"])

    def test_pytorch_is_measured_in_turns_with_the_benchmark(self):
        self.script("path/python3", "#!/bin/bash\n[[ $1 == -c ]] || echo '{\"what\": \"steps\", \"rate\": 20}'\n")
        report = self.run_suite("--rounds=2")
        self.assertEqual(self.code, 0, self.output)
        self.assertEqual([run["name"] for run in report["benchmarks"]], ["bench_gpu_0", "torch_0", "bench_gpu_1", "torch_1"])
        self.assertEqual(report["beside_pytorch"], {"steps": [30, 20]})
        self.assertIn("| steps | 30 | 20 | 1.50 |", self.page)

    def test_a_machine_without_a_gpu_is_told_so(self):
        self.script("path/nvidia-smi", "#!/bin/bash\nexit 9\n")
        self.assertIsNone(self.run_suite())
        self.assertEqual(self.code, 78, self.output)
        self.assertIn("there is no GPU", self.output)

    def test_what_travels_is_all_that_is_not_the_machines(self):
        suite = importlib.machinery.SourceFileLoader("gpu_suite", SUITE).load_module()
        said = "linux-vdso.so.1 (0x1)\n libopenblas.so.0 => /lib/libopenblas.so.0 (0x2)\n libc.so.6 => /lib/libc.so.6 (0x3)\n libcublas.so.13 => not found\n"
        self.script("path/ldd", "#!/bin/bash\ncat <<'END'\n%sEND\n" % said)
        with unittest.mock.patch.dict(os.environ, PATH=os.path.join(self.folder, "path") + ":" + os.environ["PATH"]):
            self.assertEqual(suite.libraries_of("ops_test"), ["/lib/libopenblas.so.0"])
            self.script("path/ldd", "#!/bin/bash\necho ' libgone.so => not found'\n")
            with self.assertRaisesRegex(suite.SuiteError, "ops_test needs libgone.so, which is not here"):
                suite.libraries_of("ops_test")

    def test_a_folder_that_was_not_packed_is_refused(self):
        self.run_suite("--binaries=" + os.path.join(self.folder, "bin"))
        self.assertEqual(self.code, 1, self.output)
        self.assertIn("--pack=", self.output)


if __name__ == "__main__":
    unittest.main()
