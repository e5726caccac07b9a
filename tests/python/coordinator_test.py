"""Schedules, loops, metrics, checkpoints: what main does."""
import os
import threading

import numpy as np
import pytest

import divvy

total = divvy.Variable("total", (), dtype="int64")
w = divvy.Variable("w", (3,), optimizer=divvy.Adam(0.1))
users = divvy.Table("users", 2, optimizer=divvy.Sgd(1.0))

TWENTY = divvy.tensors({"i": np.arange(20)})


@pytest.fixture
def c():
    with divvy.testing.cluster() as coordinator:
        yield coordinator


@divvy.step
def add(n):
    total.assign_add(n)
    return n * n


@divvy.step
def fails(message):
    raise ValueError(message)


def test_scheduled_steps_are_joined_and_fetched(c):
    values = [c.schedule(add, i) for i in range(10)]
    nested = {"all": values, "last": (values[-1], "kept")}
    c.join()
    assert c.done() and c.step == 10
    assert c.fetch(nested) == {"all": [i * i for i in range(10)], "last": (81, "kept")}
    assert int(total.read()) == 45


def test_the_first_error_is_raised_once(c):
    c.schedule(fails, "the first")
    with pytest.raises(ValueError, match="the first"):
        c.join()
    c.schedule(add, 1)
    c.join()
    assert int(total.read()) == 1


def test_a_step_of_a_series_counts_once(c):
    for _ in range(2):
        for number in range(5):
            c.schedule_once("chunks", number, add, 1)
        c.join()
    assert int(total.read()) == 5
    assert c.schedule_once("chunks", 3, add, 1) is None
    for number, words in ((-1, "number"), (2**53, "number")):
        with pytest.raises(ValueError, match=words):
            c.schedule_once("chunks", number, add, 1)


# ---- loops ----

@divvy.step
def learn(batch, scale=1.0):
    n = len(batch["i"])
    total.assign_add(n)
    w.apply_gradient(np.full(3, scale, np.float32))
    return {"rows": divvy.Mean(float(n), 1), "mean": batch["i"], "number": n, "flag": True}


@divvy.step
def returns_badly(batch, kind):
    return {"list": [1], "text": {"loss": "low"}, "key": {1: 2.0}, "number": 3.0}[kind]


def test_an_epoch_merges_what_steps_return(c):
    metrics = c.run_epoch(learn, TWENTY.batch(8), scale=0.5)
    assert metrics == {"rows": pytest.approx(20 / 3), "mean": 9.5, "number": pytest.approx(20 / 3),
                       "flag": 1.0}
    assert metrics.counts["mean"] == 20 and metrics.counts["number"] == 3
    assert c.epoch == 1 and c.step == 3 and int(total.read()) == 20


def test_run_until_makes_so_many_steps(c):
    c.run_until(7, learn, TWENTY.batch(8))
    assert c.step == 7
    assert c.run_until(7, learn, TWENTY.batch(8)) == {}
    c.run_until(9, learn, TWENTY.batch(8))
    assert c.step == 9 and int(total.read()) == 60


@pytest.mark.parametrize("kind, words", [("list", "returned a list"), ("text", "'loss': a str"),
                                         ("key", "named 1"), ("number", "returned a float")])
def test_a_result_that_is_no_metric_names_the_step(c, kind, words):
    with pytest.raises(ValueError, match=words):
        c.run_epoch(returns_badly, TWENTY.batch(8), kind)


@divvy.step
def mixed(batch):
    return {"m": divvy.Mean(1.0) if batch["i"][0] == 0 else divvy.Rmse([1.0], [0.0])}


def test_two_kinds_of_metric_under_one_name_are_refused(c):
    with pytest.raises(ValueError, match="m"):
        c.run_epoch(mixed, TWENTY.batch(10))


@divvy.step(read_only=True)
def look(batch):
    return {"sum": divvy.Mean(float(batch["i"].sum()), len(batch["i"]))}


def test_a_read_only_epoch_counts_no_step(c):
    assert c.run_epoch(look, TWENTY.batch(6)) == {"sum": 9.5}
    assert c.step == 0 and c.epoch == 0
    with pytest.raises(ValueError, match="read-only"):
        c.run_until(3, look, TWENTY.batch(6))


started = threading.Event()


@divvy.step
def endless(batch):
    started.set()


def breaks(recent):
    raise KeyError("the observer")


def test_an_exception_of_an_observer_ends_the_loop(c):
    with pytest.raises(KeyError, match="the observer"):
        c.run_epoch(endless, TWENTY.repeat().batch(1), observer=breaks)
    assert c.epoch == 0 and c.done()


def test_a_loop_has_a_timeout(c):
    with pytest.raises(TimeoutError):
        c.run_epoch(endless, TWENTY.repeat().batch(1), timeout=0.2)
    c.join()
    assert c.done()


# ---- metrics ----

