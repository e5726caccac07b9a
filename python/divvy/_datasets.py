"""Datasets: recipes that each worker follows for itself."""
import dataclasses
import os
import threading
from typing import Optional, Sequence

import numpy as np

from divvy import _divvy, _errors, _functions, _registry, _values
from divvy._native import text, whole

# Arrays that main gives to divvy.tensors travel with the recipe. Larger ones belong to the module.
_MOST_BYTES_THAT_TRAVEL = 1 << 20
_DTYPES = ("string", "bool", "int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32",
           "float64")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a CSV file, or a feature of a tf.train.Example.

    dtype: "float32", "int64", ... or "string", which must be made a key: hash_buckets > 0 hashes
    the text to an int64 below it, `salt` hashes it with a salt, so that columns can share a table.
    width: adjacent fields that become one array. below > 0: integers in [0, below); others are an
    error. if_empty: the number that an empty field stands for; without it an empty field is an
    error. allow_nonfinite: nan and inf are taken. shape: of a feature; its first dimension may be
    -1.
    """

    name: str
    dtype: str = "float32"
    width: int = 1
    hash_buckets: int = 0
    below: int = 0
    if_empty: Optional[float] = None
    allow_nonfinite: bool = False
    salt: Optional[str] = None
    shape: Sequence[int] = ()

    def _recipe(self):
        fields = dataclasses.asdict(self)
        fields["shape"] = [whole(dim, "a dimension of column %r" % self.name)
                           for dim in self.shape]
        fields["dtype"] = self.dtype if self.dtype == "string" else _values.dtype_name(self.dtype)
        if fields["dtype"] not in _DTYPES:
            raise TypeError("column %r has dtype %r: wanted one of %s" %
                            (self.name, self.dtype, ", ".join(_DTYPES)))
        return {name: value for name, value in fields.items() if value is not None}


def _columns(columns, what):
    if isinstance(columns, dict):
        raise TypeError("%s: the columns are a dict: wanted a list of names and divvy.Column(name, "
                        "dtype)" % what)
    if isinstance(columns, (str, Column)):
        columns = [columns]
    made = []
    for column in columns:
        column = Column(column) if isinstance(column, str) else column
        if not isinstance(column, Column):
            raise TypeError("%s: %r is no column: wanted a name or a divvy.Column" % (what, column))
        made.append(column._recipe())
    return made


class Dataset:
    """A recipe for a stream of examples. Making one opens nothing.

    Each method gives another dataset. A run leases each example to one step, so each is visited
    exactly once in a pass, whichever tasks die; per_worker() and auto_shard() share the data in
    other ways. An element is a nest of arrays, which are read-only. Iterating over a dataset reads
    it in this process.

    Errors of files, of bad bytes and of arguments come from the steps that read the data.
    """

    def __init__(self, recipe, policy="lease"):
        self._recipe = recipe
        self._policy = policy

    def _then(self, op, **args):
        ops = self._recipe["ops"] + [
            dict(op=op, **{name: value for name, value in args.items() if value is not None})]
        return Dataset({**self._recipe, "ops": ops}, self._policy)

    def shuffle(self, window, seed=None):
        """Permutes the elements within windows of `window`. seed None: another order each pass."""
        return self._then("shuffle", window=whole(window, "window", 1),
                          seed=None if seed is None else whole(seed, "seed"))

    def repeat(self, times=-1):
        """Repeats the data `times` times; -1: forever."""
        return self._then("repeat", times=whole(times, "times"))

    def batch(self, size, drop_remainder=False):
        """Stacks `size` elements along a new axis 0; the last batch may be smaller."""
        return self._then("batch", size=whole(size, "size", 1), drop_remainder=bool(drop_remainder))

    def take(self, n):
        """The first n elements."""
        return self._then("take", n=whole(n, "n"))

    def skip(self, n):
        """All but the first n elements."""
        return self._then("skip", n=whole(n, "n"))

    def shard(self, num_shards, index):
        """Elements index, index + num_shards, ..."""
        return self._then("shard", num_shards=whole(num_shards, "num_shards"),
                          index=whole(index, "index"))

    def hold_out(self, num_shards, index):
        """The elements that shard(num_shards, index) leaves out."""
        return self._then("hold_out", num_shards=whole(num_shards, "num_shards"),
                          index=whole(index, "index"))

    def map(self, function, parallel_calls=1):
        """Replaces each element by function(element), a function at module level."""
        return self._then("map", function=_path(function),
                          parallel_calls=whole(parallel_calls, "parallel_calls"))

    def map_batches(self, function, rows=1024):
        """Replaces up to `rows` elements at once: function(batch) gives a batch of as many rows."""
        return self._then("map_batches", function=_path(function), rows=whole(rows, "rows"))

    def filter(self, function):
        """Keeps the elements for which function(element) is true."""
        return self._then("filter", function=_path(function))

    def ignore_errors(self, limit):
        """Skips up to `limit` bad elements of a pass; the log names them.

        Bad elements are lines and records that cannot be read, and those for which a function of
        the program (a map's, a filter's, __getitem__) raises an exception. A MemoryError and a
        NotImplementedError are no matter of an element, and end the pass.
        """
        return self._then("ignore_errors", limit=whole(limit, "limit"))

    def unbatch(self):
        """The inverse of batch."""
        return self._then("unbatch")

    def cache(self):
        """Keeps the elements that an iterator has read, in memory, for repeat."""
        return self._then("cache")

    def prefetch(self, elements):
        """Reads up to `elements` elements before they are asked for."""
        return self._then("prefetch", elements=whole(elements, "elements"))

    def concatenate(self, other):
        """The elements of this dataset, then those of `other`."""
        return self._then("concatenate", other=other._recipe)

    def per_worker(self):
        """Every worker reads all of the data, as in TensorFlow under parameter servers."""
        return Dataset(self._recipe, "off")

    def auto_shard(self, policy="auto"):
        """Cuts the data among the workers: "auto", "file" (whole files) or "data" (records)."""
        if policy not in ("auto", "file", "data"):
            raise ValueError("policy is %r: wanted auto, file or data" % (policy,))
        if self._recipe["source"] == "generator":
            raise ValueError("each worker calls the generator function itself: let it yield its "
                             "own part, by its arguments worker_index and num_workers")
        return Dataset(self._recipe, policy)

    def lease(self):
        """The default: each element goes to one step, exactly once in a pass."""
        if self._recipe["source"] == "generator":
            raise ValueError("a generator function has no positions to lease: give divvy.records "
                             "an object with __len__ and __getitem__")
        return Dataset(self._recipe, "lease")

    def __iter__(self):
        return open(self._recipe, {"seed": 1, "worker_index": 0, "num_workers": 1}).iterate()

    def __repr__(self):
        return "divvy.%s(...)%s" % (self._recipe["source"],
                                    "".join(".%s(...)" % one["op"] for one in self._recipe["ops"]))


def _path(function):
    _functions.check_named(function, "a function of a dataset")
    return _functions.path_of(function)


def _source(source, policy="lease", **args):
    return Dataset({"source": source, "args": args, "ops": []}, policy)


def _files(files):
    if isinstance(files, (list, tuple)):
        raise TypeError("the files are a %s: wanted one name, a glob such as part-*.csv, or "
                        "NAME@N; .concatenate joins datasets" % type(files).__name__)
    return os.fspath(files)


def csv(files, columns, separator=","):
    """The lines of CSV files: {name: scalar, or array [width]}.

    files: a name, a glob, or "name@N"; gzip is recognised. columns: names and divvy.Column. If the
    first line has all names, columns are found by name, otherwise by position. Blanks around a
    number or a name do not count; text is taken as it is.
    """
    if len(text(separator, "separator")) != 1 or not separator.isascii():
        raise ValueError("separator is %r: wanted one ASCII character" % (separator,))
    return _source("csv", files=_files(files), columns=_columns(columns, "csv"),
                   separator=separator)


def libsvm(files, below=0, labels="as_written"):
    """The lines of libsvm files: {"features": {ids, row_splits, weights}, "label": float32}.

    below > 0: the number of rows of the ids' table; other ids are an error. labels: "as_written",
    "binary" (-1 becomes 0) or "one_two" (1 and 2 become 0 and 1).
    """
    if labels not in ("as_written", "binary", "one_two"):
        raise ValueError("labels is %r: wanted as_written, binary or one_two" % (labels,))
    return _source("libsvm", files=_files(files), below=whole(below, "below"), labels=labels)


def criteo(files, by_column=False):
    """The lines of Criteo's logs: {"label": float32, "dense": float32 [13], "sparse": int64 [26]}.

    by_column: a category has another hash in each column, for one table that all columns share.
    """
    return _source("criteo", files=_files(files), by_column=bool(by_column))


def tfrecord(files, features):
    """The Examples of TFRecord files: {name: array}. features: divvy.Column with `shape`."""
    return _source("tfrecord", files=_files(files), features=_columns(features, "tfrecord"))


def idx(images, labels):
    """A pair of IDX files, as MNIST's: {"image": uint8 [h, w], "label": uint8}."""
    return _source("idx", images=_files(images), labels=_files(labels))


