"""The steps of cpp_steps.cc in Python: prints the same lines, and "first_step": the time from the
start of this file to the end of a step, imports included. "lookup" needs PyTorch."""
import sys
import time

BEGIN = time.perf_counter()

import divvy  # pylint: disable=wrong-import-position
import numpy as np  # pylint: disable=wrong-import-position

KEYS = np.random.default_rng(1).integers(100_000, size=4096)
large = divvy.Variable("large", 1 << 18)


@divvy.step
def nothing():
    pass


@divvy.step
def variable():
    large.assign(large.read())


if "lookup" in sys.argv:
    import divvy.torch as dt
    import torch

    rows = dt.Embedding("rows", 64, optimizer=divvy.RowwiseAdagrad(0.1))
    ONES = torch.ones(4096, 64)

    @divvy.step
    def lookup():
        rows(KEYS).backward(ONES)


def measure(c, step, count):
    for steps in (count // 10, count):  # the first ones warm up
        begin = time.perf_counter()
        for _ in range(steps):
            c.schedule(step)
        c.join()
    print("%s %.9f" % (step.name, (time.perf_counter() - begin) / count))


def main():
    with divvy.testing.cluster(ps=1) as c:
        c.schedule(nothing).fetch()
        print("first_step %.9f" % (time.perf_counter() - BEGIN))
        measure(c, nothing, 2000)
        measure(c, variable, 500)
        if "lookup" in sys.argv:
            measure(c, lookup, 200)


if __name__ == "__main__":
    main()