def test_metrics_are_those_of_keras():
    logits = np.array([-1.0, 2.0, 0.5, -0.5], np.float32)
    labels = np.array([0, 1, 0, 1], np.float32)
    assert divvy.Auc(logits, labels).value == pytest.approx(0.75)
    assert divvy.Accuracy(logits, labels).value == 0.5
    assert divvy.Rmse([1.0, 2.0], [1.0, 4.0]).value == pytest.approx(2 ** 0.5)
    assert divvy.Mean(6.0, 4).value == 1.5 and divvy.Mean(np.array([1, 2, 6])).value == 3.0
    assert divvy.RecallAt(1, np.eye(3, dtype=np.float32)).value == 1.0
    merged = divvy.Mean(2.0, 1).merge(divvy.Mean(4.0, 3))
    assert (merged.value, merged.count, float(merged)) == (1.5, 4.0, 1.5)
    with pytest.raises(ValueError):
        divvy.Mean(1.0).merge(divvy.Rmse([1.0], [1.0]))
    with pytest.raises(ValueError):
        divvy.Auc([np.nan], [1.0])
    with pytest.raises(ValueError):
        divvy.Accuracy(np.zeros((2, 3)), [0, 3])


# ---- state ----

@divvy.step
def train(batch):
    total.assign_add(len(batch["i"]))
    w.apply_gradient(np.ones(3, np.float32))
    users.apply_gradient(batch["i"], np.ones((len(batch["i"]), 2), np.float32))


def test_a_job_resumes_from_its_checkpoint_and_arrays_are_loaded_from_it(tmp_path):
    with divvy.testing.cluster(checkpoint_dir=tmp_path) as c:
        assert c.restore_latest() == 0
        c.run_epoch(train, TWENTY.batch(5))
        c.program_state = b"round 1\0"
        name = c.save_checkpoint()
        assert c.durable_steps == 4
        value = w.numpy()
    with divvy.testing.cluster(ps=3, checkpoint_dir=tmp_path) as c:
        assert c.restore_latest() == 4
        assert c.step == 4 and c.epoch == 1 and c.program_state == b"round 1\0"
        assert int(total.read()) == 20 and np.array_equal(w.read(), value)
        assert users.stats()["rows"] == 20
        c.run_epoch(train, TWENTY.batch(5))
        assert int(total.read()) == 40
        with pytest.raises(TypeError, match="wanted bytes"):
            c.program_state = "text"
    loaded = divvy.load(tmp_path / name)
    assert int(loaded["total"]) == 20 and np.array_equal(loaded["w"], value)
    assert int(divvy.load(tmp_path)["total"]) in (20, 40)


def test_exports_are_loaded_as_arrays(tmp_path):
    with divvy.testing.cluster(checkpoint_dir=tmp_path / "checkpoints") as c:
        c.run_epoch(train, TWENTY.batch(5))
        c.export(tmp_path / "model.safetensors")
        c.export(str(tmp_path / "bundle"))
        value = w.numpy()
    for path in ("model.safetensors", "bundle"):
        loaded = divvy.load(tmp_path / path)
        assert np.array_equal(loaded["w"], value) and int(loaded["total"]) == 20
        assert sorted(loaded["users-keys"].tolist()) == list(range(20))
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(divvy.DataLossError, match="model.safetensors"):
        divvy.load(tmp_path / "model.safetensors")
    with pytest.raises(KeyError):
        divvy.load(tmp_path / "nothing")


def test_a_checkpoint_needs_a_directory(c):
    with pytest.raises(divvy.FailedPreconditionError, match="checkpoint_dir"):
        c.save_checkpoint()


def test_learning_rates_are_scaled_and_figures_reported(c):
    c.set_learning_rate_scale(0.0)
    c.run_epoch(train, TWENTY.batch(5))
    assert np.array_equal(w.read(), np.zeros(3))
    c.report("evaluation", 4, {"loss": 0.5, "auc": divvy.Auc([1.0], [1.0])})
    with pytest.raises(ValueError):
        c.report("", 4, {"loss": 0.5})


def test_errors_are_pythons_own_classes_too():
    pairs = {divvy.InvalidArgumentError: ValueError, divvy.NotFoundError: KeyError,
             divvy.DeadlineExceededError: TimeoutError, divvy.OutOfRangeError: IndexError,
             divvy.ResourceExhaustedError: MemoryError, divvy.UnavailableError: ConnectionError,
             divvy.PermissionDeniedError: PermissionError, divvy.DataLossError: ValueError}
    for kind, builtin in pairs.items():
        error = kind("the message")
        assert isinstance(error, divvy.Error) and isinstance(error, builtin)
        assert str(error) == "the message" == error.message
    assert divvy.NotFoundError("x").code == "NOT_FOUND"


def test_every_public_name_has_a_docstring_and_a_stub():
    stub = open(os.path.join(os.path.dirname(divvy.__file__), "__init__.pyi")).read()
    for name in divvy.__all__:
        value = getattr(divvy, name)
        if name == "testing":
            continue
        assert value.__doc__, name
        assert any("%s %s%s" % (word, name, end) in stub
                   for word in ("class", "def") for end in (":", "(")), name
