"""What a step may be, and what becomes of its errors."""
import concurrent.futures
import functools
import os
import pickle
import sys
import threading
import time
import types
import weakref

import numpy as np
import pytest

import divvy

total = divvy.Variable("total", (), dtype="int64")
matrix = divvy.Variable("matrix", (2, 2), optimizer=divvy.Sgd(1.0))
coordinator = None  # the coordinator, for a step that misuses it


@pytest.fixture
def c():
    global coordinator
    with divvy.testing.cluster(ps=2) as coordinator:
        yield coordinator


def run(c, step, *args, **kwargs):
    value = c.schedule(step, *args, **kwargs)
    c.join()
    return value.fetch()


# ---- arguments and results ----

@divvy.step
def shape_of_call(a, b=2, *, tail="three"):
    return {"a": a, "b": b, "tail": tail}


def test_arguments_are_bound_as_in_a_call(c):
    assert run(c, shape_of_call, 1) == {"a": 1, "b": 2, "tail": "three"}
    assert run(c, shape_of_call, [1.5], tail="x", b=False) == {"a": [1.5], "b": False, "tail": "x"}
    for args, kwargs in [((), {}), ((1, 2, 3), {}), ((1,), {"d": 4})]:
        with pytest.raises(TypeError, match="step .*shape_of_call"):
            c.schedule(shape_of_call, *args, **kwargs)


def test_an_argument_that_cannot_travel_names_the_leaf(c):
    with pytest.raises(TypeError, match=r"argument 'a'\['k'\]\[0\] is a object"):
        c.schedule(shape_of_call, {"k": [object()]})
    with pytest.raises(TypeError, match="argument 'b' is a NoneType"):
        c.schedule(shape_of_call, 1, None)
    with pytest.raises(TypeError, match="is no step: decorate"):
        c.schedule(print, 1)


@divvy.step
def returns(kind):
    return {"none": None, "number": 4, "list": [np.arange(3), "x"], "set": {1}}[kind]


def test_results_arrive(c):
    assert run(c, returns, "none") is None
    assert run(c, returns, "number") == 4
    assert run(c, returns, "list")[0].tolist() == [0, 1, 2]
    with pytest.raises(divvy.InvalidArgumentError, match="the result of step .*returns.* is a set"):
        run(c, returns, "set")


def test_a_step_may_be_called_as_a_function():
    assert shape_of_call(1) == {"a": 1, "b": 2, "tail": "three"}
    assert shape_of_call.__name__ == "shape_of_call" and not shape_of_call.read_only


@divvy.step
def about():
    return [divvy.step_number(), divvy.step_seed() & 0xFFFF, divvy.worker_index(),
            divvy.cancelled(), threading.get_ident() == threading.main_thread().ident]


def test_a_step_knows_its_number_and_its_worker(c):
    number, seed, worker, cancelled, on_main_thread = run(c, about)
    assert number >= 0 and seed >= 0 and worker == 0 and not cancelled and not on_main_thread
    with pytest.raises(RuntimeError, match="is for steps"):
        divvy.step_number()


# ---- what is no step ----

def test_a_function_without_a_name_elsewhere_is_refused():
    captured = 3

    def closure(batch):
        return captured

    def local(batch):
        return batch

    class Model:
        def method(self, batch):
            return batch

    async def coroutine(batch):
        return batch

    for function, words in [
            (lambda batch: batch, "lambda"), (closure, "closure over captured"),
            (local, "defined inside a function"), (Model().method, "is a method"),
            (functools.partial(print), "is a partial"), (3, "is a int"), (print, "builtin"),
            (Model, "is a type"), (coroutine, "defined inside|async")]:
        with pytest.raises(TypeError, match=words):
            divvy.step(function)


