"""Steps: the functions that workers run."""
import functools
import inspect
import sys
import threading

from divvy import _divvy, _functions, _metrics, _registry

_lock = threading.Lock()
_steps = {}
_local = threading.local()
# call(step, values) of divvy.torch, once that is imported: calls the function with tensors.
_call_with_tensors = None


class Step:
    """A registered step; @divvy.step makes it. Calling it calls the function, here and now."""

    def __init__(self, function, name, read_only, parameters, arrays):
        self.function = function
        self.name = name
        self.read_only = read_only
        self._parameters = parameters
        self._signature = inspect.Signature(parameters)
        self._arrays = arrays  # "numpy", "torch" or None, which is what _takes_tensors finds
        functools.update_wrapper(self, function)

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __repr__(self):
        return "<divvy.step %s>" % self.name

    def __reduce__(self):
        return self.function.__qualname__  # by its name, as a function

    def _bound(self, args, kwargs):
        """(values, names) of all parameters. TypeError: as a call of the function."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError("step %s: %s" % (self.name, error)) from None
        bound.apply_defaults()
        return list(bound.arguments.values()), list(bound.arguments)

    def _names(self):
        """The names of all parameters, in order."""
        return [parameter.name for parameter in self._parameters]

    def _takes_tensors(self):
        """Whether arrays arrive as tensors. Asked when the step first runs: by then the imports of
        its file are done, in whatever order they stand."""
        if self._arrays is None:
            self._arrays = "torch" if _imports_divvy_torch(self.function) else "numpy"
        return self._arrays == "torch"

    def _call(self, values):
        """Runs the function with the values of all its parameters, in order."""
        if self._takes_tensors():
            return _call_with_tensors(self, values)
        return self._invoke(values)

    def _invoke(self, values):
        positional, named = [], {}
        for parameter, value in zip(self._parameters, values):
            if parameter.kind == parameter.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                positional.append(value)
        return self.function(*positional, **named)


def call_with_tensors_by(call):
    """From now on call(step, values) runs the steps that take tensors. divvy.torch calls it."""
    global _call_with_tensors
    _call_with_tensors = call


def _imports_divvy_torch(function):
    """Whether the file of a function has divvy.torch, or something of it, among its names.

    By file, not by process: a step of NumPy keeps its arrays when another file imports divvy.torch.
    """
    module = sys.modules.get("divvy.torch")
    if module is None:
        return False
    return any(value is module or _is_of_divvy_torch(value)
               for value in list(function.__globals__.values()))


def _is_of_divvy_torch(value):
    kind = value if isinstance(value, type) or inspect.isfunction(value) else type(value)
    of = getattr(kind, "__module__", None)
    return isinstance(of, str) and of.startswith("divvy.torch.")


def _parameters_of(function):
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError("step %s takes *%s: a step has a fixed number of arguments" %
                            (function.__qualname__, parameter.name))
    return parameters


def _text(parameters, read_only):
    """What chief and workers compare."""
    names = ["*, " + one.name if one.kind == one.KEYWORD_ONLY else one.name for one in parameters]
    return "a %s of (%s)" % ("read-only step" if read_only else "step", ", ".join(names))


def step(function=None, *, read_only=False, arrays=None):
    """Registers a function as a step, under its qualified name. Use it at module level.

        @divvy.step
        def train(batch, rate=0.1): ...

        @divvy.step(read_only=True)
        def test(batch): ...

    A STEP IS A TRANSACTION: what it writes to variables is applied exactly once if it returns, and
    not at all if it raises. The function may run more than once and in another process, so let it
    depend only on its arguments, its data, variables and divvy.step_seed(). Arguments and result
    are nests of numbers, texts, NumPy arrays, dicts and lists. An iterator arrives as its next
    element. A read-only step writes nothing and counts no step.

    arrays: "numpy", or "torch" for tensors over the same memory. None: tensors if the file of the
    function imports divvy.torch at module level, as `import divvy.torch as dt` or by a name such
    as Module; otherwise NumPy arrays. A read-only step that takes tensors runs under
    torch.no_grad().

    TypeError, which says why: a lambda, a closure, a method, a function inside a function, an
    async or generator function, *args or **kwargs. ValueError: another step has the name.
    """
    if function is None:
        return functools.partial(step, read_only=read_only, arrays=arrays)
    if arrays not in (None, "numpy", "torch"):
        raise ValueError('arrays is %r: wanted "numpy", "torch" or None' % (arrays,))
    if arrays == "torch":
        import divvy.torch  # pylint: disable=import-outside-toplevel,unused-import
    name = _functions.check_named(function, "a step")
    if inspect.isgeneratorfunction(function):
        raise TypeError("step %s is a generator: return its result" % name)
    parameters = _parameters_of(function)
    made = Step(function, name, read_only, parameters, arrays)
    with _lock:
        _check_new(made, _text(parameters, read_only))
        if name not in _steps:
            _divvy.register_step(name, len(parameters), _text(parameters, read_only), read_only)
        _steps[name] = made
    return made


def _check_new(made, text):
    code = made.function.__code__
    for other in _steps.values():
        other_code = other.function.__code__
        same_place = (other_code.co_filename, other_code.co_firstlineno) == (
            code.co_filename, code.co_firstlineno)
        if same_place and other.name != made.name:
            raise ValueError(
                "step %s (%s:%d) is already registered as %s: the file is loaded under two names, "
                "so each step would exist twice. Import it by one name; let the program's own file "
                "not be imported by other modules" %
                (made.name, code.co_filename, code.co_firstlineno, other.name))
    if _registry.is_running() and made.name not in _steps:
        raise RuntimeError("step %s is registered after divvy.run began, so other processes do "
                           "not know it: register it at module level" % made.name)
    other = _steps.get(made.name)
    if other is None:
        return
    # The cell of a notebook, or a module that is loaded again, replaces the function.
    if _text(other._parameters, other.read_only) != text:
        raise ValueError("another step has the name %s and other parameters: rename one of them, "
                         "or start Python again" % made.name)
    files = (other.function.__code__.co_filename, code.co_filename)
    if files[0] != files[1] and not all(map(_functions.is_cell, files)):
        raise ValueError("step %s is registered twice: in %s and %s" % (made.name, *files))


def call(name, values, in_loop):
    """Runs a step on this thread. C++ calls it."""
    attempt = _local.attempt = Attempt(_steps[name])
    try:
        result = attempt.step._call(values)
        attempt.stage()
        return _metrics.as_metrics(result, name) if in_loop else result
    finally:
        _local.attempt = None
        attempt.end()


class Attempt:
    """One run of a step's function, for parts that act when it begins and ends. A part is of a
    class with the methods begin(), stage() and end()."""

    def __init__(self, a_step):
        self.step = a_step
        self._parts = {}

    def part(self, kind):
        """The part of this class, which begins at the first call."""
        if kind not in self._parts:
            made = kind(self)
            made.begin()
            self._parts[kind] = made
        return self._parts[kind]

    def stage(self):
        """The function has returned. What the parts write belongs to the step's commit."""
        for part in self._parts.values():
            part.stage()

    def end(self):
        """The function has returned or raised."""
        for part in self._parts.values():
            part.end()


def current_attempt():
    """The attempt that this thread runs, or None."""
    return getattr(_local, "attempt", None)


def check(value):
    """`value` as a Step. TypeError: it is none."""
    if not isinstance(value, Step):
        raise TypeError("%r is no step: decorate the function with @divvy.step" % (value,))
    return value


def step_number():
    """The number of the step that this thread runs; the same on every attempt."""
    return _divvy.step_number()


def step_seed():
    """A seed in [0, 2**63), derived from the job and the step; the same on every attempt.

        torch.manual_seed(divvy.step_seed())
        draw = np.random.default_rng(divvy.step_seed())
    """
    return _divvy.step_seed() >> 1


def worker_index():
    """The index of the worker that runs this step."""
    return _divvy.worker_index()


def cancelled():
    """Whether the result of this step is no longer needed. A long step asks, and returns soon."""
    return _divvy.cancelled()
