"""PyTorch on Divvy's parameter servers.

    import divvy, torch, divvy.torch as dt

    ids = dt.Embedding("ids", dim=8, optimizer=divvy.RowwiseAdagrad(0.05))
    model = dt.Module("net", Net(), optimizer=divvy.Adam(1e-3))

    @divvy.step                               # in a file that imports divvy.torch: on tensors
    def train(batch):
        logits = model(batch["x"], ids(batch["ids"]))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["y"])
        loss.backward()                       # what .grad holds when the step returns is applied
        return {"loss": loss}

A step computes with the values at its beginning. There is no torch.optim: the optimizer of a
variable runs on the parameter servers. Several workers in one process take turns with the steps
that use a Module or an Embedding.
"""
try:
    import torch as _torch
except ImportError as _error:
    raise ImportError("divvy.torch needs PyTorch: apt-get install python3-torch, or pip install "
                      "torch") from _error
del _torch

from divvy.torch._device import device
from divvy.torch._embedding import Embedding
from divvy.torch._module import Module
from divvy.torch._steps import step
from divvy.torch._tensors import tensor, tensors

__all__ = ["Embedding", "Module", "device", "step", "tensor", "tensors"]
