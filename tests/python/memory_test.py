"""Memory stays flat over many steps.

`python3 tests/python/memory_test.py --steps=100000` makes a longer run (CONTRIBUTING.md).
"""
import gc
import os
import re
import sys

import numpy as np

import divvy

w = divvy.Variable("w", (1000,), optimizer=divvy.Sgd(1e-3))
users = divvy.Table("users", 8, optimizer=divvy.Sgd(1e-3), max_rows=1000)
data = divvy.tensors({"i": np.arange(256), "x": np.zeros((256, 64), np.float32)})


@divvy.step
def work(batch, payload):
    value = w.read()
    rows = users.lookup(batch["i"] % 100)
    users.apply_gradient(batch["i"] % 100, rows + payload["x"][:8])
    w.apply_gradient(np.tanh(value) + 1)
    return {"x": batch["x"], "n": divvy.Mean(1.0)}


@divvy.step
def small(n, text):
    return {"n": n, "text": text, "array": np.full(100, n)}


@divvy.step
def fails(n):
    held = np.zeros(10_000)
    raise ValueError("step %d of %s" % (n, held.shape))


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def some_steps(c, n):
    for _ in range(n // 64):
        c.run_epoch(work, data.shuffle(64).batch(8), {"x": np.ones(16, np.float32)})
        values = [c.schedule(small, i, "text %d" % i) for i in range(32)]
        c.join()
        c.fetch(values)
    for i in range(n // 50):
        c.schedule(fails, i)
        try:
            c.join()
        except ValueError:
            pass
    c.save_checkpoint()
    gc.collect()


def main(c):
    number = int(os.environ.get("STEPS", "4000"))
    some_steps(c, number // 2)  # caches, arenas and the redo log reach their sizes
    before, objects = resident_bytes(), len(gc.get_objects())
    some_steps(c, number // 2)
    print("%d steps: memory grew by %d KiB, objects by %d" % (
        c.step, (resident_bytes() - before) >> 10, len(gc.get_objects()) - objects))


def test_arrays_that_metrics_borrow_are_freed():
    for _ in range(20):
        divvy.Mean(np.zeros(1 << 20))
    before = resident_bytes()
    for _ in range(20):
        divvy.Mean(np.zeros(1 << 20))
    assert resident_bytes() - before < 20 << 20  # one array has 8 MiB


def test_memory_and_objects_stay_flat(tmp_path):
    import programs
    done = programs.run(__file__, "--checkpoint_dir=%s" % tmp_path, "--redo_log_bytes=300000",
                        timeout=200)
    assert done.returncode == 0, done.stderr
    grown, objects = map(int, re.search(r"grew by (-?\d+) KiB, objects by (-?\d+)",
                                        done.stdout).groups())
    # A leak of one array of 8 kB a step would be 16 MB.
    assert grown < 3000, done.stdout
    assert objects < 200, done.stdout


if __name__ == "__main__":
    flags = [flag for flag in sys.argv if not flag.startswith("--steps=")]
    for flag in sys.argv:
        if flag.startswith("--steps="):
            os.environ["STEPS"] = flag[len("--steps="):]
    divvy.run(main, argv=flags)
