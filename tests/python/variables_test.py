"""Variables and tables, in main and in steps."""
import numpy as np
import pytest

import divvy

w = divvy.Variable("w", (4, 3), optimizer=divvy.Sgd(1.0), initializer=0.5)
count = divvy.Variable("count", (), dtype="int64")
plain = divvy.Variable("plain", (3,))
long = divvy.Variable("long", 40, optimizer=divvy.Sgd(1.0))
half = divvy.Variable("half", (2, 2), dtype="float16", initializer=np.eye(2, dtype=np.float16))
flags = divvy.Variable("flags", 2, dtype=np.bool_)
brain = divvy.Variable("brain", (2,), dtype="bfloat16")
users = divvy.Table("users", 2, optimizer=divvy.Sgd(1.0), initializer=divvy.Constant(1.0))


@pytest.fixture(scope="module")
def c():
    with divvy.testing.cluster(ps=2) as coordinator:
        yield coordinator


@pytest.fixture(autouse=True)
def reset(c):
    w.assign(np.full((4, 3), 0.5, np.float32))
    count.assign(0)


def run(c, step, *args):
    value = c.schedule(step, *args)
    c.join()
    return value.fetch()


# ---- main ----

def test_main_reads_and_writes():
    assert w.shape == (4, 3) and w.dtype == "float32" and w.name == "w"
    assert np.array_equal(w.read(), np.full((4, 3), 0.5))
    w.assign_add(np.ones((4, 3), np.float32))
    w.assign_sub(np.full((4, 3), 0.25, np.float32))
    assert np.array_equal(w.numpy(), np.full((4, 3), 1.25))
    count.assign_add(41)
    count.assign_add(np.int64(1))
    assert int(count.numpy()) == 42


def test_every_dtype_is_read_as_its_own():
    assert np.array_equal(half.read(), np.eye(2)) and half.read().dtype == np.float16
    flags.assign([True, False])
    assert flags.read().tolist() == [True, False] and flags.read().dtype == np.bool_
    brain.assign([1.5, -2.0])
    assert [float(x) for x in brain.read()] == [1.5, -2.0]


