"""What a step that uses PyTorch does at its beginning and its end."""
import threading

import torch

import divvy
from divvy import _divvy, _steps
from divvy.torch._tensors import Lent, tensors

# Held by the step that uses a Module or an Embedding, from its first use to the step's end: the
# workers of one process share the module's storage. main holds it for a call.
LOCK = threading.RLock()


def step(function=None, *, read_only=False):
    """divvy.step with arrays="torch": arrays arrive as tensors, whatever the file imports.

        @dt.step
        def train(batch): ...
    """
    return divvy.step(function, read_only=read_only, arrays="torch")


def _call(a_step, values):
    values = [tensors(value, "argument '%s'" % name)
              for name, value in zip(a_step._names(), values)]
    if not a_step.read_only:
        return a_step._invoke(values)
    with torch.no_grad():
        return a_step._invoke(values)


_steps.call_with_tensors_by(_call)


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


def check_in_program(what):
    """RuntimeError: this thread is not that of main, nor that of a step. To be called before LOCK
    is taken: the step that waits for this thread may hold it."""
    if not _divvy.in_program() and not _divvy.in_step():
        raise RuntimeError(
            "%s is used on a thread that runs neither main nor a step: use it in main, before "
            "divvy.run returns, or on the thread of the step, and give tensors to other threads. "
            "Or compute with the torch module, which keeps the values of its last use" % what)


def join(member):
    """The TorchStep of the step that this thread runs, with this member; None outside of steps."""
    attempt = _steps.current_attempt()
    if attempt is None:
        return None
    part = attempt.part(TorchStep)
    part.join(member)
    return part
