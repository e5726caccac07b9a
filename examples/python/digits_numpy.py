"""Recognizes handwritten digits: a perceptron with one hidden layer, in NumPy alone.

    python3 examples/python/digits_numpy.py
    divvyctl launch --ps=2 --workers=4 -- python3 examples/python/digits_numpy.py
"""
import os

import numpy as np

import divvy

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/digits.csv.gz")
DIGITS = divvy.csv(FILE, [divvy.Column("image", width=64), divvy.Column("label", "int64")])
RULE = divvy.Adam(3e-3)

kernel1 = divvy.Variable("kernel1", (64, 64), optimizer=RULE, initializer=divvy.GlorotUniform())
bias1 = divvy.Variable("bias1", 64, optimizer=RULE)
kernel2 = divvy.Variable("kernel2", (64, 10), optimizer=RULE, initializer=divvy.GlorotUniform())
bias2 = divvy.Variable("bias2", 10, optimizer=RULE)


def forward(batch):
    k1, b1, k2, b2 = divvy.read(kernel1, bias1, kernel2, bias2)  # one message to each server
    pixels = batch["image"] / np.float32(16)
    hidden = np.maximum(pixels @ k1 + b1, 0)
    return pixels, hidden, k2, hidden @ k2 + b2


@divvy.step
def train(batch):
    pixels, hidden, k2, logits = forward(batch)
    rows, labels = np.arange(len(logits)), batch["label"]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    loss = -np.log(odds[rows, labels])
    odds[rows, labels] -= 1  # the gradient of the loss
    odds /= len(rows)
    below = (odds @ k2.T) * (hidden > 0)
    kernel2.apply_gradient(hidden.T @ odds)
    bias2.apply_gradient(odds.sum(axis=0))
    kernel1.apply_gradient(pixels.T @ below)
    bias1.apply_gradient(below.sum(axis=0))
    return {"loss": loss, "accuracy": divvy.Accuracy(logits, labels)}


@divvy.step(read_only=True)
def test(batch):
    return {"accuracy": divvy.Accuracy(forward(batch)[-1], batch["label"])}


def main(c):
    c.restore_latest()
    while c.epoch < 10:
        metrics = c.run_epoch(train, DIGITS.hold_out(5, 0).shuffle(2000).batch(32))
        print("epoch %d: loss %.3f" % (c.epoch, metrics["loss"]))
    print("held out: accuracy %.3f" % c.run_epoch(test, DIGITS.shard(5, 0).batch(64))["accuracy"])


if __name__ == "__main__":
    divvy.run(main)
