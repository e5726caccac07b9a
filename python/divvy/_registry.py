"""What the program has declared: variables and data. Every process of a job declares the same."""
import sys
import threading

from divvy import _divvy, _functions

_lock = threading.Lock()
# By name: the variables that the program declared before it ran.
variables = {}
# The same for those that main or a test creates while a cluster runs; they end with it.
late_variables = {}
# By key: arrays, objects and generator functions that datasets read.
sources = {}
# By key: what has been made of a source and serves all passes.
_opened = {}
# What a source is, for the comparison of chief and workers.
_source_texts = {}
_late_sources = set()
_running = False
_testing = 0


def is_running():
    """Whether divvy.run has been called."""
    return _running


def in_test():
    """Whether a cluster of divvy.testing runs, so that all its workers are in this process."""
    return _testing > 0


def where(depth):
    """file:line of the first caller outside of this package."""
    frame = sys._getframe(depth)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "divvy":
        frame = frame.f_back
    return "%s:%d" % (frame.f_code.co_filename, frame.f_lineno) if frame else "?"


def declare(variable):
    """Adds a variable; main's are created at once."""
    name = variable.name
    with _lock:
        other = variables.get(name) or late_variables.get(name)
        if other is not None and _is_of_cells(other, variable):
            # The cell of a notebook runs again.
            if name in variables and not _running and not in_test():
                variables[name] = variable
                return
            if other._text == variable._text:
                return  # the objects of both runs stand for the variable
            raise ValueError("variable %r exists as %s, and is declared again as %s: leave the "
                             "cluster first, or use another name" %
                             (name, other._text, variable._text))
        if other is not None:
            hint = (" The file is loaded under two names: import it by one."
                    if other._place == variable._place else "")
            raise ValueError("variable %r is declared twice: at %s and at %s.%s" %
                             (name, other._place, variable._place, hint))
        if not _divvy.in_program() and (_running or _divvy.in_step()):
            raise RuntimeError(
                "variable %r at %s is declared %s: declare it at module level, before divvy.run" %
                (name, variable._place,
                 "in a step" if _divvy.in_step() else "after divvy.run, and not on main's thread"))
        late = _divvy.in_program()
        (late_variables if late else variables)[name] = variable
    if late:
        try:
            _divvy.create(variable._spec)
        except BaseException:
            del late_variables[name]
            raise


def _is_of_cells(*declared):
    return all(_functions.is_cell(one._place.rpartition(":")[0]) for one in declared)


def add_source(kind, value, text):
    """Keeps what a dataset reads, and returns its key, which is the same in every process."""
    with _lock:
        late = is_running() or in_test()
        key = "%s#%d" % (kind, sum(key.startswith(kind + "#") for key in sources))
        while key in sources:
            key += "'"
        sources[key] = value
        _source_texts[key] = text
        if late:
            _late_sources.add(key)
    return key


def opened(key, make):
    """What make() gave for this source at the first call. Any thread may call it."""
    with _lock:
        if key not in _opened:
            _opened[key] = make()
        return _opened[key]


def create_declared():
    """Creates the variables that the program declared, on the coordinator."""
    for variable in list(variables.values()):
        _divvy.create(variable._spec)


def begin_run():
    """No more declarations: from now on chief and workers compare what there is."""
    global _running
    _running = True
    _divvy.register_for_comparison("divvy:Python program", "divvy")
    for name, variable in sorted(variables.items()):
        _divvy.register_for_comparison("divvy:variable " + name, variable._text)
    for key, text in sorted(_source_texts.items()):
        _divvy.register_for_comparison("divvy:data " + key, text)


def begin_test():
    """A cluster of divvy.testing begins. RuntimeError: it may not."""
    global _testing
    if _divvy.in_step():
        raise RuntimeError("a step cannot start a cluster, nor a program: it is part of one")
    with _lock:
        if _testing:
            raise RuntimeError("another cluster runs in this process: leave it first")
        _testing += 1


def end_test():
    """It has ended, and so have the variables and the data that it was given."""
    global _testing
    _testing -= 1
    with _lock:
        late_variables.clear()
        for key in _late_sources:
            del sources[key], _source_texts[key]
            _opened.pop(key, None)
        _late_sources.clear()