def tensors(rows):
    """Element i is row i of every array of a nest. ValueError: other numbers of rows.

    Arrays of a module-level call stay in each process, which copies them when it first reads them;
    all passes use that copy. main may call it with up to 1 MiB of arrays, which travel to the
    workers.
    """
    nest = _as_arrays(rows, "tensors")
    arrays = list(_leaves(nest))
    if not arrays:
        raise ValueError("tensors: there is no array")
    lengths = {len(one) for one in arrays if one.ndim}
    if len(lengths) != 1 or any(one.ndim == 0 for one in arrays):
        raise ValueError("tensors: the arrays have shapes %s, and wanted are equal numbers of rows"
                         % ", ".join(str(one.shape) for one in arrays))
    if _registry.is_running() and not _registry.in_test():
        size = sum(one.nbytes for one in arrays)
        if size > _MOST_BYTES_THAT_TRAVEL:
            raise ValueError(
                "tensors: %d bytes are too many to travel to every worker (the limit is %d): make "
                "the dataset at module level, so that each process has the arrays" %
                (size, _MOST_BYTES_THAT_TRAVEL))
        return _source("values", rows=nest)
    text = ", ".join("%s %s" % (one.dtype, one.shape) for one in arrays)
    return _source("tensors", key=_registry.add_source("tensors", nest, text))


