"""Tensors over the memory of arrays, and arrays over the memory of tensors."""
import numpy as np
import torch


class _Writable:
    """The memory of a read-only array, for NumPy to make a writable view of.

    torch.from_numpy warns about arrays that are read-only, because PyTorch has no such tensors, and
    NumPy's DLPack refuses them.
    """

    def __init__(self, array):
        self._array = array  # keeps the memory
        self.__array_interface__ = dict(array.__array_interface__,
                                        data=(array.__array_interface__["data"][0], False))


def tensor(array):
    """A tensor over the memory of an array; it is not copied if it is contiguous.

    array: a NumPy array of a dtype that PyTorch has. Do not write to the tensor: other parts of the
    process read the same memory. Use .clone() to get one of your own.
    """
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


def tensors(nest):
    """The same nest of dicts, lists and tuples with tensors in the place of arrays. See tensor."""
    if isinstance(nest, np.ndarray):
        return tensor(nest)
    if type(nest) is dict:
        return {name: tensors(one) for name, one in nest.items()}
    if type(nest) in (list, tuple):
        return type(nest)(tensors(one) for one in nest)
    return nest


def float_array(value):
    """A float32 array of a tensor's values, over the same memory where that has this form."""
    return value.detach().to("cpu", torch.float32).contiguous().numpy()


def own_array(value, dtype):
    """A copy of a tensor's values, as an array of this torch.dtype."""
    return value.detach().to("cpu", dtype).contiguous().clone().numpy()
