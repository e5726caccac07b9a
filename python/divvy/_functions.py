"""Functions of the program that every process knows by name."""
import inspect
import sys


def check_named(function, what):
    """The name by which other processes find `function`. TypeError, which says why there is none:
    a lambda, a closure, a method, or another object than a function."""
    if isinstance(function, (staticmethod, classmethod)) or inspect.ismethod(function):
        raise TypeError("%s must be a function at module level, and %r is a method" %
                        (what, function))
    if not inspect.isfunction(function):
        raise TypeError("%s must be a function at module level, and %r is a %s" %
                        (what, function, type(function).__name__))
    place = "%s:%d" % (function.__code__.co_filename, function.__code__.co_firstlineno)
    if function.__name__ == "<lambda>":
        raise TypeError("%s at %s is a lambda, which has no name in other processes: define it "
                        "with def at module level" % (what, place))
    if function.__closure__:
        raise TypeError(
            "%s %s at %s is a closure over %s, which other processes do not have: define it at "
            "module level, and pass what it needs as arguments" %
            (what, function.__qualname__, place, ", ".join(function.__code__.co_freevars)))
    if "<locals>" in function.__qualname__:
        raise TypeError("%s %s at %s is defined inside a function, so other processes do not know "
                        "it: define it at module level" % (what, function.__qualname__, place))
    if (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)):
        raise TypeError("%s %s at %s is async: write it with def" %
                        (what, function.__qualname__, place))
    return name_of(function)


def is_cell(filename):
    """Whether this file of a code object is a cell of a notebook."""
    return filename.startswith("<ipython-input") or "ipykernel_" in filename


def name_of(function):
    """module.name, or the name alone for the program's own file, which is __main__ everywhere."""
    if function.__module__ == "__main__":
        return function.__qualname__
    return "%s.%s" % (function.__module__, function.__qualname__)


def path_of(function):
    """module:name, by which find() gets the function again in another process."""
    return "%s:%s" % (function.__module__, function.__qualname__)


def find(path):
    """The function of path_of. LookupError: this process has no such function."""
    module, _, name = path.partition(":")
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise LookupError("this process has no function %s: chief and workers must run the same "
                          "program, and import its modules at their start" % path)
    return found
