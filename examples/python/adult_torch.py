"""Whose income is above 50,000 dollars: UCI's Adult. The wide part is linear in the categories and
their pairs, the deep part a perceptron of their vectors and of the numbers. adult.data[.gz] and
adult.test[.gz] (archive.ics.uci.edu/dataset/2/adult) are in the directory DIR:

    python3 examples/python/adult_torch.py DIR
"""
import glob
import gzip
import sys
import numpy as np
import torch
import divvy
import divvy.torch as dt

NUMBERS, CATEGORIES = [0, 2, 4, 10, 11, 12], [1, 3, 5, 6, 7, 8, 9, 13]
PAIRS = [(0, 2), (1, 2), (2, 3), (0, 1)]  # of CATEGORIES


def people(name):
    path = glob.glob("%s/adult.%s*" % (sys.argv[1], name))[0]
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as lines:
        rows = [line.strip(" .\n").split(", ") for line in lines if line.count(",") == 14]
    words = [["%d=%s" % (c, row[c]) for c in CATEGORIES] for row in rows]
    words = [row + ["&".join((row[a], row[b])) for a, b in PAIRS] for row in words]
    numbers = np.array([[row[c] for c in NUMBERS] for row in rows], np.float32)
    return divvy.tensors({"numbers": np.log1p(numbers), "ids": np.vectorize(divvy.text_key)(words),
                          "rich": np.array([row[14] == ">50K" for row in rows], np.float32)})


TRAINING, TEST = people("data"), people("test")
wide = dt.Embedding("wide", 1, optimizer=divvy.Ftrl(0.1, l1=0.001), initializer=divvy.Zeros())
deep = dt.Embedding("deep", 8, optimizer=divvy.Adagrad(0.2),
                    initializer=divvy.RandomNormal(0, 0.1))
net = torch.nn.Sequential(torch.nn.BatchNorm1d(6 + 8 * 8), torch.nn.Linear(6 + 8 * 8, 64),
                          torch.nn.ReLU(), torch.nn.Linear(64, 1))
model = dt.Module("net", net, optimizer=divvy.Adam(3e-3))


def logits(batch):
    vectors = deep(batch["ids"][:, :8]).flatten(1)
    return model(torch.cat([batch["numbers"], vectors], 1))[:, 0] + wide(batch["ids"]).sum((1, 2))


@dt.step
def train(batch):
    z = logits(batch)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(z, batch["rich"])
    loss.backward()
    return {"loss": loss}


@dt.step(read_only=True)
def test(batch):
    return {"auc": divvy.Auc(logits(batch), batch["rich"])}


def main(c):
    c.restore_latest()
    while c.epoch < 1:
        print(dict(c.run_epoch(train, TRAINING.shuffle(100_000).batch(128))), c.step, "steps")
    print("test: auc %.4f" % c.run_epoch(test, TEST.batch(1024))["auc"])


if __name__ == "__main__":
    divvy.run(main)
