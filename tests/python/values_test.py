"""What travels, and what it is when it arrives."""
import gc

import numpy as np
import pytest

from divvy import IndexedSlices, Mean, _divvy

DTYPES = ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]


def travel(value):
    return _divvy.round_trip(value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_arrives_as_it_was(dtype):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    arrived = travel(array)
    assert arrived.dtype == array.dtype and arrived.shape == (2, 3)
    assert np.array_equal(arrived, array)


def test_numbers_and_texts_arrive_as_pythons():
    nest = {"i": -3, "f": 2.5, "b": True, "t": "zwölf", "l": [1, [2.0, "x"]], "d": {}}
    arrived = travel(nest)
    assert arrived == nest
    assert type(arrived["b"]) is bool and type(arrived["i"]) is int
    assert type(arrived["f"]) is float


def test_a_tuple_arrives_as_a_list_and_a_numpy_scalar_as_itself():
    assert travel((1, (2, 3))) == [1, [2, 3]]
    assert travel(np.float32(0.5)) == np.float32(0.5)
    assert travel(np.float32(0.5)).dtype == np.float32


def test_nan_and_infinity_arrive():
    arrived = travel(np.array([np.nan, np.inf, -np.inf], np.float32))
    assert np.isnan(arrived[0]) and arrived[1] == np.inf and arrived[2] == -np.inf


@pytest.mark.parametrize("array", [
    np.arange(12, dtype=np.float32).reshape(3, 4).T,
    np.arange(12, dtype=np.int64)[::-2],
    np.arange(6, dtype=np.float64).reshape(2, 3).astype(">f8"),
    np.frombuffer(b"x" + np.arange(4, dtype=np.int32).tobytes(), np.uint8)[1:].view(np.int32),
    np.zeros((0, 5), np.float32),
    np.zeros((), np.int32),
    np.array([True, False, True])[::2],
], ids=["transposed", "strided", "big-endian", "unaligned", "empty", "rank 0", "bools"])
def test_any_layout_of_memory_travels(array):
    arrived = travel(array)
    assert arrived.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(arrived, array)


def test_a_bool_of_another_byte_becomes_true():
    arrived = travel(np.array([0, 1, 2, 255], np.uint8).view(bool))
    assert arrived.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_indexed_slices_and_metrics_travel():
    slices = travel(IndexedSlices(np.array([3, 1]), np.ones((2, 4), np.float32), 10))
    assert slices.ids.tolist() == [3, 1] and slices.rows.shape == (2, 4) and slices.num_rows == 10
    metric = travel({"loss": Mean(np.array([1.0, 3.0]))})["loss"]
    assert metric.value == 2.0 and metric.count == 2.0


def test_an_arrived_array_is_read_only_and_outlives_all_else():
    array = travel({"x": np.arange(1000.0)})["x"]
    tail = array[990:]
    del array
    gc.collect()
    assert tail.tolist() == list(range(990, 1000))
    with pytest.raises(ValueError, match="read-only"):
        tail[0] = 1


def test_nobody_can_change_an_arrived_array_and_it_travels_again_without_a_copy():
    for given in (np.arange(12, dtype=np.float32), np.arange(12) % 2 == 0):
        array = travel({"x": given})["x"]
        for each in (array, array[:], array.reshape(3, 4)):
            with pytest.raises(ValueError, match="WRITEABLE"):
                each.setflags(write=True)
            again = travel(each)
            assert again.tolist() == each.tolist() and again.dtype == each.dtype
            assert np.shares_memory(again, array)


def test_views_of_another_type_or_order_are_copied():
    array = travel({"x": np.arange(12, dtype=np.float32)})["x"]
    assert travel(array.view(np.int32)).tolist() == array.view(np.int32).tolist()
    assert travel(array.reshape(3, 4).T).tolist() == array.reshape(3, 4).T.tolist()
    assert travel(array[::-1]).tolist() == array[::-1].tolist()
    arrived = travel({"x": np.array([0, 2, 1], np.uint8)})["x"]
    assert travel(arrived.view(np.bool_)).view(np.uint8).tolist() == [0, 1, 1]


def test_what_was_copied_by_the_program_is_copied_when_it_travels():
    copy = travel(np.arange(3.0)).copy()
    again = travel(copy)
    copy[:] = 7
    assert again.tolist() == [0, 1, 2]


def test_a_part_does_not_keep_the_whole_in_memory():
    array = travel({"x": np.arange(1000.0)})["x"]
    part = travel(array[:999])
    assert part.tolist() == list(range(999)) and not np.shares_memory(part, array)


def test_an_array_that_was_given_other_memory_is_copied():
    array = travel({"x": np.arange(12.0)})["x"]
    view = array[:]
    view.__setstate__((1, (12,), np.dtype(np.float64), False, bytes(96)))
    again = travel(view)
    view[:] = 5
    assert again.tolist() == [0] * 12


def test_changing_an_array_later_changes_nothing_that_travelled():
    array = np.zeros(3)
    arrived = travel(array)
    array[:] = 7
    assert arrived.tolist() == [0, 0, 0]


def test_dlpack_gives_the_same_memory():
    arrived = travel(np.arange(3.0))
    array = np.array(arrived)  # NumPy 1.24 refuses to export read-only memory
    assert np.from_dlpack(array).tolist() == [0, 1, 2]


class OnlyDLPack:
    """As a tensor of another library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_a_tensor_of_another_library_travels_by_dlpack():
    assert travel(OnlyDLPack(np.arange(4, dtype=np.int32))).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("value, names", [
    ({"a": [1, None]}, r"\['a'\]\[1\] is a NoneType"),
    ({"a": {"b": object()}}, r"\['a'\]\['b'\] is a object"),
    ({1: 2}, "key 1: only texts"),
    ({"x": np.zeros(2, np.uint16)}, r"\['x'\] has dtype uint16.*astype"),
    ({"x": np.array(["a"])}, r"\['x'\] has dtype <U1"),
    ({"x": np.array([object()])}, "has dtype object"),
    ({"x": np.zeros(2, np.complex64)}, "has dtype complex64"),
    ({"x": 2**80}, "more than 64 bits"),
    ({"x": {1, 2}}, r"\['x'\] is a set"),
    ({"x": b"bytes"}, r"\['x'\] is a bytes"),
    ({"x": 1j}, r"\['x'\] is a complex"),
    ({"x": "\ud800"}, "lone surrogate"),
    ({"x": np.zeros((1,) * 9, np.float32)}, r"\['x'\].*dimensions"),
    (lambda: 0, "is a function"),
    (np.array([(1, 2.0)], dtype="i4,f4"), "has dtype"),
    (np.array(["2020-01-01"], "datetime64[D]"), "has dtype datetime64"),
])
def test_what_cannot_travel_is_a_type_error_that_names_the_leaf(value, names):
    with pytest.raises(TypeError, match=names):
        travel(value)


def test_a_nest_that_contains_itself_is_refused():
    nest = []
    nest.append(nest)
    with pytest.raises(TypeError, match="contains itself"):
        travel(nest)


def test_a_huge_text_travels():
    assert travel("x" * 5_000_000) == "x" * 5_000_000