def module_level(code, name="made_up"):
    module = types.ModuleType(name)
    module.divvy = divvy
    exec(compile(code, "/made/up/%s.py" % name, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("code, error, words", [
    ("@divvy.step\ndef s(*args): pass", TypeError, r"takes \*args"),
    ("@divvy.step\ndef s(**kw): pass", TypeError, r"takes \*kw"),
    ("@divvy.step\ndef s(): yield 1", TypeError, "is a generator"),
    ("@divvy.step\nasync def s(): pass", TypeError, "async"),
    ("@divvy.step(readonly=True)\ndef s(): pass", TypeError, "readonly"),
])
def test_a_function_of_the_wrong_form_is_refused(code, error, words):
    with pytest.raises(error, match=words):
        module_level(code)


def test_a_file_under_two_names_is_refused():
    code = "@divvy.step\ndef twice(): pass"
    first = compile(code, "/made/up/same.py", "exec")
    exec(first, {"__name__": "same", "divvy": divvy})
    with pytest.raises(ValueError, match="loaded under two names"):
        exec(first, {"__name__": "package.same", "divvy": divvy})


def test_a_variable_of_a_file_under_two_names_is_refused():
    first = compile("v = divvy.Variable('two_names', (1,))", "/made/up/two.py", "exec")
    exec(first, {"__name__": "two", "divvy": divvy})
    with pytest.raises(ValueError, match="declared twice: at /made/up/two.py:1.*two names"):
        exec(first, {"__name__": "package.two", "divvy": divvy})


def test_two_steps_of_one_name_are_refused_and_a_cell_that_runs_again_is_not():
    module_level("@divvy.step\ndef cell(a): return 1", "notebook")
    again = module_level("@divvy.step\ndef cell(a): return 2", "notebook")
    assert again.cell(0) == 2
    with pytest.raises(ValueError, match="other parameters"):
        module_level("@divvy.step\ndef cell(a, b): return 3", "notebook")


def run_cell(code, name):
    """Runs code as ipykernel does: in the module of the notebook, and the text names the file."""
    exec(compile(code, "/tmp/ipykernel_1/%s.py" % name, "exec"), NOTEBOOK)
    return NOTEBOOK


NOTEBOOK = {"divvy": divvy, "__name__": "__main__"}


def test_a_cell_of_a_notebook_may_be_edited_and_run_again(c):
    first = "in_cell = divvy.Variable('in_cell', 2)\n"
    assert run_cell(first, "1")["in_cell"].read().tolist() == [0, 0]
    run_cell(first, "1")["in_cell"].assign([1, 2])
    assert run_cell(first + "# edited", "2")["in_cell"].read().tolist() == [1, 2]
    with pytest.raises(ValueError, match="'in_cell' exists as .*again as .*another name"):
        run_cell("in_cell = divvy.Variable('in_cell', 3)", "3")
    run_cell("@divvy.step\ndef of_cell(): return 1", "4")
    assert run(c, run_cell("@divvy.step\ndef of_cell(): return 2", "5")["of_cell"]) == 2


def test_a_variable_of_a_cell_may_change_while_no_cluster_runs():
    run_cell("edited = divvy.Variable('edited', 2)", "6")
    run_cell("edited = divvy.Variable('edited', 3, initializer=[1.0, 2.0, 3.0])", "7")
    edited = run_cell("edited = divvy.Variable('edited', 3, initializer=[4.0, 5.0, 6.0])", "8")
    with divvy.testing.cluster():
        assert edited["edited"].read().tolist() == [4, 5, 6]


@divvy.step
def returns_its_seed():
    np.random.default_rng(divvy.step_seed())
    return divvy.step_seed()


def test_a_seed_travels(c):
    assert 0 <= run(c, returns_its_seed) < 1 << 63


# ---- errors ----

class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no")


@divvy.step
def raises(kind):
    total.assign_add(1000)
    if kind == "value":
        raise ValueError("the value is bad")
    if kind == "key":
        {}["missing"]
    if kind == "exit":
        sys.exit(3)
    if kind == "interrupt":
        raise KeyboardInterrupt()
    if kind == "huge":
        raise RuntimeError("begin" + "x" * 10_000_000 + "end")
    if kind == "unprintable":
        raise Unprintable()
    if kind == "deep":
        return raises.function(kind)
    if kind == "memory":
        np.empty(1 << 60, np.uint8)
    if kind == "surrogate":
        raise ValueError("\ud800")
    if kind == "nul":
        raise ValueError("a\0b")
    if kind == "cause":
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise ValueError("outer") from error
    if kind == "coordinator":
        coordinator.join()
    if kind == "schedule":
        coordinator.schedule(raises, "value")
    if kind == "declare":
        divvy.Variable("from_a_step", (1,))
    if kind == "run":
        divvy.run(print)
    if kind == "cluster":
        with divvy.testing.cluster():
            pass
    return None


@pytest.mark.parametrize("kind, error, words", [
    ("value", ValueError, "ValueError: the value is bad"),
    ("key", RuntimeError, "KeyError: 'missing'"),
    ("exit", RuntimeError, r"SystemExit\(3\): sys.exit ends main, not a step"),
    ("interrupt", RuntimeError, "KeyboardInterrupt"),
    ("huge", RuntimeError, "characters left out"),
    ("unprintable", RuntimeError, "Unprintable: .its text raised RuntimeError"),
    ("deep", RuntimeError, "RecursionError: maximum recursion depth"),
    ("memory", MemoryError, "Unable to allocate"),
    ("surrogate", ValueError, "ValueError: "),
    ("nul", ValueError, "ValueError: a"),
    ("cause", ValueError, "ZeroDivisionError"),
    ("coordinator", RuntimeError, "join: a step has no coordinator"),
    ("schedule", RuntimeError, "schedule: a step has no coordinator"),
    ("declare", RuntimeError, "declared in a step"),
    ("cluster", RuntimeError, "a step cannot start a cluster"),
    ("run", RuntimeError, "a step cannot"),
])
def test_an_exception_arrives_once_with_its_place(c, kind, error, words):
    before = int(total.read())
    value = c.schedule(raises, kind)
    with pytest.raises(error, match=words) as raised:
        c.join()
    text = str(raised.value)
    assert "raises" in text and "worker 0" in text and "step" in text
    assert "steps_test.py" in text or kind == "surrogate"
    assert len(text) < 20_000
    c.join()  # it is not raised again
    with pytest.raises(error):
        value.fetch()
    assert value.state == "failed"
    assert int(total.read()) == before


def test_the_next_step_runs_after_an_error(c):
    assert run(c, returns, "number") == 4


# ---- threads and time ----

@divvy.step
def starts_threads():
    errors = []

    def reach():
        try:
            total.assign_add(1)
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=reach)
    thread.start()
    thread.join()
    return errors


def test_a_thread_of_a_step_cannot_write(c):
    before = int(total.read())
    assert "neither main nor a step" in run(c, starts_threads)[0]
    assert int(total.read()) == before


outlived = threading.Event()


@divvy.step
def leaves_a_daemon():
    def later(release):
        release.wait()
        try:
            total.assign_add(1)
        except RuntimeError:
            outlived.set()

    release = threading.Event()
    threading.Thread(target=later, args=(release,), daemon=True).start()
    leaves_a_daemon.release = release


def test_a_daemon_thread_that_outlives_its_step_writes_nothing(c):
    before = int(total.read())
    run(c, leaves_a_daemon)
    leaves_a_daemon.release.set()
    assert outlived.wait(10)
    assert int(total.read()) == before


blocked = threading.Event()


@divvy.step
def waits_until_cancelled(kind):
    if kind == "fail":
        blocked.wait(10)
        raise ValueError("first error")
    blocked.set()
    deadline = time.monotonic() + 20
    while not divvy.cancelled():
        if time.monotonic() > deadline:
            raise RuntimeError("never cancelled")
    raise divvy.CancelledError("gave up")


def test_another_steps_error_cancels_a_step_that_asks():
    blocked.clear()
    with divvy.testing.cluster(ps=1, workers=2) as c2:
        waiting = c2.schedule(waits_until_cancelled, "wait")
        c2.schedule(waits_until_cancelled, "fail")
        with pytest.raises(ValueError, match="first error"):
            c2.join()
        with pytest.raises(divvy.Error):
            waiting.fetch()


gate = threading.Event()


@divvy.step
def waits():
    gate.wait(20)
    return 1


def test_fetch_and_join_have_timeouts():
    gate.clear()
    with divvy.testing.cluster(ps=1) as c2:
        value = c2.schedule(waits)
        for wait in (lambda: value.fetch(timeout=0.05), lambda: c2.join(timeout=0.05)):
            with pytest.raises(TimeoutError) as raised:
                wait()
            assert isinstance(raised.value, divvy.DeadlineExceededError)
        assert value.state == "not_ready" and not c2.done()
        gate.set()
        assert value.fetch(timeout=20) == 1 and value.state == "ready"


@divvy.step
def forks():
    child = os.fork()
    if child == 0:
        try:
            total.read()
            os._exit(1)
        except RuntimeError as error:
            os._exit(7 if "neither main nor a step" in str(error) else 2)
    return os.waitpid(child, 0)[1] >> 8


def test_a_step_may_fork_and_the_child_has_no_part_in_the_job(c):
    assert run(c, forks) == 7
    child = os.fork()
    if child == 0:
        try:
            c.join(timeout=0.1)
            os._exit(1)
        except RuntimeError:
            os._exit(7)
    assert os.waitpid(child, 0)[1] >> 8 == 7


@divvy.step
def forks_and_comes_back(how):
    total.assign_add(1)
    child = os.fork()
    if child == 0:
        if how == "raises":
            raise ValueError("bad in the child")
        return 0
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_a_child_that_comes_back_from_a_step_is_ended_and_said(c, capfd, how):
    before = int(total.read())
    assert os.waitstatus_to_exitcode(run(c, forks_and_comes_back, how)) == 70
    said = capfd.readouterr().err
    assert "was forked by step" in said and "forks_and_comes_back" in said and "os._exit" in said
    assert ("ValueError: bad in the child" in said) == (how == "raises")
    assert int(total.read()) == before + 1


def test_a_child_may_start_a_cluster_of_its_own():
    with divvy.testing.cluster() as c:  # its threads end
        run(c, returns, "none")
    child = os.fork()
    if child == 0:
        with divvy.testing.cluster() as c:
            os._exit(run(c, returns, "number"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4


def test_a_child_that_leaves_the_cluster_goes_on_alone():
    child = None
    with divvy.testing.cluster(ps=1):
        child = os.fork()
    if child == 0:
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_step_is_pickled_by_its_name_and_a_coordinator_is_not(c):
    assert pickle.loads(pickle.dumps(forks)) is forks
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(c)


@divvy.step
def computes_in_threads(n):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda i: np.linalg.norm(np.full((50, 50), i)), range(n)))
    return [len(parts), float(sum(parts))]


def test_a_step_may_compute_on_threads_of_its_own(c):
    assert run(c, computes_in_threads, 8) == [8, 50 * 28.0]


# ---- threads ----

mine = threading.local()


class Kept:
    """Something that a threading.local holds."""


@divvy.step
def count_on_this_thread():
    mine.kept = getattr(mine, "kept", None) or Kept()
    mine.steps = getattr(mine, "steps", 0) + 1
    kept_by_steps.append(weakref.ref(mine.kept))
    return [threading.get_ident(), mine.steps]


kept_by_steps = []


def test_what_a_step_puts_into_a_threading_local_stays_until_its_thread_ends():
    kept_by_steps.clear()
    for _ in range(3):
        with divvy.testing.cluster(ps=1) as c:
            steps = {}
            for _ in range(20):
                thread, count = run(c, count_on_this_thread)
                steps[thread] = steps.get(thread, 0) + 1
                assert count == steps[thread]
            assert all(one() is not None for one in kept_by_steps[-20:])
    # The threads of the last cluster have ended, and the next thread frees what they kept.
    with divvy.testing.cluster(ps=1) as c:
        run(c, returns, "none")
        assert all(one() is None for one in kept_by_steps)


def test_after_the_cluster_calls_say_so():
    with divvy.testing.cluster(ps=1) as c2:
        value = c2.schedule(returns, "number")
        c2.join()
        with pytest.raises(RuntimeError, match="another cluster runs"):
            divvy.testing.cluster(ps=1).__enter__()
    with pytest.raises(RuntimeError, match="the job has ended"):
        c2.join()
    with pytest.raises(RuntimeError, match="neither main nor a step"):
        total.read()
    assert value.fetch() == 4
