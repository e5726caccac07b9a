"""How arrays reach the steps of a program that imports divvy.torch, and what steps may do."""
import concurrent.futures
import json
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

import divvy
import divvy.torch as dt

ROWS = 6
cached = divvy.tensors({"x": np.ones((ROWS, 2), np.float32)}).batch(2).cache().repeat(3)
vector = divvy.Variable("vector", 2, initializer=1.0)
table = dt.Embedding("table", 2, optimizer=divvy.Sgd(1.0), initializer=1.0)
layer = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(2, 1, bias=False))
model = dt.Module("model", layer, optimizer=divvy.Sgd(1.0))
plain = dt.Module("plain", nn.Linear(2, 1, bias=False), optimizer=divvy.Sgd(1.0))


@pytest.fixture(name="c", scope="module")
def make_cluster():
    with divvy.testing.cluster(ps=2) as c:
        yield c


def error_of(c, step, *args):
    with pytest.raises(RuntimeError) as raised:
        c.schedule(step, *args).fetch()
    with pytest.raises(RuntimeError):
        c.join()
    return str(raised.value)


# ---- tensors or arrays ----


def kinds(batch, more=None):
    return [type(one).__name__ for one in (batch["x"], batch["y"][0], more)]


@divvy.step
def by_import(batch, more):
    return kinds(batch, more) + [torch.is_grad_enabled()]


@divvy.step(read_only=True)
def by_import_read_only(batch):
    return kinds(batch) + [torch.is_grad_enabled()]


@divvy.step(arrays="numpy")
def numpy_asked_for(batch):
    return kinds(batch)


@dt.step
def torch_asked_for(batch, *, more):
    return kinds(batch, more)


def file_with(name, code):
    """A module with this code, as if it were a file."""
    module = types.ModuleType(name)
    exec(compile(code, "/made/up/%s.py" % name, "exec"), module.__dict__)
    return module


SEE = "def see(batch): return type(batch['x']).__name__\n"
PLAIN = file_with("plain_file", "import divvy, torch\n@divvy.step\n" + SEE)
ASKING = file_with("asking_file", "import divvy\n@divvy.step(arrays='torch')\n" + SEE)
LATE = file_with("late_file", "import divvy\n@divvy.step\n" + SEE +
                 "from divvy.torch import Module\n")


def test_a_file_that_imports_divvy_torch_gets_tensors_and_others_arrays(c):
    x = np.ones(2, np.float32)
    batch = {"x": x, "y": [x]}
    assert c.schedule(by_import, batch, x).fetch() == ["Tensor"] * 3 + [True]
    assert c.schedule(by_import_read_only, batch).fetch() == ["Tensor"] * 2 + ["NoneType", False]
    assert c.schedule(numpy_asked_for, batch).fetch() == ["ndarray"] * 2 + ["NoneType"]
    assert c.schedule(torch_asked_for, batch, more=x).fetch() == ["Tensor"] * 3
    assert c.schedule(PLAIN.see, batch).fetch() == "ndarray"
    assert c.schedule(ASKING.see, batch).fetch() == "Tensor"
    assert c.schedule(LATE.see, batch).fetch() == "Tensor"


@dt.step
def takes_numbers(batch):
    return [type(batch["x"]).__name__, str(batch["x"].dtype), float(batch["x"] * 2)]


def test_a_number_of_an_element_that_is_no_batch_is_a_tensor(c):
    assert c.schedule(takes_numbers, {"x": np.float32(1.5)}).fetch() == [
        "Tensor", "torch.float32", 3.0]


class Stream(torch.utils.data.IterableDataset):

    def __iter__(self):
        return iter([1])

    def __len__(self):
        return 1


def test_data_that_cannot_be_leased_says_what_to_give():
    of_two = torch.utils.data.TensorDataset(torch.zeros(2))
    with pytest.raises(TypeError, match="a DataLoader draws.*its .dataset.*divvy.generator"):
        divvy.from_torch(torch.utils.data.DataLoader(of_two))
    with pytest.raises(TypeError, match="Stream has no __getitem__.*divvy.generator"):
        divvy.from_torch(Stream())


def test_other_words_for_arrays_are_refused():
    with pytest.raises(ValueError, match='arrays is \'cupy\': wanted "numpy", "torch" or None'):
        divvy.step(kinds, arrays="cupy")


# ---- in place ----


@divvy.step
def double_the_batch(batch):
    batch["x"].mul_(2)


@divvy.step
def double_a_view(batch):
    batch["x"].view(-1)[:1].mul_(2)


@divvy.step
def relu_in_place(batch):
    model(batch["x"])


@divvy.step
def add_to_what_was_read():
    dt.tensor(vector.read()).add_(5)


@divvy.step(read_only=True)
def double_the_rows(ids):
    table(ids).mul_(2)


@divvy.step
def relu_of_an_array():
    model(vector.read()[None])


@divvy.step
def change_clones(batch):
    own = np.ones(2, np.float32)
    dt.tensor(own).add_(5)
    model(batch["x"].clone())
    return {"x": batch["x"].clone().mul_(2)}


