"""dt.Embedding: rows of a dynamic table as tensors, and their gradients."""
import pickle

import numpy as np
import pytest
import torch

import divvy
import divvy.torch as dt

rows = dt.Embedding("rows", 2, optimizer=divvy.Sgd(1.0), initializer=divvy.Zeros())
fixed = dt.Embedding("fixed", 3, initializer=divvy.Ones())
layer = torch.nn.Linear(2, 1, bias=False)
torch.nn.init.ones_(layer.weight)
model = dt.Module("layer", layer, optimizer=divvy.Sgd(1.0))


@dt.step
def subtract_one(ids):
    found = rows(ids)
    assert found.shape == ids.shape + (2,) and found.dtype == torch.float32
    found.sum().backward()


@dt.step
def several_lookups(ids):
    first, second, unused = rows(ids), rows(ids[:1].numpy()), rows([4])
    (first.sum() + 10 * second.sum()).backward()
    first.sum().backward()
    assert not unused.grad and not fixed(ids).requires_grad


@dt.step
def change_the_ids(ids):
    own = ids.clone()
    rows(own).sum().backward()
    own.zero_()


@dt.step
def raise_after_backward(ids):
    rows(ids).sum().backward()
    raise ValueError("no")


@dt.step
def clip(ids, norm):
    model(rows(ids)).sum().backward()
    unscaled = [float(one) for one in layer.weight.grad.ravel()]
    _, total = divvy.clip_by_global_norm([model, rows], norm)
    return {"total": total, "weight": unscaled}


@dt.step(read_only=True)
def read(ids):
    found = rows(ids)
    assert not found.requires_grad
    return found


@dt.step(read_only=True)
def backward_in_read_only(ids):
    with torch.enable_grad():
        rows(ids).sum().backward()


@dt.step
def in_place(ids):
    rows(ids).mul_(2)


def values(*ids):
    return rows(np.array(ids))[:, 0].tolist()


def test_gradients_of_equal_ids_add_up():
    with divvy.testing.cluster(ps=2) as c:
        c.schedule(subtract_one, np.array([[7, -7, 7], [1 << 60, 7, 0]])).fetch()
        assert values(7, -7, 1 << 60, 0, 5) == [-3, -1, -1, -1, 0]
        c.schedule(subtract_one, np.array([7], np.int32)).fetch()
        assert values(7) == [-4]
        assert rows.table.stats()["rows"] == 4


def test_lookups_and_backward_calls_of_a_step_add_up():
    with divvy.testing.cluster(ps=2) as c:
        c.schedule(several_lookups, np.array([1, 2])).fetch()
        assert values(1, 2, 4) == [-12, -2, 0]
        assert rows.table.stats()["rows"] == 2


def test_ids_have_any_shape_also_an_empty_one():
    with divvy.testing.cluster() as c:
        c.schedule(subtract_one, np.zeros((0, 3), np.int64)).fetch()
        c.schedule(subtract_one, np.array([[[9]]])).fetch()
        assert values(9) == [-1]


def test_the_caller_may_change_its_ids():
    with divvy.testing.cluster() as c:
        c.schedule(change_the_ids, np.array([3])).fetch()
        assert values(0, 3) == [0, -1]


def test_a_step_that_raises_stages_nothing():
    with divvy.testing.cluster() as c:
        with pytest.raises(ValueError):
            c.schedule(raise_after_backward, np.array([3])).fetch()
        with pytest.raises(ValueError):
            c.join()
        c.schedule(subtract_one, np.array([4])).fetch()
        assert values(3, 4) == [0, -1]


def test_clipping_counts_rows_of_equal_ids_once():
    # d/d(row) is [1, 1] for each of the three lookups, and 2 x [1, 1] for id 5: norm^2 is 2 + 8.
    with divvy.testing.cluster() as c:
        result = c.schedule(clip, np.array([5, 6, 5]), 1.0).fetch()
        total = np.sqrt(10.0)
        assert result["total"] == pytest.approx(total)
        assert result["weight"] == [0, 0]
        np.testing.assert_allclose(values(5, 6), [-2 / total, -1 / total], rtol=1e-5)
        # Now the rows are below the norm and stay as they are; the weight's gradient is not 0.
        result = c.schedule(clip, np.array([6]), 100.0).fetch()
        assert result["weight"] == pytest.approx([-1 / total] * 2)
        np.testing.assert_allclose(values(6), [-1 / total - 1], rtol=1e-5)


def test_clipping_refuses_a_gradient_that_is_not_finite():
    with pytest.raises(ValueError, match="global norm of the gradients is inf"):
        divvy.clip_by_global_norm([torch.tensor([float("inf")])], 1.0)


def test_a_table_without_an_optimizer_is_read():
    with divvy.testing.cluster():
        assert fixed([1, 2]).tolist() == [[1, 1, 1], [1, 1, 1]]
        assert not fixed([1]).requires_grad


def test_a_read_only_step_reads_and_wants_no_gradient():
    with divvy.testing.cluster() as c:
        assert c.schedule(read, np.array([1])).fetch().tolist() == [[0, 0]]


@pytest.mark.parametrize("step, ids, text", [
    (backward_in_read_only, np.array([1]), "has a gradient, and step .* is read-only"),
    (in_place, np.array([1]), "leaf Variable that requires grad"),
    (subtract_one, np.array([0.5]), "the ids are float64, wanted int64 or int32"),
])
def test_wrong_use_is_one_clear_error(step, ids, text):
    with divvy.testing.cluster() as c:
        with pytest.raises(Exception, match=text):
            c.schedule(step, ids).fetch()
        with pytest.raises(Exception, match=text):
            c.join()


def test_an_embedding_does_not_travel():
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(rows)
