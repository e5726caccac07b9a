#!/usr/bin/env python3
"""bench/peers.py [--records=20000]: reads the data of bench:input's CSV with pandas, pyarrow and
TensorFlow's tf.data, each with its defaults, into arrays of float32.

Prints a JSON object for each figure: the peer with its version, the name of bench:input's figure,
and the rate in thousands of records a second. A peer that cannot be imported is named as absent.
tools/benchmarks --peers=PYTHON runs it beside bench:input.
"""
import argparse
import importlib
import json
import os
import random
import statistics
import tempfile
import time

WIDTH, BATCH, WINDOW, PASSES = 40, 512, 10000, 3
BATCHED, SHUFFLED = "csv, 40 numbers, batched", "csv, 40 numbers, shuffled and batched"
COLUMNS = [str(i) for i in range(WIDTH)]


def batches_of(rows):
    return [rows[at:at + BATCH] for at in range(0, len(rows), BATCH)]


def of_whole_files(rows):
    """{figure: a function that reads the file once}, where `rows()` reads it into memory."""
    import numpy
    return {BATCHED: lambda: batches_of(rows()),
            SHUFFLED: lambda: batches_of(numpy.random.default_rng(1).permutation(rows()))}


def pandas_readers(pandas, path):
    return of_whole_files(lambda: pandas.read_csv(path, header=None, names=COLUMNS,
                                                  dtype="float32").to_numpy())


def pyarrow_readers(pyarrow, path):
    import numpy
    csv = importlib.import_module("pyarrow.csv")
    types = csv.ConvertOptions(column_types={name: pyarrow.float32() for name in COLUMNS})

    def rows():
        found = csv.read_csv(path, csv.ReadOptions(column_names=COLUMNS), convert_options=types)
        return numpy.stack([column.to_numpy() for column in found.columns], axis=1)

    return of_whole_files(rows)


def tensorflow_readers(tf, path):
    def read(window):
        rows = tf.data.experimental.CsvDataset(path, [0.0] * WIDTH)
        rows = rows.shuffle(window, seed=1) if window else rows
        stacked = rows.batch(BATCH).map(lambda *columns: tf.stack(columns, axis=1))
        for _ in stacked:
            pass

    return {BATCHED: lambda: read(0), SHUFFLED: lambda: read(WINDOW)}


PEERS = {"pandas": pandas_readers, "pyarrow": pyarrow_readers, "tensorflow": tensorflow_readers}


def rate(read, records):
    """Thousands of records a second: the median of the passes after the first."""
    seconds = []
    for _ in range(1 + PASSES):
        began = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - began)
    return records / statistics.median(seconds[1:]) / 1e3


def measure(name, path, records):
    try:
        peer = importlib.import_module(name)
    except ImportError:
        print(json.dumps({"what": name, "absent": True}))
        return
    for what, read in PEERS[name](peer, path).items():
        print(json.dumps({"peer": "%s %s" % (name, peer.__version__), "what": what,
                          "unit": "k records/s", "rate": round(rate(read, records), 1)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=20000)
    records = parser.parse_args().records
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "numbers.csv")
        with open(path, "w", encoding="utf-8") as file:
            for _ in range(records):
                file.write(",".join(str(draw.randrange(1000)) for _ in range(WIDTH)) + "\n")
        for name in PEERS:
            measure(name, path, records)


if __name__ == "__main__":
    main()
