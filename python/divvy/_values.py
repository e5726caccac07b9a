"""Arrays: what C++ asks of NumPy, and values that are not arrays yet."""
import sys
from typing import NamedTuple

import numpy as np

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:
    _bfloat16 = None


class IndexedSlices(NamedTuple):
    """Some rows of a larger array, as tf.IndexedSlices.

    ids: int64 [n]. rows: [n, ...]. num_rows: the rows of the larger array.
    """

    ids: np.ndarray
    rows: np.ndarray
    num_rows: int

    def _divvy_slices(self):
        return (self.ids, self.rows, int(self.num_rows))


def bfloat16():
    """NumPy's bfloat16, or None."""
    return None if _bfloat16 is None else np.dtype(_bfloat16)


def contiguous(array):
    """A contiguous copy in the byte order of this machine."""
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)


_DLPACK_CPUS = (1, 3)  # the memory of the host, and such memory that is pinned for CUDA


def _from_gpu(value, what):
    """A copy of an array in the memory of a GPU. TypeError, which begins with `what`."""
    cause = None
    try:
        if hasattr(value, "__dlpack__") and "torch" in sys.modules:
            return sys.modules["torch"].from_dlpack(value).cpu().numpy()
        if hasattr(value, "__array__"):
            return np.asarray(value)
    except Exception as error:  # pylint: disable=broad-except
        cause = error  # of a library that the program has chosen, so of any kind
    raise TypeError("%s is a %s in the memory of a GPU, which cannot be read from here: copy it to "
                    "the CPU first, as by .get() in CuPy or .copy_to_host() in Numba" %
                    (what, type(value).__name__)) from cause


def _is_on_gpu(value):
    device = getattr(value, "__dlpack_device__", None)
    if device is not None:
        return device()[0] not in _DLPACK_CPUS
    return hasattr(value, "__cuda_array_interface__")


def _of_tensor(torch, value):
    """The array of a tensor of PyTorch. A dataset has one in each record, so each call counts."""
    if value.requires_grad:
        value = value.detach()
    if not value.is_cpu:
        value = value.cpu()
    if value.dtype is torch.bfloat16:
        if _bfloat16 is None:
            return value.to(torch.float32).numpy()
        return value.contiguous().view(torch.int16).numpy().view(_bfloat16)
    return value.numpy()


def as_array(value, what="the value"):
    """An array of `value`, or None if it is nothing like one. what: its name in errors."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_tensor(torch, value)
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("%s is a masked array, and the mask would be lost: call .filled(x), or "
                        "give the mask as an array of its own" % what)
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if _is_on_gpu(value):
        return _from_gpu(value, what)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except BufferError:  # it is read-only, which DLPack cannot say
            if not hasattr(value, "__array__"):
                raise
    if hasattr(value, "_is_no_array"):
        raise TypeError("%s: %s" % (what, value._is_no_array()))
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    return None


def array_of_numbers(value):
    """The same, and a list of numbers becomes an array, too. For arguments that do not travel."""
    if isinstance(value, (list, tuple)):
        return np.asarray(value)
    array = as_array(value)
    return value if array is None else array


def numbers_as(value, dtype, what):
    """Python's numbers, or lists of them, as an array of this dtype."""
    kind = np.dtype(_bfloat16 if dtype == "bfloat16" and _bfloat16 else
                    "float32" if dtype == "bfloat16" else dtype)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError("%s is no array: %s" % (what, error)) from None
    if array.dtype == object or array.dtype.kind in "USV":
        raise TypeError("%s is a %s: wanted numbers or an array" % (what, type(value).__name__))
    if array.size == 0:
        return array.astype(kind)
    if array.dtype.kind == "c":
        raise TypeError("%s has complex numbers, and the variable is %s" % (what, dtype))
    if kind.kind in "iub" and array.dtype.kind == "f":
        raise TypeError("%s has floats, or ints of more than 64 bits, and the variable is %s: give "
                        "whole numbers of at most 64 bits" % (what, dtype))
    with np.errstate(over="ignore"):
        converted = array.astype(kind)
    holds = (np.array_equal(converted, array) if kind.kind in "iub" else
             np.array_equal(np.isfinite(converted), np.isfinite(array)))
    if not holds:
        raise TypeError("%s has a number that %s cannot hold" % (what, dtype))
    return converted


def dtype_name(value):
    """The name of a dtype that is given as a text, or as anything that NumPy or PyTorch has."""
    if isinstance(value, str) and value == "bfloat16":
        return value
    text = str(value)
    if text.startswith("torch."):
        return text[len("torch."):]
    try:
        return np.dtype(value).name
    except TypeError:
        raise TypeError("%r is no dtype" % (value,)) from None
