"""A two-layer perceptron in NumPy learns the digits, in one process."""
import os

import numpy as np

import divvy

DIGITS = os.path.join(os.path.dirname(__file__), "../../examples/data/digits.csv.gz")
COLUMNS = [divvy.Column("image", width=64), divvy.Column("label", "int64")]

kernel1 = divvy.Variable("digits/kernel1", (64, 64), optimizer=divvy.Adam(3e-3),
                         initializer=divvy.GlorotUniform())
bias1 = divvy.Variable("digits/bias1", (64,), optimizer=divvy.Adam(3e-3))
kernel2 = divvy.Variable("digits/kernel2", (64, 10), optimizer=divvy.Adam(3e-3),
                         initializer=divvy.GlorotUniform())
bias2 = divvy.Variable("digits/bias2", (10,), optimizer=divvy.Adam(3e-3))


def forward(batch):
    k1, b1, k2, b2 = divvy.read(kernel1, bias1, kernel2, bias2)
    x = batch["image"] / np.float32(16)
    hidden = np.maximum(x @ k1 + b1, 0)
    return x, k2, hidden, hidden @ k2 + b2


@divvy.step
def train(batch):
    x, k2, hidden, logits = forward(batch)
    n, labels = len(x), batch["label"]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    losses = -np.log(odds[np.arange(n), labels])
    odds[np.arange(n), labels] -= 1
    odds /= n
    below = (odds @ k2.T) * (hidden > 0)
    kernel2.apply_gradient(hidden.T @ odds)
    bias2.apply_gradient(odds.sum(axis=0))
    kernel1.apply_gradient(x.T @ below)
    bias1.apply_gradient(below.sum(axis=0))
    return {"loss": losses, "accuracy": divvy.Accuracy(logits, labels)}


@divvy.step(read_only=True)
def evaluate(batch):
    return {"accuracy": divvy.Accuracy(forward(batch)[-1], batch["label"])}


def test_the_network_learns_the_digits():
    digits = divvy.csv(DIGITS, COLUMNS)
    with divvy.testing.cluster(ps=2) as c:
        first = c.run_epoch(train, digits.hold_out(5, 0).shuffle(2000).batch(32))
        for _ in range(9):
            last = c.run_epoch(train, digits.hold_out(5, 0).shuffle(2000).batch(32))
        held_out = c.run_epoch(evaluate, digits.shard(5, 0).batch(64))
        assert c.epoch == 10
        assert c.step == 10 * 45  # 1,437 images in batches of 32
    assert first.counts["accuracy"] == 1437
    assert last["loss"] < first["loss"] / 4
    assert held_out.counts["accuracy"] == 360
    assert held_out["accuracy"] > 0.93
