"""A perceptron 784-512-10 in PyTorch, Adam, batches of 64, on random images. `mlp.py alone` trains
in one process; otherwise it is a program of divvy. Prints "rate EXAMPLES_PER_SECOND"."""
import sys
import time

ALONE = sys.argv[1:] == ["alone"]

import divvy  # pylint: disable=wrong-import-position
import numpy as np  # pylint: disable=wrong-import-position
import torch  # pylint: disable=wrong-import-position
import divvy.torch as dt  # pylint: disable=wrong-import-position

BATCH, IMAGES = 64, 12_800
draw = np.random.default_rng(1)
images = draw.random((IMAGES, 784), dtype=np.float32)
labels = draw.integers(10, size=IMAGES)
DATA = divvy.tensors({"image": images, "label": labels})

torch.manual_seed(1)
torch.set_num_threads(1)  # the processes share the cores
net = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
model = dt.Module("net", net, optimizer=divvy.Adam(1e-3))


def loss_of(logits, label):
    return torch.nn.functional.cross_entropy(logits, label)


@dt.step
def train(batch):
    loss_of(model(batch["image"]), batch["label"]).backward()


def main(c):
    c.run_epoch(train, DATA.batch(BATCH))  # warms up
    begin = time.perf_counter()
    c.run_epoch(train, DATA.repeat(3).batch(BATCH))
    print("rate %.1f" % (3 * IMAGES / (time.perf_counter() - begin)))


def train_alone():
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for passes in (1, 3):
        begin = time.perf_counter()
        for at in range(0, passes * IMAGES, BATCH):
            at %= IMAGES
            optimizer.zero_grad(set_to_none=True)
            loss_of(net(torch.from_numpy(images[at:at + BATCH])),
                    torch.from_numpy(labels[at:at + BATCH])).backward()
            optimizer.step()
    print("rate %.1f" % (3 * IMAGES / (time.perf_counter() - begin)))


if __name__ == "__main__":
    train_alone() if ALONE else divvy.run(main)
