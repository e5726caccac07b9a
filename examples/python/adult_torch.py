"""Whose income is above 50,000 dollars: UCI's Adult. The wide part is linear in the categories and
their pairs, the deep part a perceptron of the categories' vectors and of the numbers. DIR has
adult.data and adult.test, or adult.*.gz, of archive.ics.uci.edu/dataset/2/adult:

    python3 examples/python/adult_torch.py DIR
"""
import glob
import gzip
import sys
import numpy as np
import torch
import divvy
import divvy.torch as dt

DIR = sys.argv.pop(1) if len(sys.argv) > 1 else "."
NUMBERS, CATEGORIES = [0, 2, 4, 10, 11, 12], [1, 3, 5, 6, 7, 8, 9, 13]


def people(name):
    for path in glob.glob("%s/adult.%s*" % (DIR, name)) or sys.exit("usage: adult_torch.py DIR"):
        with (gzip.open if path.endswith(".gz") else open)(path, "rt") as lines:
            rows = [line.strip(" .\n").split(", ") for line in lines if line.count(",") == 14]
    words = [["%d=%s" % (column, row[column]) for column in CATEGORIES] for row in rows]
    words = [row + [row[0] + row[2], row[1] + row[2], row[2] + row[3]] for row in words]
    numbers = np.log1p(np.array([[row[column] for column in NUMBERS] for row in rows], np.float32))
    return divvy.tensors({"numbers": numbers, "ids": np.vectorize(divvy.text_key)(words),
                          "rich": np.array([row[14] == ">50K" for row in rows], np.float32)})


TRAINING, TEST = people("data"), people("test")
wide = dt.Embedding("wide", 1, optimizer=divvy.Ftrl(0.1, l1=0.001), initializer=0.0)
deep = dt.Embedding("deep", 8, optimizer=divvy.Adagrad(0.2), initializer=divvy.RandomNormal(0, 0.1))
net = torch.nn.Sequential(torch.nn.BatchNorm1d(70), torch.nn.Linear(70, 64), torch.nn.ReLU(),
                          torch.nn.Linear(64, 1))
model = dt.Module("net", net, optimizer=divvy.Adam(3e-3))


def logits(batch):
    vectors = deep(batch["ids"][:, :8]).flatten(1)
    return model(torch.cat([batch["numbers"], vectors], 1))[:, 0] + wide(batch["ids"]).sum((1, 2))


@dt.step
def train(batch):
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        logits(batch), batch["rich"], reduction="none")
    losses.mean().backward()
    return {"loss": losses}


@dt.step(read_only=True)
def test(batch):
    return {"auc": divvy.Auc(logits(batch), batch["rich"])}


def main(c):
    c.restore_latest()
    while c.epoch < 1:
        c.run_epoch(train, TRAINING.shuffle(100_000).batch(128))
    print("%d steps; test: auc %.4f" % (c.step, c.run_epoch(test, TEST.batch(1024))["auc"]))


if __name__ == "__main__":
    divvy.run(main)
