"""Variables and dynamic tables on the parameter servers."""
from typing import Optional, Sequence

import numpy as np

from divvy import _divvy, _registry
from divvy._initializers import (Admission, AdmitAlways, Constant, EvictNever, Eviction,
                                 Initializer, RandomUniform)
from divvy._native import Option, native, option, text, whole
from divvy._optimizers import Optimizer


def _name(name, what):
    return text(name, "the name of a %s, its first argument," % what)


def _shape(shape, what):
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    try:
        dims = tuple(shape)
    except TypeError:
        raise TypeError("the shape of %s is %r: wanted a tuple of ints" % (what, shape)) from None
    return [whole(dim, "a dimension of %s" % what) for dim in dims]


def checked_optimizer(value, what):
    """The C++ object of an optimizer, or None."""
    if value is None:
        return None
    return option(value, Optimizer, "the optimizer of %s" % what, "Adam(1e-3)")


def _initializer(value, dtype, what):
    """The C++ initializer, and a text that tells it from others."""
    if value is None or isinstance(value, Option) or callable(value):
        return option(value, Initializer, "the initializer of %s" % what,
                      "RandomNormal(stddev=0.1)"), repr(value)
    if isinstance(value, (bool, int, float)):
        return native(Constant(float(value))), repr(Constant(float(value)))
    initial = _divvy.InitialValue(value, dtype)
    return initial, "an array"


class _Stored:
    """What variables and tables have in common."""

    def __init__(self, spec, text):
        self._spec = spec
        self._text = text
        self._place = _registry.where(2)
        _registry.declare(self)

    @property
    def name(self):
        """Its name, unique in the job."""
        return self._spec.name

    def __repr__(self):
        return "%s(%r, %s)" % (type(self).__name__, self.name, self._text)

    def __reduce__(self):
        raise TypeError("%r cannot be pickled or copied: it stands for values on the parameter "
                        "servers. Other processes reach them in steps" % self)

    def __array__(self, *unused, **unused_too):
        raise TypeError(self._is_no_array())

    def _is_no_array(self):
        return "%s is no array: its values are on the parameter servers, and %s gets them" % (
            self, ".read()" if isinstance(self, Variable) else ".lookup(ids)")

    def lookup(self, ids):
        """The rows of these ids, in their order: an array of shape ids.shape + row shape.

        ids: integers of any shape; repeats are sent once. Of a table any int64; a key without a
        row gives what the table's `absent` says, and gets none. Blocks for one message to each
        parameter server. ValueError: an id outside of a variable.
        """
        return _divvy.lookup(self._spec, ids)

    def scatter(self, op, ids, rows):
        """Changes rows: op is "update", "add", "sub", "mul", "div", "min" or "max".

        ids: integers of any shape. rows: ids.shape + row shape. Staged in a step, applied at once
        in main. A table takes update, add and sub.
        """
        _divvy.scatter(self._spec, op, ids, rows)


class Variable(_Stored):
    """A variable on the parameter servers. Declare it at module level, in every process.

    name: unique in the job. shape: a tuple; () is a scalar. optimizer: applies the gradients, on
    the parameter servers; only a float32 variable has one. initializer: an option such as
    divvy.GlorotUniform(), a number, or an array of the whole value. shards: the number of parts;
    None: Divvy cuts it among the parameter servers.

    In a step, reads give the values at the step's beginning with the step's own assigns, and
    writes are staged: they are applied together, once, when the step has succeeded. In main, calls
    take effect at once. The arrays that reads give are read-only; copy one to change it.
    """

    def __init__(self, name, shape, *, optimizer=None, initializer=0.0, dtype="float32",
                 aggregation="none", wire="exact", shards=None):
        what = "variable %r" % _name(name, "variable")
        dims = _shape(shape, what)
        initial, initial_text = _initializer(initializer, dtype, what)
        spec = _divvy.variable_spec(
            name, dims, dtype, initial, checked_optimizer(optimizer, what),
            text(aggregation, "the aggregation of %s" % what), text(wire, "the wire of %s" % what),
            0 if shards is None else whole(shards, "the shards of %s" % what, 1))
        super().__init__(
            spec, "%s %s, optimizer=%r, initializer=%s, aggregation=%s, wire=%s, shards=%r" %
            (spec.dtype, tuple(dims), optimizer, initial_text, aggregation, wire, shards))

    @property
    def shape(self):
        """Its shape, a tuple of ints."""
        return self._spec.shape

    @property
    def dtype(self):
        """The name of its dtype, such as "float32"."""
        return self._spec.dtype

    def read(self):
        """The whole value, a read-only array. Blocks for one message to each parameter server."""
        return _divvy.read_all([self._spec])[0]

    def numpy(self):
        """The same as read(), as a new array that may be written."""
        return np.array(self.read())

    def assign(self, value):
        """Sets the variable. value: an array of its shape and dtype, or numbers."""
        _divvy.assign(self._spec, value)

    def assign_add(self, value):
        """Adds `value`, an array of its shape and dtype, or numbers."""
        _divvy.assign_add(self._spec, value)

    def assign_sub(self, value):
        """Subtracts `value`, an array of its shape and dtype, or numbers."""
        _divvy.assign_sub(self._spec, value)

    def apply_gradient(self, gradient, *, allow_nonfinite=False):
        """Gives the variable's optimizer a gradient, in a step. Several ones are added up.

        gradient: float32, of the variable's shape. ValueError: another shape, no optimizer, or a
        NaN or infinity, unless allow_nonfinite.
        """
        _divvy.apply_gradient(self._spec, gradient, allow_nonfinite, False)

    def apply_row_gradients(self, ids, gradient, *, allow_nonfinite=False):
        """Gives the optimizer a gradient of some rows, in a step. Rows of equal ids are added up.

        ids: integers of any shape. gradient: float32, ids.shape + row shape.
        """
        _divvy.apply_row_gradients(self._spec, ids, gradient, allow_nonfinite, False)


