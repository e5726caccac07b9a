"""Whether an advertisement is clicked: Facebook's DLRM takes the dot of every pair of vectors, of
categories and of the counts. Without a file of Criteo's logs it generates clicks.

    python3 examples/python/dlrm_torch.py [train.txt]
"""
import sys
import numpy as np
import torch
import divvy
import divvy.torch as dt

FILE = sys.argv.pop(1) if sys.argv[1:] and sys.argv[1][0] != "-" else None
COUNTS, FIELDS, WIDTH = 13, 26, 16


def planted(count=20_000, categories=30):
    draw = np.random.default_rng(1)
    dense = draw.exponential(size=(count, COUNTS)).astype(np.float32)
    sparse = draw.zipf(1.5, size=(count, FIELDS)) % categories + categories * np.arange(FIELDS)
    vectors = 0.6 * draw.normal(size=(categories * FIELDS, 4))
    logits = (vectors[sparse[:, ::2]] * vectors[sparse[:, 1::2]]).sum((1, 2))
    clicks = draw.random(count) < 1 / (1 + np.exp(-logits - dense @ (0.3 * draw.normal(size=13))))
    return divvy.tensors({"dense": dense, "sparse": sparse, "label": clicks.astype(np.float32)})


CLICKS = divvy.criteo(FILE, by_column=True) if FILE else planted()


class Dlrm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.pairs = torch.triu_indices(FIELDS + 1, FIELDS + 1, offset=1)
        self.bottom = nn.Sequential(nn.Linear(COUNTS, 64), nn.ReLU(), nn.Linear(64, WIDTH))
        self.top = nn.Sequential(nn.Linear(WIDTH + len(self.pairs[0]), 64), nn.ReLU(),
                                 nn.Linear(64, 1))

    def forward(self, dense, rows):
        bottom = self.bottom(torch.log1p(dense.clamp(min=0)))
        vectors = torch.cat([bottom[:, None], rows], 1)
        dots = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, dots], 1))[:, 0]


categories = dt.Embedding("categories", WIDTH, optimizer=divvy.RowwiseAdagrad(0.1, 1e-6),
                          initializer=divvy.RandomNormal(0, 0.2))
LOSS = torch.nn.BCEWithLogitsLoss(reduction="none")
model = dt.Module("dlrm", Dlrm(), optimizer=divvy.Adagrad(0.05))


@dt.step
def train(batch):
    loss = LOSS(model(batch["dense"], categories(batch["sparse"])), batch["label"])
    loss.mean().backward()
    return {"loss": loss}


@dt.step(read_only=True)
def test(batch):
    return {"auc": divvy.Auc(model(batch["dense"], categories(batch["sparse"])), batch["label"])}


def main(c):
    c.restore_latest()
    while c.epoch < 2:
        c.run_epoch(train, CLICKS.hold_out(10, 0).shuffle(50_000).batch(256))
    print("held out: auc %.3f" % c.run_epoch(test, CLICKS.shard(10, 0).batch(1024))["auc"])


if __name__ == "__main__":
    divvy.run(main)
