#!/usr/bin/env python3
"""torch_peer.py: the workloads of bench/gpu/train.cc in PyTorch (eager). Prints lines of JSON with
the same `what`: examples a second of training steps whose batches come from the host's memory, and
the peak of device memory. Dense parameters use Adam. The table uses Adagrad instead of row-wise
Adagrad."""
import json
import time

import torch
from torch import nn

SECONDS = 3.0
DEVICE = torch.device("cuda:0")


def mlp(widths):
    layers = []
    for i in range(len(widths) - 1):
        layers += [nn.Linear(widths[i], widths[i + 1])] + ([nn.ReLU()] if i + 2 < len(widths) else [])
    return nn.Sequential(*layers)


class MlpWork:
    """784-512-10 on images of uint8."""

    def __init__(self, batch):
        self.batch = batch
        self.name = "mlp 784-512-10, batch %d" % batch
        self.model = mlp([784, 512, 10]).to(DEVICE)
        self.optimizers = [torch.optim.Adam(self.model.parameters(), 1e-3)]
        self.batches = [(torch.randint(0, 256, (batch, 784), dtype=torch.uint8).pin_memory(), torch.randint(0, 10, (batch,)).pin_memory()) for _ in range(8)]

    def loss(self, images, labels):
        return nn.functional.cross_entropy(self.model(images.float() / 255.0), labels)


class DlrmWork:
    """examples/dlrm.cc: 13 counts, and 26 categories in one table."""

    def __init__(self, batch):
        self.batch = batch
        self.name = "dlrm, batch %d" % batch
        self.table = nn.EmbeddingBag(260_000, 16, sparse=True, mode="sum").to(DEVICE)
        self.bottom = mlp([13, 64, 16]).to(DEVICE)
        self.top = mlp([16 + 351, 64, 1]).to(DEVICE)
        rows, columns = torch.tril_indices(27, 27, -1, device=DEVICE)
        self.lower = rows * 27 + columns
        dense = list(self.bottom.parameters()) + list(self.top.parameters())
        self.optimizers = [torch.optim.Adam(dense, 2e-3), torch.optim.Adagrad(self.table.parameters(), 0.1)]
        self.batches = [(torch.rand(batch, 13).pin_memory(), torch.randint(0, 260_000, (batch, 26)).pin_memory(),
                         torch.randint(0, 2, (batch,)).float().pin_memory()) for _ in range(8)]

    def loss(self, counts, rows, labels):
        categories = self.table(rows.reshape(-1, 1)).reshape(self.batch, 26, 16)
        counts = torch.relu(self.bottom(torch.log1p(counts)))
        features = torch.cat([counts.unsqueeze(1), categories], 1)
        # A flat index, because the gradient of indexing by two tensors would sort and accumulate.
        products = torch.bmm(features, features.transpose(1, 2)).reshape(self.batch, 27 * 27)
        pairs = products.index_select(1, self.lower)
        logits = self.top(torch.cat([counts, pairs], 1)).reshape(-1)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)


def step(work, i):
    batch = [tensor.to(DEVICE, non_blocking=True) for tensor in work.batches[i % len(work.batches)]]
    loss = work.loss(*batch)
    for optimizer in work.optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss.backward()
    for optimizer in work.optimizers:
        optimizer.step()


def measure(work):
    for i in range(20):
        step(work, i)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        for i in range(20):
            step(work, i)
        torch.cuda.synchronize()
        steps += 20
    rate = steps * work.batch / (time.perf_counter() - began)
    print(json.dumps({"what": work.name, "rate": rate, "unit": "examples/s"}), flush=True)


def run(kind, batch):
    """Runs one workload. A function, so that its memory is released before the next workload."""
    torch.cuda.reset_peak_memory_stats()
    work = kind(batch)
    measure(work)
    print(json.dumps({"what": "device memory, " + work.name, "rate": torch.cuda.max_memory_allocated() / 1e6, "unit": "MB"}), flush=True)


def main():
    for kind in (MlpWork, DlrmWork):
        for batch in (64, 512, 1024, 4096):
            run(kind, batch)


if __name__ == "__main__":
    main()
