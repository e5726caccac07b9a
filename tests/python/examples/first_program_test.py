"""The shortest program with torch: wide rows, a module, @divvy.step, a file of people."""
import os
import random
import subprocess
import sys

import pytest

from run_example import figures

PROGRAM = '''
import divvy, torch, divvy.torch as dt


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.BatchNorm1d(6 + 8 * 8),
                                          torch.nn.Linear(6 + 8 * 8, 16), torch.nn.ReLU(),
                                          torch.nn.Linear(16, 1))

    def forward(self, x, rows):
        return self.layers(torch.cat([torch.log1p(x), rows.flatten(1)], 1))[:, 0]


COLUMNS = [divvy.Column("x", width=6), divvy.Column("ids", "string", width=8, salt="adult"),
           divvy.Column("y")]
ids   = dt.Embedding("ids", dim=8, optimizer=divvy.RowwiseAdagrad(0.05))
model = dt.Module("net", Net(), optimizer=divvy.Adam(1e-3))

@divvy.step
def train(batch):
    logits = model(batch["x"], ids(batch["ids"]))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["y"])
    loss.backward()
    return {"loss": loss, "auc": divvy.Auc(logits, batch["y"])}

@divvy.step(read_only=True)
def test(batch):
    logits = model(batch["x"], ids(batch["ids"]))
    return {"auc": divvy.Auc(logits, batch["y"])}

def main(c):
    c.restore_latest()
    while c.epoch < 3:
        print(c.run_epoch(train, divvy.csv("adult.csv", columns=COLUMNS)
                                 .shuffle(10_000).batch(128)))
    print("test: auc %.4f" % c.run_epoch(test, divvy.csv("test.csv", COLUMNS).batch(1024))["auc"])
    c.export("model.safetensors")

if __name__ == "__main__":
    divvy.run(main)
'''


def people(count, draw):
    for _ in range(count):
        words = ["%d=%d" % (column, draw.randrange(5)) for column in range(8)]
        rich = draw.gauss(0, 1) < 1.5 * (words[0] > "0=2") - 1.5 * (words[3] > "3=1")
        yield ",".join([str(draw.randrange(80)) for _ in range(6)] + words + [str(int(rich))])


@pytest.fixture(name="folder")
def make_folder(tmp_path):
    draw = random.Random(3)
    (tmp_path / "adult.csv").write_text("\n".join(people(4000, draw)) + "\n")
    (tmp_path / "test.csv").write_text("\n".join(people(500, draw)) + "\n")
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def test_a_torch_program_needs_no_decorator_of_its_own(folder):
    done = subprocess.run([sys.executable, "train.py", "--gpus=none",
                           "--checkpoint_dir=checkpoints"], cwd=folder,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True,
                          text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    assert figures("test: auc", done.stdout)[0] > 0.7
    assert (folder / "model.safetensors").exists()
