#!/usr/bin/env python3
"""Runs the whole of gpu_suite on devices that the host emulates: it is packed, unpacked in a folder
without a checkout, and run. Without this test, mistakes would show on the first machine with a
GPU."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
from gpusuite import pack, rehearse  # noqa: E402


def path_of(label):
    package, name = label[2:].split(":")
    return os.path.join(ROOT, package, name)


class GpuRehearsalTest(unittest.TestCase):
    def test_everything_in_the_pack_runs_and_passes(self):
        with open(path_of("//tools:gpu_tests"), encoding="utf-8") as file:
            tests = pack.tests_of(file.read(), path_of)
        result = rehearse.rehearse({
            "commit": "rehearsal", "tests": tests, "compile_commands": None,
            "library": path_of("//ops/cuda/testing:libdivvy_host_devices.so"),
            "benchmarks": {bench["label"]: path_of(bench["label"]) for bench in pack.BENCHMARKS},
            "soak": [path_of(label) for label in pack.SOAK],
            "golden": os.path.join(ROOT, "tests", "golden"),
            "peer": path_of("//bench/gpu:torch_peer.py")})
        ran = {run["name"]: run for run in result["runs"]}
        for test in tests:
            self.assertGreater(ran[test["name"]]["passed"], 0, test["name"])
            self.assertGreater(ran["memcheck_" + test["name"]]["passed"], 0, test["name"])
        for tool in ("racecheck", "synccheck", "initcheck", "plain_memory"):
            self.assertGreater(ran[tool + "_backend_test_by_library"]["passed"], 5)
        self.assertEqual(ran["soak"]["passed"], 1)
        measured = {figure["what"] for figure in result["figures"]}
        for what in ("MatMul float32 64x64x64", "mlp 784-512-10, batch 64",
                     "dlrm, batch 64, --pipeline_depth=3"):
            self.assertIn(what, measured)


if __name__ == "__main__":
    unittest.main()
