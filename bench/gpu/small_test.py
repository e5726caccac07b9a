#!/usr/bin/env python3
"""bench/gpu's benchmarks succeed with small sizes and without a GPU, and print every figure."""
import json
import os
import subprocess
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
HOST_DEVICES = os.path.join(HERE, "..", "..", "ops", "cuda", "testing", "libdivvy_host_devices.so")


def run(name, *flags, library=HOST_DEVICES):
    environment = dict(os.environ, DIVVY_CUDA_LIBRARY=os.path.realpath(library), DIVVY_HOST_DEVICES="1")
    done = subprocess.run([os.path.join(HERE, name), "--format=json", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr


class SmallTest(unittest.TestCase):
    def check_training(self, *flags):
        code, figures, log = run("train", "--ps=1", "--workers=1", "--rounds=2", "--steps=3", *flags)
        self.assertEqual(code, 0, log)
        wanted = ["%s, batch %d" % (model, batch) for model in ("mlp 784-512-10", "dlrm") for batch in (64, 512, 1024, 4096)]
        self.assertEqual([figure["what"] for figure in figures], wanted)
        for figure in figures:
            self.assertGreater(figure["rate"], 0)
            self.assertNotIn("ceiling", figure)

    def test_training_on_the_cpu_measures_each_model_at_each_size(self):
        self.check_training("--gpus=none")

    def test_training_is_refused_where_the_gpus_asked_for_are_not_there(self):
        code, figures, log = run("train", "--ps=1", "--workers=1", "--gpus=all", library="/nowhere/libdivvy_cuda.so")
        self.assertEqual((code, figures), (78, []), log)

    def test_calls_copies_products_and_steps_are_measured_on_a_device_of_the_host(self):
        code, figures, log = run("gpu", "--rounds=1", "--times=1", "--largest=64")
        self.assertEqual(code, 0, log)
        names = [figure["what"] for figure in figures]
        for part in ("one element to the device and back", "hidden part of copies", "MatMul float32 64x64x64", "MatMul bfloat16 64x64x64",
                     "perceptron step, batch 64"):
            self.assertEqual(len([name for name in names if name.startswith(part)]), 1, (part, names))

    def test_without_a_gpu_there_is_nothing_to_measure(self):
        code, figures, log = run("gpu", library="/nowhere/libdivvy_cuda.so")
        self.assertEqual((code, figures), (78, []), log)
        self.assertIn("there is no GPU to measure", log)


if __name__ == "__main__":
    unittest.main()