def _as_arrays(value, path):
    if isinstance(value, dict):
        return {key: _as_arrays(child, "%s[%r]" % (path, key)) for key, child in value.items()}
    if isinstance(value, (list, tuple)) and any(
            isinstance(child, (list, tuple, dict, np.ndarray)) or _is_array(child)
            for child in value):
        return [_as_arrays(child, "%s[%d]" % (path, i)) for i, child in enumerate(value)]
    array = np.asarray(value) if isinstance(value, (list, tuple)) else _values.as_array(value, path)
    if array is None and isinstance(value, np.ndarray):
        array = value
    if array is None:
        raise TypeError("%s is a %s: wanted arrays" % (path, type(value).__name__))
    return array


def _is_array(value):
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def _leaves(nest):
    if isinstance(nest, dict):
        for key in sorted(nest):
            yield from _leaves(nest[key])
    elif isinstance(nest, list):
        for child in nest:
            yield from _leaves(child)
    else:
        yield nest


def _check_module_level(what):
    if _registry.is_running() and not _registry.in_test():
        raise RuntimeError("%s: a Python object cannot travel to the workers. Make the dataset at "
                           "module level, so that each process has the object" % what)


def _is_abstract(method):
    """Whether it is that of torch.utils.data.Dataset, which only raises."""
    return getattr(method, "__module__", None) == "torch.utils.data.dataset" and \
        getattr(method, "__qualname__", None) == "Dataset.__getitem__"


def records(data):
    """The records of any object with __len__ and __getitem__, leased: each once in a pass.

    data[i] gives a nest of numbers and arrays, and the same one whenever it is asked. Workers ask
    for the records that they were leased only. Call it at module level.
    """
    if hasattr(data, "batch_sampler") and hasattr(data, "dataset"):
        raise TypeError("records: a %s draws batches in its own order, so they cannot be leased: "
                        "give divvy.from_torch its .dataset, then .shuffle(n).batch(size); or "
                        "divvy.generator a function with `yield from` the loader" %
                        type(data).__name__)
    if hasattr(data, "__iter__") and _is_abstract(getattr(type(data), "__getitem__", None)):
        raise TypeError("records: %s has no __getitem__, as an IterableDataset: give "
                        "divvy.generator a function that yields its elements" % type(data).__name__)
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise TypeError("records: %r has no __len__ and __getitem__; a generator function goes to "
                        "divvy.generator" % type(data).__name__)
    _check_module_level("records")
    return _source("records",
                   key=_registry.add_source("records", data,
                                            "%s of %d" % (type(data).__name__, len(data))))


def from_torch(dataset):
    """The same for a torch.utils.data.Dataset with __len__; its tensors become arrays."""
    return records(dataset)