@pytest.mark.parametrize("step, argument, leaf", [
    (double_the_batch, {"x": np.ones((2, 2), np.float32)}, "argument 'batch'['x'], float32 [2, 2]"),
    (double_a_view, {"x": np.ones((2, 2), np.float32)}, r"argument 'batch'['x']"),
    (relu_in_place, {"x": np.ones((2, 2), np.float32)}, r"argument 'batch'['x']"),
    (add_to_what_was_read, None, "a tensor of dt.tensor, float32 [2]"),
    (double_the_rows, np.array([1, 2]), "the rows of dt.Embedding('table', dim=2)"),
    (relu_of_an_array, None, "the argument of dt.Module 'model'[0], float32 [1, 2]"),
])
def test_a_step_that_changes_memory_of_divvy_in_place_fails(c, step, argument, leaf):
    text = error_of(c, step, *([] if argument is None else [argument]))
    assert leaf in text and "changed in place" in text and ".clone() it first" in text


def test_a_cached_batch_stays_as_it_was(c):
    assert c.run_epoch(change_clones, cached)["x"] == 2


def test_main_may_not_change_in_place_what_it_has_read(c):
    del c
    with pytest.raises(RuntimeError, match="the argument of dt.Module 'model'.*changed in place"):
        model(vector.read()[None])
    assert model(np.ones((1, 2), np.float32)).shape == (1, 1)  # an array of main's own


# ---- threads ----


@divvy.step
def from_another_thread(call):
    plain(torch.ones(1, 2))
    pool = concurrent.futures.ThreadPoolExecutor(1)
    try:
        calls = {"call": lambda: plain(torch.ones(1, 2)), "state_dict": plain.state_dict,
                 "load": lambda: plain.load_state_dict({}),
                 "module": lambda: float(plain._module(torch.ones(1, 2)))}
        return pool.submit(calls[call]).result(timeout=30)
    finally:
        pool.shutdown(wait=False)


@pytest.mark.parametrize("call", ["call", "state_dict", "load"])
def test_another_thread_of_a_step_gets_an_error_and_does_not_wait_for_the_step(c, call):
    assert "neither main nor a step" in error_of(c, from_another_thread, call)


def test_another_thread_may_compute_with_the_torch_module(c):
    expected = float(plain(torch.ones(1, 2)))
    assert c.schedule(from_another_thread, "module").fetch() == pytest.approx(expected)


# ---- GPUs, which the tests play ----


class OnGpu:
    """What an array of CuPy shows, on a machine where PyTorch cannot reach the GPU."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        raise BufferError("no copy to the CPU")


class FromOtherLibrary(OnGpu):
    """One that PyTorch can take."""


def test_an_array_of_another_library_on_a_gpu_names_the_leaf(c):
    with pytest.raises(TypeError, match=r"'batch'\['x'\] is a OnGpu in the memory of a GPU"):
        c.schedule(double_the_batch, {"x": OnGpu()})
    with pytest.raises(TypeError, match=r"tensors\['x'\] is a OnGpu in the memory of a GPU"):
        divvy.tensors({"x": OnGpu()})


def test_an_array_on_a_gpu_comes_by_dlpack(c, monkeypatch):
    monkeypatch.setattr(torch, "from_dlpack", lambda given: torch.full((2,), 3.0))
    assert c.schedule(numpy_asked_for, {"x": FromOtherLibrary(), "y": [0]}).fetch()[0] == "ndarray"


@pytest.mark.parametrize("gpus, task, count, wanted", [
    ("", {"type": "worker", "index": 1}, 0, "cpu"),
    ("", {"type": "worker", "index": 1}, 2, "cuda:1"),
    ("--gpus=auto", {"type": "worker", "index": 5}, 4, "cuda:1"),
    ("--gpus=0,2", {"type": "worker", "index": 3}, 4, "cuda:2"),
    ("--gpus 3", {"type": "worker", "index": 0}, 4, "cuda:3"),
    ("-gpus=none", {"type": "worker", "index": 0}, 4, "cpu"),
    ("--gpus=all", {"type": "chief", "index": 0}, 4, "cpu"),
    ("--gpus=all", None, 4, "cuda:0"),
    ("-- --gpus=none", None, 4, "cuda:0"),
])
def test_the_flag_gpus_gives_each_worker_a_gpu(gpus, task, count, wanted, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(sys, "argv", ["train.py", *gpus.split()])
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if task is not None:
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {}, "task": task}))
    assert str(dt.device()) == wanted


@pytest.mark.parametrize("gpus, text", [
    ("0,0", "each once, as in 0,2"), ("some", "wanted auto, all, none"),
    ("7", "PyTorch sees 0 GPUs"), ("all", "PyTorch sees no GPU"),
])
def test_a_gpu_that_is_not_there_is_one_clear_error(gpus, text, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["train.py", "--gpus=" + gpus])
    with pytest.raises(ValueError, match=text):
        dt.device()
