"""Divvy: training on parameter servers, where each step counts exactly once.

A program is one file, which every process of the job runs:

    import divvy, numpy as np

    w = divvy.Variable("w", (64, 10), optimizer=divvy.Sgd(0.1))

    @divvy.step                               # runs on a worker; counts once
    def train(batch):
        x, y = batch["x"], batch["y"]
        p = np.exp(x @ w.read()); p /= p.sum(1, keepdims=True)
        p[np.arange(len(y)), y] -= 1
        w.apply_gradient(x.T @ p / len(y))
        return {"error": divvy.Mean((p.argmax(1) != y).astype(np.float32))}

    def main(c):                              # runs on the coordinator
        c.restore_latest()
        while c.epoch < 3:
            print(c.run_epoch(train, divvy.csv("data.csv", columns=...).shuffle(1000).batch(32)))

    if __name__ == "__main__":
        divvy.run(main)

`python3 train.py` runs the job in one process, `divvyctl launch --ps=2 --workers=4 -- python3
train.py` as a cluster.
"""
try:
    import numpy as _numpy
except ImportError as _error:
    raise ImportError("divvy needs NumPy: apt-get install python3-numpy, or pip install numpy"
                      ) from _error
del _numpy

from divvy import testing
from divvy._coordinator import Coordinator, PassIterator, PerWorkerDataset, RemoteValue
from divvy._datasets import (
    Column, Dataset, criteo, csv, from_torch, generator, idx, libsvm, records, tensors, text_key,
    tfrecord, zip)
from divvy._errors import (
    AbortedError, AlreadyExistsError, CancelledError, DataLossError, DeadlineExceededError, Error,
    FailedPreconditionError, InternalError, InvalidArgumentError, NotFoundError, OutOfRangeError,
    PermissionDeniedError, ResourceExhaustedError, UnauthenticatedError, UnavailableError,
    UnimplementedError, UnknownError)
from divvy._initializers import (
    AdmitAfter, AdmitAlways, AdmitWithProbability, Constant, EvictBelowNorm, EvictLeastRecent,
    EvictLeastUsed, EvictNever, EvictUnusedFor, GlorotNormal, GlorotUniform, HeNormal, HeUniform,
    Identity, LecunNormal, LecunUniform, Ones, Orthogonal, RandomNormal, RandomUniform,
    TruncatedNormal, Zeros)
from divvy._load import load
from divvy._metrics import Accuracy, Auc, Mean, Metric, Metrics, RecallAt, Rmse
from divvy._optimizers import (
    Adagrad, Adam, CosineDecay, ExponentialDecay, Ftrl, GroupFtrl, InverseTimeDecay, Momentum,
    PiecewiseConstant, PolynomialDecay, RmsProp, RowwiseAdagrad, Sgd)
from divvy._program import run
from divvy._steps import Step, cancelled, step, step_number, step_seed, worker_index
from divvy._values import IndexedSlices
from divvy._variables import Table, Variable, clip_by_global_norm, read

__all__ = [name for name in dir() if not name.startswith("_")]