def generator(function):
    """What a generator function yields; each worker calls it for each pass, as in TensorFlow.

    function() or function(worker_index, num_workers). Each worker has a stream of its own, which
    begins again when the worker is started again. Call it at module level.
    """
    if not callable(function):
        raise TypeError("generator: %r is no function" % (function,))
    _check_module_level("generator")
    name = getattr(function, "__qualname__", type(function).__name__)
    return _source("generator", policy="off",
                   key=_registry.add_source("generator", function, name))


def zip(datasets):  # pylint: disable=redefined-builtin
    """Element i is the dict, or list, of the elements i of all datasets; ends with the shortest."""
    if isinstance(datasets, dict):
        return _source("zip_dict", parts={name: one._recipe for name, one in datasets.items()})
    return _source("zip", parts=[one._recipe for one in datasets])


def text_key(text, salt=""):
    """The int64 key of a text: what the columns with a salt hold."""
    return _divvy.text_key(text, salt)


# ---- in each process: from a recipe to the dataset -----------------------------------------------

def _registered(key):
    try:
        return _registry.sources[key]
    except KeyError:
        raise LookupError("this process has no data %s: chief and workers must run the same "
                          "program, and make it at module level" % key) from None


def _open_source(source, args, context):
    make = _divvy.Dataset
    if source == "values":
        return make.tensors(args["rows"])
    if source == "tensors":
        return _registry.opened(args["key"], lambda: make.tensors(_registered(args["key"])))
    if source == "csv":
        return make.csv(args["files"], args["columns"], args["separator"])
    if source == "libsvm":
        return make.libsvm(args["files"], args["below"], args["labels"])
    if source == "criteo":
        return make.criteo(args["files"], args["by_column"])
    if source == "tfrecord":
        return make.tfrecord(args["files"], args["features"])
    if source == "idx":
        return make.idx(args["images"], args["labels"])
    if source == "records":
        _registered(args["key"])
        return make.records(args["key"])
    if source == "generator":
        return make.generator(args["key"], context["worker_index"], context["num_workers"])
    if source == "zip":
        return make.zip([open(part, context) for part in args["parts"]])
    return make.zip_dict({name: open(part, context) for name, part in args["parts"].items()})


_PLAIN = {
    "repeat": ("times",), "batch": ("size", "drop_remainder"), "take": ("n",), "skip": ("n",),
    "shard": ("num_shards", "index"), "hold_out": ("num_shards", "index"),
    "map": ("function", "parallel_calls"), "map_batches": ("function", "rows"),
    "filter": ("function",), "ignore_errors": ("limit",), "unbatch": (), "cache": (),
    "prefetch": ("elements",),
}


def open(recipe, context):  # pylint: disable=redefined-builtin
    """The C++ dataset of a recipe, in the InputContext of a worker. C++ calls it."""
    dataset = _open_source(recipe["source"], recipe["args"], context)
    for place, one in enumerate(recipe["ops"]):
        op = one["op"]
        if op == "shuffle":
            seed = one["seed"] if "seed" in one else context["seed"] + place
            dataset = dataset.shuffle(one["window"], seed % (1 << 64))
        elif op == "concatenate":
            dataset = dataset.concatenate(open(one["other"], context))
        else:
            dataset = getattr(dataset, op)(*(one[name] for name in _PLAIN[op]))
    return dataset


def length(key):
    """The number of records. C++ calls it."""
    return len(_registered(key))


def _of_element(function, argument):
    """function(argument), whose exceptions are errors of that element: ignore_errors skips it."""
    try:
        return function(argument)
    except Exception as error:
        _errors.of_element(error)
        raise


def item(key, position):
    """A record. C++ calls it."""
    return _of_element(_registered(key).__getitem__, position)


def call(path, element):
    """What a function of the program makes of an element. C++ calls it."""
    return _of_element(_functions.find(path), element)


_lock = threading.Lock()
_generators = {}
_next_token = 0


def begin(key, worker, num_workers):
    """Starts a generator, and returns its token. C++ calls it."""
    global _next_token
    function = _registered(key)
    takes_worker = getattr(getattr(function, "__code__", None), "co_argcount", 0) >= 2
    started = iter(function(worker, num_workers) if takes_worker else function())
    with _lock:
        _next_token += 1
        _generators[_next_token] = started
        return _next_token


def advance(token):
    """(element,), or () at the end. C++ calls it."""
    for element in _generators[token]:
        return (element,)
    return ()


def close(token):
    """Ends a generator. C++ calls it."""
    generator_object = _generators.pop(token, None)
    if hasattr(generator_object, "close"):
        generator_object.close()
