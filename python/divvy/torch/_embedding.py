"""Rows of a dynamic table as tensors."""
import numpy as np
import torch

from divvy import _divvy
from divvy._variables import Table, _Scalable
from divvy.torch._steps import join
from divvy.torch._tensors import float_array, tensors


class Embedding(_Scalable):
    """A dynamic table whose rows are tensors. Declare it at module level, in every process.

        ids = dt.Embedding("ids", dim=8, optimizer=divvy.RowwiseAdagrad(0.05))
        rows = ids(batch["ids"])             # [batch, 8]

    name, dim and the options are those of divvy.Table: any int64 is an id, and there is no size.
    Without an optimizer the rows want no gradient. The gradients that backward() gives the rows are
    staged when the step returns; those of equal ids are added up. allow_nonfinite: whether NaN and
    infinity may be applied. `table` is the divvy.Table.
    """

    def __init__(self, name, dim, *, optimizer=None, allow_nonfinite=False, **options):
        self.table = Table(name, dim, optimizer=optimizer, **options)
        self._is_trainable = optimizer is not None
        self._allow_nonfinite = allow_nonfinite
        self._lookups = []  # (ids [n], rows): of the step that runs

    @property
    def name(self):
        """Its name, unique in the job."""
        return self.table.name

    @property
    def dim(self):
        """The elements of a row."""
        return self.table.dim

    def __call__(self, ids):
        """The rows of these ids: a float32 tensor ids.shape + (dim,), on the device of the ids.

        ids: a tensor or an array of int64 or int32, of any shape; repeats are sent once. Blocks for
        one message to each parameter server. In a step the result is a leaf that wants a gradient,
        so an operation in place needs a .clone() first. In main it wants none.
        """
        step = join(self)
        device = None
        if isinstance(ids, torch.Tensor):
            device = ids.device
            ids = ids.detach().cpu().numpy()
        ids = _divvy.own_ids(self.table._spec, ids)
        rows = tensors(self.table.lookup(ids), "the rows of %r" % self)
        if device is not None:
            rows = rows.to(device)
        if step is not None and self._is_trainable and torch.is_grad_enabled():
            rows.requires_grad_()
            self._lookups.append((ids.ravel(), rows))
        return rows

    def __repr__(self):
        return "dt.Embedding(%r, dim=%d)" % (self.name, self.dim)

    def __reduce__(self):
        return self.table.__reduce__()

    # ---- a step's life ----

    def _begin(self, step):
        self._lookups = []

    def _stage(self, step):
        for ids, rows in self._lookups:
            if rows.grad is None:
                continue
            if step.read_only:
                raise RuntimeError("embedding %r has a gradient, and step %s is read-only" %
                                   (self.name, step.name))
            gradient = float_array(rows.grad).reshape(len(ids), self.dim)
            _divvy.apply_row_gradients(self.table._spec, ids, gradient, self._allow_nonfinite, True)

    def _end(self):
        self._lookups = []

    # ---- clip_by_global_norm ----

    def _sum_of_squares(self):
        self._merge()
        return sum(float(rows.grad.double().pow(2).sum()) for _, rows in self._lookups)

    def _scale(self, factor):
        for _, rows in self._lookups:
            rows.grad.mul_(factor)

    def _merge(self):
        """One gradient for each id: the norm is that of their sums."""
        given = [(ids, rows.grad) for ids, rows in self._lookups if rows.grad is not None]
        self._lookups = []
        if not given:
            return
        ids, places = np.unique(np.concatenate([one for one, _ in given]), return_inverse=True)
        gradients = torch.cat([gradient.reshape(-1, self.dim).cpu() for _, gradient in given])
        rows = torch.zeros(len(ids), self.dim)
        rows.grad = torch.zeros(len(ids), self.dim).index_add_(
            0, torch.from_numpy(places.reshape(-1)), gradients)
        self._lookups = [(ids, rows)]