def test_numpy_gives_a_copy_and_read_a_read_only_array():
    copy = w.numpy()
    copy[0, 0] = 9
    assert w.read()[0, 0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        w.read()[0, 0] = 1


def test_what_was_read_may_be_assigned_again():
    before = w.numpy()
    w.assign(w.read())
    assert np.array_equal(w.read(), before)
    value = w.read()
    w.assign_add(value)
    assert np.array_equal(value, before), "an array is not changed by a later write"
    assert np.array_equal(w.read(), 2 * before)
    w.assign(value)
    assert np.array_equal(w.read(), before)


def test_rows_are_looked_up_and_scattered():
    w.scatter("update", [1, 3], np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    w.scatter("add", np.array([1, 1], np.int32), np.ones((2, 3), np.float32))
    rows = w.lookup(np.array([[3, 1], [1, 0]]))
    assert rows.tolist() == [[[4, 5, 6], [3, 4, 5]], [[3, 4, 5], [0.5, 0.5, 0.5]]]
    assert w.lookup(np.zeros((0,), np.int64)).shape == (0, 3)


@pytest.mark.parametrize("call, error, words", [
    (lambda: w.assign(np.zeros((3, 4), np.float32)), ValueError, r"assign.*\[3, 4\].*\[4, 3\]"),
    (lambda: w.assign(np.zeros((4, 3))), TypeError, "float64, and the variable is float32.*astype"),
    (lambda: w.assign("x"), TypeError, r'"w".assign.*str'),
    (lambda: w.assign(None), TypeError, r'"w".assign'),
    (lambda: w.assign([[1, 2], [3]]), TypeError, r'"w".assign'),
    (lambda: count.assign(1.5), TypeError, "has floats.*whole numbers"),
    (lambda: w.assign([[1j] * 3] * 4), TypeError, "has complex numbers"),
    (lambda: divvy.tensors({"x": [w]}), TypeError, r"\['x'\].*: Variable.* is no array"),
    (lambda: divvy.Table("t8", True), TypeError, "dim of .*t8.* is True"),
    (lambda: count.assign(2**70), TypeError, '"count".assign'),
    (lambda: w.lookup([4]), ValueError, '"w"'),
    (lambda: w.lookup([0.5]), TypeError, "floats.*whole numbers"),
    (lambda: w.lookup(np.array([0.5])), TypeError, "float64, wanted int64"),
    (lambda: count.lookup([0]), ValueError, "count"),
    (lambda: w.scatter("replace", [0], np.zeros((1, 3), np.float32)), ValueError, "op is"),
    (lambda: w.scatter("add", [0], np.zeros((2, 3), np.float32)), ValueError,
     r"\[2, 3\].*\[1, 3\]"),
    (lambda: w.apply_gradient(np.zeros((4, 3), np.float32)), RuntimeError, "belong to steps"),
    (lambda: users.scatter("mul", [0], np.zeros((1, 2), np.float32)), ValueError, "users"),
    (lambda: divvy.Variable("w", (1,)), ValueError, "declared twice"),
    (lambda: divvy.Variable("bad name", (1,)), ValueError, "bad name"),
    (lambda: divvy.Variable("v1", (-1,)), ValueError, "v1"),
    (lambda: divvy.Variable("v2", "x"), (TypeError, ValueError), ""),
    (lambda: divvy.Variable("v3", (1,), dtype="complex64"), TypeError, "complex64"),
    (lambda: divvy.Variable("v4", (1,), dtype="floaty"), TypeError, "floaty"),
    (lambda: divvy.Variable("v5", (1,), dtype="int64", optimizer=divvy.Sgd(1)), ValueError, "v5"),
    (lambda: divvy.Variable("v6", (1,), optimizer=divvy.Sgd("fast")), TypeError, "Sgd"),
    (lambda: divvy.Variable("v7", (1,), optimizer=divvy.Adam(1.0, beta1=2)), ValueError, "beta1"),
    (lambda: divvy.Variable("v8", (2,), initializer=np.zeros(3, np.float32)), ValueError, "v8"),
    (lambda: divvy.Variable("v9", (2,), aggregation="median"), ValueError, "aggregation"),
    (lambda: divvy.Variable("v10", 2, optimizer="adam"), TypeError, '"?v10.* is .adam.*divvy.Adam'),
    (lambda: divvy.Variable("v11", 2, optimizer=divvy.Adam), TypeError, "the class Adam: make one"),
    (lambda: divvy.Variable("v12", 2, optimizer=np.zeros(2)), TypeError, "v12.*divvy.Adam"),
    (lambda: divvy.Variable("v13", 2, initializer=divvy.Sgd(1.0)), TypeError,
     "initializer of .*v13"),
    (lambda: divvy.Variable("v14", 2, initializer=divvy.Ones), TypeError, "v14"),
    (lambda: divvy.Variable("v15", 2, initializer=divvy.HeNormal), TypeError, "the class HeNormal"),
    (lambda: divvy.Variable("v16", 2, initializer=None), TypeError, "v16"),
    (lambda: divvy.Variable("v17", 2, shards="2"), TypeError, "shards of .*v17.*whole number"),
    (lambda: divvy.Variable("v18", 2, shards=-1), ValueError, "shards of .*v18.* at least 1"),
    (lambda: divvy.Variable("v19", 2, wire=16), TypeError, "wire of .*v19"),
    (lambda: divvy.Variable("v20", [2.7, 3]), TypeError, "dimension of .*v20.* 2.7"),
    (lambda: divvy.Variable(5, (2,)), TypeError, "name of a variable, its first argument, is 5"),
    (lambda: divvy.Table(1000, 16), TypeError, "name of a table, its first argument, is 1000"),
    (lambda: divvy.Table("t3", 2.5), TypeError, "dim of .*t3"),
    (lambda: divvy.Table("t4", 2, admission=3), TypeError, "admission of .*t4.*AdmitAfter"),
    (lambda: divvy.Table("t5", 2, admission=None), TypeError, "admission of .*t5"),
    (lambda: divvy.Table("t6", 2, eviction=divvy.EvictNever), TypeError, "the class EvictNever"),
    (lambda: divvy.Table("t7", 2, max_rows=1.5), TypeError, "max_rows of .*t7"),
    (lambda: np.ones((2, 4), np.float32) @ w, TypeError, r"w.* is no array.*\.read\(\)"),
    (lambda: np.asarray(users), TypeError, r"users.* is no array.*\.lookup\(ids\)"),
    (lambda: w.assign(np.ma.ones((4, 3), np.float32)), TypeError, "w.*masked array"),
    (lambda: count.assign(2.0**63), TypeError, "more than 64 bits"),
    (lambda: divvy.Table("t1", 0), ValueError, "t1"),
    (lambda: divvy.Table("t2", 2, eviction=divvy.EvictLeastUsed()), ValueError, "max_rows"),
])
def test_bad_input_is_one_clear_error(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_variable_of_main_is_created_at_once_and_a_failed_one_leaves_its_name_free():
    with pytest.raises(ValueError):
        divvy.Variable("late", (-2,))
    late = divvy.Variable("late", (2,), initializer=divvy.Ones())
    assert late.read().tolist() == [1, 1]


def test_a_variable_is_neither_pickled_nor_copied():
    import copy
    import pickle
    for make in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            make(w)


# ---- steps ----

@divvy.step
def gradients(kind):
    ones = np.ones((4, 3), np.float32)
    if kind == "twice":
        w.apply_gradient(ones)
        w.apply_gradient(2 * ones)
    elif kind == "transposed":
        w.apply_gradient(np.ones((3, 4), np.float32).T)
    elif kind == "rows":
        w.apply_row_gradients([0, 2, 0], np.ones((3, 3), np.float32))
        w.apply_row_gradients([[2]], np.ones((1, 1, 3), np.float32))
    elif kind == "reused":
        w.apply_gradient(ones)
        ones[:] = 100
    elif kind == "both":
        w.apply_gradient(ones)
        w.apply_row_gradients([0], ones[:1])
    elif kind == "shape":
        w.apply_gradient(ones.T)
    elif kind == "dtype":
        w.apply_gradient(ones.astype(np.float64))
    elif kind == "nan":
        ones[1, 2] = np.nan
        w.apply_gradient(ones)
    elif kind == "nan taken":
        ones[1, 2] = np.nan
        w.apply_gradient(ones, allow_nonfinite=True)
    elif kind == "before":
        w.assign(np.full((4, 3), 5, np.float32))
        w.apply_gradient(np.ones((4, 3), np.float32))
    elif kind == "assign after":
        w.apply_gradient(np.ones((4, 3), np.float32))
        w.assign(np.full((4, 3), 5, np.float32))
    elif kind == "scatter after":
        w.apply_row_gradients([1], np.ones((1, 3), np.float32))
        w.scatter("add", [1], np.ones((1, 3), np.float32))
    elif kind == "no optimizer":
        plain.apply_gradient(np.ones(3, np.float32))


@pytest.mark.parametrize("kind, change", [("twice", 3), ("transposed", 1), ("reused", 1)])
def test_whole_gradients_are_added_up_and_copied(c, kind, change):
    run(c, gradients, kind)
    assert np.array_equal(w.read(), np.full((4, 3), 0.5 - change))


def test_a_gradient_after_a_write_is_of_what_was_written(c):
    run(c, gradients, "before")
    assert np.array_equal(w.read(), np.full((4, 3), 4))


def test_gradients_of_rows_are_added_up(c):
    run(c, gradients, "rows")
    assert w.read()[:, 0].tolist() == [-1.5, 0.5, -1.5, 0.5]


@pytest.mark.parametrize("kind, error, words", [
    ("both", ValueError, "whole variable and one of rows"),
    ("shape", ValueError, r"\[3, 4\], wanted \[4, 3\]"),
    ("dtype", ValueError, "float64, and the variable is float32"),
    ("nan", ValueError, r'"w" has nan at element 5'),
    ("no optimizer", ValueError, '"plain" has no optimizer'),
    ("assign after", RuntimeError, 'assign to variable "w" after its gradient in the same step'),
    ("scatter after", RuntimeError, r'scatter\("add"\) to variable "w" after its gradient'),
])
def test_a_bad_gradient_fails_the_step_and_changes_nothing(c, kind, error, words):
    with pytest.raises(error, match=words):
        run(c, gradients, kind)
    assert np.array_equal(w.read(), np.full((4, 3), 0.5))


@divvy.step
def infinite_at(at):
    gradient = np.zeros(40, np.float32)
    gradient[at] = -np.inf
    long.apply_gradient(gradient)


@pytest.mark.parametrize("at", [0, 15, 16, 31, 32, 39])
def test_an_infinity_is_found_wherever_it_is(c, at):
    with pytest.raises(ValueError, match='"long" has -inf at element %d' % at):
        run(c, infinite_at, at)


def test_a_nan_may_be_asked_for(c):
    run(c, gradients, "nan taken")
    assert np.isnan(w.read()[1, 2]) and w.read()[0, 0] == -0.5


@divvy.step
def reads_its_writes(n):
    before = int(count.read())
    count.assign_add(n)
    w.assign(np.zeros((4, 3), np.float32))
    w.scatter("update", [1], np.full((1, 3), 7, np.float32))
    return {"before": before, "after": count.read(), "row": w.lookup([1, 0, 1])}


def test_a_step_sees_its_own_writes(c):
    result = run(c, reads_its_writes, 5)
    assert result["before"] == 0 and result["after"] == 5
    assert result["row"].tolist() == [[7] * 3, [0] * 3, [7] * 3]
    assert int(count.read()) == 5


@divvy.step(read_only=True)
def looks(write):
    if write == "assign":
        count.assign(1)
    elif write == "gradient":
        w.apply_gradient(np.zeros((4, 3), np.float32))
    return [*divvy.read(w, count)]


def test_a_read_only_step_reads_and_writes_nothing(c):
    before = c.step
    values = run(c, looks, "")
    assert np.array_equal(values[0], np.full((4, 3), 0.5)) and values[1] == 0
    assert c.step == before
    for write in ("assign", "gradient"):
        with pytest.raises(RuntimeError, match="read-only"):
            run(c, looks, write)


# ---- tables ----

@divvy.step
def visit(ids):
    rows = users.lookup(ids)
    users.apply_gradient(ids, np.full(rows.shape, 0.25, np.float32))
    return rows


def test_a_table_takes_any_int64(c):
    ids = np.array([[-2**63, 7], [7, 2**63 - 1]])
    assert run(c, visit, ids).tolist() == [[[1, 1]] * 2] * 2
    found = users.find([7, -2**63, 8])
    assert [one["exists"] for one in found] == [True, True, False]
    assert found[0]["values"].tolist() == [0.5, 0.5] and found[0]["count"] == 1
    assert found[1]["values"].tolist() == [0.75, 0.75]
    assert users.stats()["rows"] == 3
    assert sum(part["rows"] for part in users.stats()["servers"].values()) == 3
    assert users.lookup([7]).tolist() == [[0.5, 0.5]]
    assert users.lookup([]).shape == (0, 2)


@divvy.step
def visit_badly(kind):
    if kind == "width":
        users.apply_gradient([1], np.zeros((1, 3), np.float32))
    elif kind == "ids":
        users.apply_gradient(np.array([1.0]), np.zeros((1, 2), np.float32))
    elif kind == "number":
        users.apply_gradient([1, 2], np.zeros((1, 2), np.float32))


@pytest.mark.parametrize("kind, words", [("width", r"\[1, 3\], wanted \[1, 2\]"),
                                         ("ids", "float64, wanted int64"),
                                         ("number", r"\[1, 2\], wanted \[2, 2\]")])
def test_a_bad_gradient_of_a_table_names_it(c, kind, words):
    with pytest.raises(ValueError, match='"users".*' + words):
        run(c, visit_badly, kind)


def test_clipping_scales_all_gradients():
    clipped, norm = divvy.clip_by_global_norm([np.array([3.0], np.float32), None,
                                               np.array([4.0], np.float32)], 1.0)
    assert norm == 5.0 and clipped[1] is None
    assert clipped[0][0] == pytest.approx(0.6) and clipped[2].dtype == np.float32
    same, _ = divvy.clip_by_global_norm([np.array([3.0])], 10.0)
    assert same[0].tolist() == [3.0]
    for bad in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="norm is"):
            divvy.clip_by_global_norm([np.zeros(1)], bad)
    with pytest.raises(ValueError, match="NaN"):
        divvy.clip_by_global_norm([np.array([np.nan])], 1.0)
