"""dt.Module: a torch module on the parameter servers does what it does alone."""
import copy
import pickle
import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import divvy
import divvy.torch as dt

F = nn.functional
torch.manual_seed(5)
RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 6)).astype(np.float32)
Y = (X @ RNG.normal(size=(6, 3))).astype(np.float32)


def batches(count=10, size=4):
    return divvy.tensors({"x": X[:count * size], "y": Y[:count * size]}).batch(size)


# ---- the same as torch alone ---------------------------------------------------------------------


class Mixed(nn.Module):
    """Tied, unused, frozen and normalizing parts."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.first.weight
        self.norm = nn.BatchNorm1d(6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.last = nn.Linear(6, 3, bias=False)
        self.unused = nn.Linear(2, 2)
        self.register_buffer("table", torch.arange(6.0), persistent=False)

    def forward(self, x):
        x = self.norm(self.frozen(self.tied(torch.relu(self.first(x)))))
        return self.last(x + self.table)


net = Mixed()
alone = copy.deepcopy(net)
mixed = dt.Module("mixed", net, optimizer=divvy.Sgd(0.05))


@dt.step
def train_mixed(batch):
    loss = F.mse_loss(mixed(batch["x"]), batch["y"])
    loss.backward()
    return {"loss": loss}


@dt.step(read_only=True)
def predict_mixed(x):
    result = mixed(x)
    return {"y": result, "graph": result.requires_grad, "train": mixed.module.training}


def test_training_is_torchs_own_with_tied_unused_frozen_and_normalizing_parts():
    storages = [one.data_ptr() for one in net.parameters()]
    optimizer = torch.optim.SGD([p for p in alone.parameters() if p.requires_grad], 0.05)
    with divvy.testing.cluster(ps=2) as c:
        metrics = c.run_epoch(train_mixed, batches())
        losses = []
        for i in range(0, 40, 4):
            optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(alone(torch.from_numpy(X[i:i + 4])), torch.from_numpy(Y[i:i + 4]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
        state = mixed.state_dict()
        expected = alone.state_dict()
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-6)
        assert int(state["norm.num_batches_tracked"]) == 10

        result = c.schedule(predict_mixed, X[:7]).fetch()
        alone.eval()
        with torch.no_grad():
            np.testing.assert_allclose(result["y"], alone(torch.from_numpy(X[:7])).numpy(),
                                       rtol=1e-4, atol=1e-5)
        assert not result["graph"] and not result["train"]
        torch.testing.assert_close(mixed(X[:7]), dt.tensor(result["y"]))  # in main
    assert [one.data_ptr() for one in net.parameters()] == storages
    assert net.training and net.norm.training
    assert all(one.grad is None for one in net.parameters())


# ---- gradients -----------------------------------------------------------------------------------

weight = nn.Linear(2, 1, bias=False)
nn.init.zeros_(weight.weight)
ones = dt.Module("ones", weight, optimizer=divvy.Sgd(1.0))


@divvy.step
def subtract_one(times=1):
    for _ in range(times):
        ones(np.ones((1, 2), np.float32)).sum().backward()


@divvy.step
def subtract_one_directly():
    weight(torch.ones(1, 2)).sum().backward()


@divvy.step
def backward_and_raise():
    ones(torch.ones(1, 2)).sum().backward()
    raise ValueError("after backward")


@divvy.step
def forward_only():
    return float(ones(torch.ones(1, 2)))


@divvy.step
def clip_by_torch():
    (ones(torch.tensor([[3.0, 4.0]])) * 10).sum().backward()
    return float(nn.utils.clip_grad_norm_(ones.parameters(), 1.0))


def value(c):
    del c
    return ones.state_dict()["weight"].tolist()


def test_several_backward_calls_add_up():
    with divvy.testing.cluster() as c:
        c.schedule(subtract_one, times=3).fetch()
        assert value(c) == [[-3.0, -3.0]]


def test_the_torch_module_itself_joins_the_step():
    with divvy.testing.cluster() as c:
        c.schedule(subtract_one).fetch()
        weight.weight.data.fill_(77)  # what another step left
        c.schedule(subtract_one_directly).fetch()
        assert c.schedule(forward_only).fetch() == -4.0


def test_a_step_that_raises_leaves_nothing():
    with divvy.testing.cluster() as c:
        with pytest.raises(ValueError, match="after backward"):
            c.schedule(backward_and_raise).fetch()
        with pytest.raises(ValueError):
            c.join()
        assert weight.weight.grad is None
        assert c.schedule(forward_only).fetch() == 0.0
        c.join()
        assert value(c) == [[0.0, 0.0]]


def test_torch_may_clip():
    with divvy.testing.cluster() as c:
        assert c.schedule(clip_by_torch).fetch() == pytest.approx(50.0)
        np.testing.assert_allclose(value(c), [[-0.6, -0.8]], rtol=1e-5)


def test_workers_of_one_process_take_turns():
    with divvy.testing.cluster(ps=2, workers=3) as c:
        for _ in range(100):
            c.schedule(subtract_one)
        c.join()
        assert value(c) == [[-100.0, -100.0]]


# ---- dtypes, modes, sparse rows ------------------------------------------------------------------

half = nn.Linear(6, 3).to(torch.bfloat16)
halves = dt.Module("halves", half, optimizer=divvy.Adam(0.05))
rows = nn.Embedding(10, 2, sparse=True)
nn.init.zeros_(rows.weight)
sparse = dt.Module("sparse", rows, optimizer=divvy.Sgd(1.0))
dropout = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(6, affine=False).eval())
modes = dt.Module("modes", dropout)


@dt.step
def train_halves(batch):
    loss = F.mse_loss(halves(batch["x"].to(torch.bfloat16)).float(), batch["y"])
    loss.backward()
    assert half.weight.grad.dtype == torch.bfloat16
    return {"loss": loss}


@dt.step
def train_sparse(ids):
    sparse(ids).sum().backward()
    assert rows.weight.grad.is_sparse


@divvy.step
def see_modes(evaluate):
    if evaluate:
        modes.eval()
    modes(torch.ones(1, 6))
    return [bool(one.training) for one in dropout]


def test_halves_are_float32_on_the_parameter_servers():
    with divvy.testing.cluster() as c:
        first = c.run_epoch(train_halves, batches())
        for _ in range(9):
            last = c.run_epoch(train_halves, batches())
        assert last["loss"] < first["loss"] / 3
        assert halves.state_dict()["weight"].dtype == torch.bfloat16
        assert half.weight.dtype == torch.bfloat16
        kept = divvy.read(halves._leaves[0].variable)[0]
        assert kept.dtype == np.float32
        assert (kept != torch.from_numpy(kept.copy()).bfloat16().float().numpy()).any()


def test_sparse_gradients_are_rows():
    with divvy.testing.cluster(ps=2) as c:
        c.schedule(train_sparse, np.array([1, 3, 3])).fetch()
        values = sparse.state_dict()["weight"][:, 0].tolist()
    assert values == [0, -1, 0, -2, 0, 0, 0, 0, 0, 0]


def test_each_step_begins_in_the_declared_mode():
    with divvy.testing.cluster() as c:
        assert c.schedule(see_modes, True).fetch() == [False, False]
        assert c.schedule(see_modes, False).fetch() == [True, False]


# ---- main ----------------------------------------------------------------------------------------


def test_state_dict_goes_back_and_forth():
    with divvy.testing.cluster(ps=2) as c:
        c.run_epoch(train_mixed, batches())
        state = mixed.state_dict()
        c.run_epoch(train_mixed, batches())
        mixed.load_state_dict(state)
        for one in net.parameters():
            one.data.zero_()
        again = mixed.state_dict()
    for name, value_ in state.items():
        torch.testing.assert_close(again[name], value_)
    assert not torch.equal(state["first.weight"], alone.state_dict()["first.weight"])


def test_in_main_there_are_no_gradients_and_no_changes():
    with divvy.testing.cluster():
        before = mixed.state_dict()["norm.running_mean"]
        assert not mixed(X[:4]).requires_grad
        assert torch.equal(mixed.state_dict()["norm.running_mean"], before)
        with pytest.raises(RuntimeError, match="belong into steps"):
            mixed.eval()


# ---- tensors -------------------------------------------------------------------------------------


@dt.step
def see_arguments(batch, flag, text):
    assert torch.is_tensor(batch["x"]) and batch["x"].dtype == torch.float32
    assert type(flag) is bool and type(text) is str
    return batch["x"].sum()


def test_arrays_arrive_as_tensors():
    with divvy.testing.cluster() as c:
        total = c.schedule(see_arguments, {"x": X}, True, "text").fetch()
    assert float(total) == pytest.approx(X.sum(), rel=1e-4)


def test_a_tensor_shares_the_memory_of_a_read_only_array_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"):
            array = np.ones((3, 2), dtype)
            array.flags.writeable = False
            made = dt.tensor(array)
            assert made.data_ptr() == array.ctypes.data
            assert made.shape == (3, 2) and str(made.dtype) == "torch." + dtype
        assert not array.flags.writeable
        assert dt.tensor(np.zeros((0, 3), np.float32)).shape == (0, 3)
        assert dt.tensor(np.array(2.5)).item() == 2.5
        assert dt.tensor(np.arange(6)[::-2]).tolist() == [5, 3, 1]
        assert dt.tensor(np.arange(3, dtype=">i8")).tolist() == [0, 1, 2]


def test_the_memory_lives_as_long_as_the_tensor():
    array = np.full(1000000, 3.0, np.float32)
    array.flags.writeable = False
    made = dt.tensor(array)
    del array
    others = [np.zeros(1000000, np.float32) for _ in range(4)]
    assert made.sum().item() == 3000000 and len(others) == 4


def test_nests_keep_their_form():
    nest = {"a": [np.ones(2), 3], "b": ("text", np.zeros(1)), "c": None}
    made = dt.tensors(nest)
    assert torch.is_tensor(made["a"][0]) and made["a"][1] == 3
    assert type(made["b"]) is tuple and made["b"][0] == "text" and made["c"] is None


# ---- wrong use -----------------------------------------------------------------------------------

own_sgd = torch.optim.SGD(net.parameters(), 0.1)


@dt.step
def use_torch_optim(batch):
    F.mse_loss(mixed(batch["x"]), batch["y"]).backward()
    own_sgd.step()


@dt.step(read_only=True)
def backward_in_read_only(x):
    with torch.enable_grad():
        mixed(x).sum().backward()


@dt.step
def thaw(x):
    net.frozen.weight.requires_grad_()
    try:
        mixed(x).sum().backward()
    finally:
        net.frozen.weight.requires_grad_(False)


@dt.step
def replace_parameter(x):
    mixed(x).sum().backward()
    net.last.weight = nn.Parameter(torch.zeros(3, 6))


@dt.step
def nan_loss(x):
    (mixed(x).sum() * float("nan")).backward()


@dt.step
def load_in_step(x):
    mixed.load_state_dict({})


@pytest.mark.parametrize("step, text", [
    (use_torch_optim, "use no torch.optim"),
    (backward_in_read_only, "step .*backward_in_read_only is read-only"),
    (thaw, "'frozen.weight' of dt.Module 'mixed' was frozen"),
    (replace_parameter, "'last.weight' of dt.Module 'mixed' was replaced"),
    (nan_loss, "nan at element"),
    (load_in_step, "belongs into main"),
])
def test_wrong_use_in_a_step_is_one_clear_error(step, text):
    last = net.last.weight
    with divvy.testing.cluster() as c:
        argument = {"x": X[:4], "y": Y[:4]} if step is use_torch_optim else X[:4]
        try:
            with pytest.raises(Exception, match=text):
                c.schedule(step, argument).fetch()
        finally:
            net.last.weight = last
        assert all(one.grad is None for one in net.parameters())
        with pytest.raises(Exception, match=text):
            c.join()
        c.schedule(subtract_one).fetch()  # the lock is free


class Lazy(nn.Module):

    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(3)


def shared_with_mixed():
    other = nn.Linear(6, 6)
    other.weight = net.first.weight
    return other


@pytest.mark.parametrize("make, options, error, text", [
    (lambda: nn.Linear(2, 2), {}, ValueError, "'weight' of dt.Module 'bad.*' wants a gradient"),
    (lambda: nn.Linear(2, 2).double(), {"optimizer": divvy.Sgd(1.0)}, TypeError, "call .float"),
    (lambda: nn.Linear(2, 2, dtype=torch.complex64).requires_grad_(False), {}, TypeError,
     "complex64, which no variable holds"),
    (Lazy, {"optimizer": divvy.Sgd(1.0)}, ValueError, "'layer.weight' .* has no shape yet"),
    (lambda: nn.Linear(2, 2, device="meta"), {"optimizer": divvy.Sgd(1.0)}, ValueError, "meta"),
    (shared_with_mixed, {"optimizer": divvy.Sgd(1.0)}, ValueError, "'mixed/first.weight' already"),
    (lambda: 7, {}, TypeError, "7 is no torch.nn.Module"),
    (lambda: nn.Linear, {}, TypeError, "is no torch.nn.Module"),
    (lambda: nn.Linear(2, 1), {"optimizer": torch.optim.Adam}, TypeError, "such as divvy.Adam"),
    (lambda: nn.Linear(2, 1), {"optimizer": divvy.Adam}, TypeError, r"divvy.Adam\(1e-3\)"),
])
def test_a_module_that_cannot_be_declared_is_one_clear_error(make, options, error, text, request):
    with pytest.raises(error, match=text):
        dt.Module("bad%d" % abs(hash(request.node.name)), make(), **options)


def test_two_modules_cannot_have_one_name():
    with pytest.raises(ValueError, match="variable 'ones/weight' is declared twice"):
        dt.Module("ones", nn.Linear(2, 1, bias=False), optimizer=divvy.Sgd(1.0))


def test_outside_of_a_job_a_call_is_an_error():
    with pytest.raises(RuntimeError, match="neither main nor a step"):
        ones(torch.ones(1, 2))
    raised = []

    def other_thread():
        try:
            ones(torch.ones(1, 2))
        except RuntimeError as error:
            raised.append(str(error))

    with divvy.testing.cluster():
        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
    assert "neither main nor a step" in raised[0]


def test_in_main_the_torch_module_has_the_newest_values():
    with divvy.testing.cluster() as c:
        c.schedule(subtract_one).fetch()
        x = torch.ones(1, 2)
        for use in (lambda: weight(x), lambda: ones(x), lambda: ones.module(x),
                    lambda: weight.state_dict()["weight"].sum(),
                    lambda: ones.state_dict()["weight"].sum(),
                    lambda: sum(one.sum() for one in ones.parameters())):
            weight.weight.data.fill_(77)  # what a chief of a cluster has from its beginning
            assert use().item() == -2.0
    weight.weight.data.fill_(5)
    assert weight(x).item() == 10.0, "the job is over, and nobody loads the module"


def test_gradients_may_be_computed_in_main():
    with divvy.testing.cluster():
        first, second = weight(torch.ones(1, 2)), weight(torch.ones(1, 2))
        weight.state_dict()
        (first + second).sum().backward()
        assert [one.grad.tolist() for one in ones.parameters()] == [[[2.0, 2.0]]]
        weight.weight.grad = None


def test_a_trace_in_main_has_the_forward_only():
    with divvy.testing.cluster() as c:
        c.schedule(subtract_one).fetch()
        traced = torch.jit.trace(ones.module, torch.ones(1, 2))
        assert "copy_" not in str(traced.graph)
        assert traced(torch.ones(1, 2)).item() == -2.0


def test_what_state_dict_gave_does_not_change_with_the_steps():
    with divvy.testing.cluster() as c:
        state = weight.state_dict()
        c.schedule(subtract_one).fetch()
        assert c.schedule(forward_only).fetch() == -2.0
        assert state["weight"].tolist() == [[0.0, 0.0]]


def test_torchscript_is_refused():
    traced = torch.jit.trace(nn.Linear(2, 1), torch.ones(1, 2))
    for module in (traced, torch.jit.script(nn.Linear(2, 1))):
        with pytest.raises(TypeError, match="'traced': a .* is TorchScript.*that torch.jit.trace"):
            dt.Module("traced", module, optimizer=divvy.Sgd(1.0))


def test_a_module_does_not_travel_but_its_copy_is_free():
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(ones)
    free = copy.deepcopy(weight)
    assert free(torch.ones(1, 2)).shape == (1, 1)
    assert pickle.loads(pickle.dumps(weight)).weight.shape == (1, 2)


def test_other_objects_are_no_arrays():
    with pytest.raises(TypeError, match="dt.tensor got a list"):
        dt.tensor([1, 2])
