"""Tensors over the memory of arrays, and arrays over the memory of tensors."""
import numpy as np
import torch

from divvy import _steps


class _Writable:
    """The memory of a read-only array, for NumPy to make a writable view of.

    torch.from_numpy warns about arrays that are read-only, because PyTorch has no such tensors, and
    NumPy's DLPack refuses them.
    """

    def __init__(self, array):
        self._array = array  # keeps the memory
        self.__array_interface__ = dict(array.__array_interface__,
                                        data=(array.__array_interface__["data"][0], False))


class Lent:
    """Tensors over memory that Divvy reads again: a batch that is cached, a value that was pulled.

    PyTorch has no read-only tensors. So the tensors are kept, and stage() finds those that an
    operation in place has changed since, themselves or by a view. A part of a step's attempt.
    """

    def __init__(self, unused_attempt=None):
        self._lent = []  # (what, tensor, its version)

    def add(self, what, lent):
        """Remembers a tensor. what: its name in the error."""
        self._lent.append((what, lent, lent._version))

    def begin(self):
        """Nothing to do."""

    def stage(self):
        """RuntimeError: a tensor was changed."""
        for what, lent, version in self._lent:
            if lent._version != version:
                raise RuntimeError(
                    "%s was changed in place, and its memory is Divvy's, which reads it again: "
                    ".clone() it first, or use the operation that is not in place" % what)

    def end(self):
        """Called in any case."""
        self._lent = []


def tensor(array):
    """A tensor over the memory of an array; it is not copied if it is contiguous.

    array: a NumPy array of a dtype that PyTorch has. Do not write to a tensor of a read-only array,
    because Divvy reads the same memory: .clone() it first. A step that changes one by an operation
    of PyTorch fails with a RuntimeError when it returns. That keeps these tensors until then.
    """
    return _lent(array, "a tensor of dt.tensor", None)


def _lent(array, what, lent):
    """over(array), remembered in `lent`, or in this thread's step, if others read the memory."""
    made = over(array)
    if not isinstance(array, np.ndarray) or array.flags.writeable or not _shares(array, made):
        return made
    attempt = _steps.current_attempt()
    if lent is None and attempt is not None:
        lent = attempt.part(Lent)
    if lent is not None:
        lent.add("%s, %s %s," % (what, array.dtype, list(array.shape)), made)
    return made


def _shares(array, made):
    return array.__array_interface__["data"][0] == made.data_ptr()


def over(array):
    """tensor(array), without a check that nobody changes it."""
    if not isinstance(array, np.ndarray):
        raise TypeError("dt.tensor got a %s: wanted a NumPy array" % type(array).__name__)
    if not array.flags.c_contiguous or not array.dtype.isnative:
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    is_bfloat16 = array.dtype.name == "bfloat16"
    if is_bfloat16:
        array = array.view(np.int16)
    if not array.flags.writeable:
        array = np.asarray(_Writable(array))
    made = torch.from_numpy(array)
    return made.view(torch.bfloat16) if is_bfloat16 else made


def tensors(nest, what="a nest of dt.tensors", lent=None):
    """The same nest of dicts, lists and tuples with tensors in the place of arrays. See tensor.

    what: the name of the nest in errors. lent: where its tensors are remembered; None: in the step
    that this thread runs.
    """
    if isinstance(nest, np.ndarray):
        return _lent(nest, what, lent)
    if isinstance(nest, np.generic):  # a float32, say, of an element that is no batch
        return over(np.array(nest))
    if type(nest) is dict:
        return {name: tensors(one, "%s[%r]" % (what, name), lent) for name, one in nest.items()}
    if type(nest) in (list, tuple):
        return type(nest)(tensors(one, "%s[%d]" % (what, i), lent) for i, one in enumerate(nest))
    return nest


def float_array(value):
    """A float32 array of a tensor's values, over the same memory where that has this form."""
    return value.detach().to("cpu", torch.float32).contiguous().numpy()


def own_array(value, dtype):
    """A copy of a tensor's values, as an array of this torch.dtype."""
    return value.detach().to("cpu", dtype).contiguous().clone().numpy()