class Table(_Stored):
    """A dynamic table: rows of float32 that any int64 names. It has no size.

    name: unique in the job. dim: elements of a row. A row is made when a finished step writes to
    its key; a read makes none. admission, eviction: which keys get a row, and which lose it.
    absent: what a key without a row reads, "initial_value" or "zeros". max_rows: 0 is no limit;
    full: "refuse" counts keys that find no room, "fail" ends the job. dtype: how the values are
    stored, "float32", "float16" or "bfloat16".
    """

    def __init__(self, name, dim, *, optimizer=None, initializer=RandomUniform(),
                 admission=AdmitAlways(), eviction=EvictNever(), absent="initial_value",
                 max_rows=0, full="refuse", dtype="float32"):
        what = "table %r" % _name(name, "table")
        self.dim = whole(dim, "the dim of %s" % what)
        initial, initial_text = _initializer(initializer, "float32", what)
        spec = _divvy.table_spec(
            name, self.dim, dtype, initial, checked_optimizer(optimizer, what),
            option(admission, Admission, "the admission of %s" % what, "AdmitAfter(2)"),
            option(eviction, Eviction, "the eviction of %s" % what, "EvictUnusedFor(3600)"),
            text(absent, "absent of %s" % what), whole(max_rows, "max_rows of %s" % what),
            text(full, "full of %s" % what))
        super().__init__(
            spec, "table of %s [%d], optimizer=%r, initializer=%s, admission=%r, eviction=%r, "
            "absent=%s, max_rows=%d, full=%s" %
            (spec.dtype, dim, optimizer, initial_text, admission, eviction, absent, max_rows, full))

    def apply_gradient(self, ids, gradient, *, allow_nonfinite=False):
        """Gives the table's optimizer a gradient of some rows, in a step.

        ids: int64 of any shape; rows of equal ids are added up. gradient: float32, ids.shape +
        (dim,). ValueError: as Variable.apply_gradient.
        """
        _divvy.apply_row_gradients(self._spec, ids, gradient, allow_nonfinite, False)

    def find(self, keys):
        """What each key has: a list of dicts {key, exists, count, last_minute, values}."""
        return _divvy.find_keys(self._spec, keys)

    def stats(self):
        """Its size: a dict {rows, waiting, bytes, admitted, refused, evicted, servers}."""
        return _divvy.table_stats(self._spec)


def read(*variables: Variable):
    """The whole values of several variables, with one message to each parameter server."""
    return _divvy.read_all([variable._spec for variable in variables])


class _Scalable:
    """Gradients that clip_by_global_norm scales where they are."""

    def _sum_of_squares(self):
        raise NotImplementedError

    def _scale(self, factor):
        raise NotImplementedError


def _sum_of_squares(gradient):
    if gradient is None:
        return 0.0
    if isinstance(gradient, _Scalable):
        return gradient._sum_of_squares()
    flat = gradient.ravel().astype(np.float64)
    return float(np.dot(flat, flat))


def _scaled(gradient, factor):
    if gradient is None:
        return None
    if isinstance(gradient, _Scalable):
        gradient._scale(factor)
        return gradient
    return gradient * gradient.dtype.type(factor)


def clip_by_global_norm(gradients: Sequence[Optional[np.ndarray]], norm: float):
    """The gradients, scaled by norm / their global norm if that is below 1; and the global norm.

    The global norm is the square root of the sum of the squares of all elements, in float64. A None
    stays None. In a step that uses PyTorch, give it the dt.Module and dt.Embedding objects after
    backward(): their gradients are scaled where they are. ValueError: `norm` is not above 0, or the
    global norm is not finite.
    """
    if not norm > 0:
        raise ValueError("norm is %r: wanted a number above 0" % (norm,))
    given = [one if one is None or isinstance(one, _Scalable) else np.asarray(one)
             for one in gradients]
    total = float(np.sqrt(sum(map(_sum_of_squares, given))))
    if not np.isfinite(total):
        raise ValueError("the global norm of the gradients is %r: a gradient has a NaN or an "
                         "infinity" % total)
    if total <= norm:
        return given, total
    return [_scaled(one, norm / total) for one in given], total
