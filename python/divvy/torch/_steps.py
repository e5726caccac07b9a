"""What a step that uses PyTorch does at its beginning and its end."""
import functools
import threading

import torch

import divvy
from divvy import _steps
from divvy.torch._tensors import tensors

# Held by the step that uses a Module or an Embedding, from its first use to the step's end: the
# workers of one process share the module's storage. main holds it for a call.
LOCK = threading.RLock()


def step(function=None, *, read_only=False):
    """As divvy.step, and the arrays among the arguments arrive as tensors over the same memory.

        @dt.step
        def train(batch): ...

    A read-only step runs under torch.no_grad().
    """
    if function is None:
        return functools.partial(step, read_only=read_only)
    made = divvy.step(function, read_only=read_only)
    made._wrapper = _call_without_graph if read_only else _call
    return made


def _call(function, positional, named):
    return function(*tensors(positional), **tensors(named))


def _call_without_graph(function, positional, named):
    with torch.no_grad():
        return _call(function, positional, named)


class TorchStep:
    """The part that modules and embeddings have in one attempt of a step. Its members have the
    methods _begin(step), _stage(step) and _end()."""

    def __init__(self, attempt):
        self.name = attempt.step.name
        self.read_only = attempt.step.read_only
        self._members = []

    def join(self, member):
        """Begins with a member, at its first use."""
        if member not in self._members:
            self._members.append(member)
            member._begin(self)

    def begin(self):
        """Waits for the steps of other threads."""
        LOCK.acquire()

    def stage(self):
        """Called when the step's function has returned."""
        for member in self._members:
            member._stage(self)

    def end(self):
        """Called in any case."""
        for member in self._members:
            member._end()
        LOCK.release()


def join(member):
    """The TorchStep of the step that this thread runs, with this member; None outside of steps."""
    attempt = _steps.current_attempt()
    if attempt is None:
        return None
    part = attempt.part(TorchStep)
    part.join(member)
    return part
