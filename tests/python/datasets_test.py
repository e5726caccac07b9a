"""Every kind of data, as steps get it and as this process reads it."""
import gzip
import struct
import threading

import numpy as np
import pytest

import divvy
from divvy import _datasets

seen = divvy.Variable("seen", (100,), dtype="int64")
lock = threading.Lock()


def elements(dataset):
    return list(dataset)


def epoch(dataset, step=None, workers=1, passes=1):
    """`seen` after passes of the dataset."""
    with divvy.testing.cluster(ps=2, workers=workers) as c:
        for _ in range(passes):
            metrics = c.run_epoch(step or note, dataset)
        return seen.numpy(), metrics, c.step


@divvy.step
def note(batch):
    ids = batch["i"] if isinstance(batch, dict) else batch
    seen.scatter("add", ids, np.ones(len(ids), np.int64))
    return {"rows": divvy.Mean(float(len(ids)), 1)}


@divvy.step
def note_of_list(batch):
    seen.scatter("add", batch[0], np.ones(len(batch[0]), np.int64))


HUNDRED = divvy.tensors({"i": np.arange(100), "x": np.arange(200.0).reshape(100, 2)})


# ---- tensors and the methods ----

def test_arrays_are_copied_once_for_all_passes():
    context = {"seed": 1, "worker_index": 0, "num_workers": 1}
    first = _datasets.open(HUNDRED._recipe, context)
    assert _datasets.open(HUNDRED._recipe, context) is first


def test_tensors_give_rows_and_batches():
    first = elements(HUNDRED.take(1))[0]
    assert first["i"] == 0 and first["x"].tolist() == [0, 1]
    batches = elements(HUNDRED.batch(30))
    assert [len(one["i"]) for one in batches] == [30, 30, 30, 10]
    assert batches[1]["x"].shape == (30, 2) and batches[1]["x"].dtype == np.float64
    assert not batches[1]["x"].flags.writeable
    assert [len(one["i"]) for one in elements(HUNDRED.batch(30, drop_remainder=True))] == [30] * 3


def test_the_methods_do_what_their_names_say():
    def ids(dataset):
        return [int(one["i"]) for one in dataset]

    assert ids(HUNDRED.skip(95)) == [95, 96, 97, 98, 99]
    assert ids(HUNDRED.take(2).repeat(2)) == [0, 1, 0, 1]
    assert ids(HUNDRED.shard(30, 1)) == [1, 31, 61, 91]
    assert len(ids(HUNDRED.hold_out(5, 0))) == 80 and 5 not in ids(HUNDRED.hold_out(5, 0))
    shuffled = ids(HUNDRED.shuffle(100, seed=3))
    assert shuffled != list(range(100)) and sorted(shuffled) == list(range(100))
    assert shuffled == ids(HUNDRED.shuffle(100, seed=3))
    assert ids(HUNDRED.take(1).concatenate(HUNDRED.skip(99))) == [0, 99]
    assert ids(HUNDRED.batch(7).unbatch().cache().prefetch(2)) == list(range(100))
    assert ids(HUNDRED.filter(is_even).map(doubled).take(3)) == [0, 4, 8]
    assert ids(HUNDRED.map_batches(doubled, rows=10).skip(98)) == [196, 198]
    zipped = elements(divvy.zip({"a": HUNDRED, "b": HUNDRED.skip(1)}).take(1))[0]
    assert zipped["a"]["i"] == 0 and zipped["b"]["i"] == 1
    assert elements(divvy.zip([HUNDRED, HUNDRED.skip(2)]).take(1))[0][1]["i"] == 2


def is_even(element):
    return element["i"] % 2 == 0


def doubled(element):
    return {**element, "i": element["i"] * 2}


class SomeRecordsRaise:

    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 6

    def __getitem__(self, i):
        if i in (1, 4):
            raise self.error
        return {"i": np.int64(i)}


@pytest.mark.parametrize("error", [
    OSError("truncated image"), FileNotFoundError("gone"), KeyError("k"), IndexError("i"),
    RuntimeError("r"), AssertionError("a"), ZeroDivisionError("z"), ValueError("v")])
def test_any_exception_of_a_record_may_be_ignored(error):
    data = divvy.records(SomeRecordsRaise(error))
    assert [one["i"] for one in data.ignore_errors(2)] == [0, 2, 3, 5]
    with pytest.raises(divvy.Error, match=type(error).__name__):
        elements(data.ignore_errors(1))


class Frozen(Exception):

    def __setattr__(self, name, value):
        raise AttributeError("frozen")


def raises_on_three(element):
    if element["i"] == 3:
        raise Frozen("three")
    return element


def keeps_but_raises_on_five(element):
    if element["i"] == 5:
        raise KeyError("five")
    return True


def test_any_exception_of_a_map_and_a_filter_may_be_ignored():
    data = HUNDRED.take(7).map(raises_on_three).filter(keeps_but_raises_on_five)
    assert [one["i"] for one in data.ignore_errors(2)] == [0, 1, 2, 4, 6]
    with pytest.raises(divvy.DataLossError, match="Frozen: three"):
        elements(data)


def test_what_is_no_matter_of_a_record_is_not_ignored():
    for error in (MemoryError("m"), NotImplementedError("n")):
        with pytest.raises(divvy.Error, match=type(error).__name__):
            elements(divvy.records(SomeRecordsRaise(error)).ignore_errors(2))


def failing(element):
    raise ValueError("element %d is bad" % element["i"])


@pytest.mark.parametrize("workers", [1, 3])
def test_each_row_is_leased_once_in_a_pass(workers):
    counts, metrics, steps = epoch(HUNDRED.shuffle(100).batch(7), workers=workers, passes=2)
    assert counts.tolist() == [2] * 100
    assert steps == 30
    assert metrics["rows"] == pytest.approx(100 / 15) and metrics.counts["rows"] == 15


def test_every_worker_reads_all_where_that_is_asked():
    counts, _, _ = epoch(HUNDRED.batch(10).per_worker())
    assert counts.tolist() == [1] * 100
    counts, _, _ = epoch(HUNDRED.batch(10).auto_shard("data"), workers=2)
    assert counts.sum() == 100


def test_a_function_of_the_program_fails_with_its_traceback():
    with pytest.raises(ValueError, match="element 0 is bad") as raised:
        epoch(HUNDRED.map(failing).batch(2))
    assert "in failing" in str(raised.value)
    with pytest.raises(ValueError, match="element 0 is bad"):
        elements(HUNDRED.map(failing))
    assert len(elements(HUNDRED.take(3).map(failing).ignore_errors(3))) == 0


@pytest.mark.parametrize("call, error, words", [
    (lambda: divvy.tensors({}), ValueError, "no array"),
    (lambda: divvy.tensors({"a": np.zeros(2), "b": np.zeros(3)}), ValueError, "equal numbers"),
    (lambda: divvy.tensors({"a": np.float32(3)}), ValueError, "shapes"),
    (lambda: divvy.tensors({"a": "x"}), TypeError, r"tensors\['a'\] is a str"),
    (lambda: divvy.tensors({"x": np.ma.ones(3)}), TypeError, r"tensors\['x'\] is a masked array"),
    (lambda: HUNDRED.batch(0), ValueError, "size is 0"),
    (lambda: HUNDRED.batch(2.7), TypeError, "size is 2.7: wanted a whole number"),
    (lambda: HUNDRED.batch("4"), TypeError, "size is '4'"),
    (lambda: HUNDRED.shuffle(4, seed=2.5), TypeError, "seed is 2.5"),
    (lambda: divvy.libsvm("x", below=2.5), TypeError, "below is 2.5"),
    (lambda: divvy.csv("x", ["a"], separator=5), TypeError, "separator is 5: wanted a text"),
    (lambda: divvy.tfrecord("x", [divvy.Column("a", shape=[2.7])]), TypeError,
     "dimension of column 'a' is 2.7"),
    (lambda: HUNDRED.take(1.5), TypeError, "n is 1.5"),
    (lambda: HUNDRED.shard(2, "0"), TypeError, "index is '0'"),
    (lambda: divvy.csv("x.csv", {"a": "int64"}), TypeError, "columns are a dict.*divvy.Column"),
    (lambda: divvy.csv(["x.csv", "y.csv"], ["a"]), TypeError, "files are a list.*glob"),
    (lambda: HUNDRED.shuffle(-1), ValueError, "window is -1"),
    (lambda: HUNDRED.map(lambda x: x), TypeError, "lambda"),
    (lambda: HUNDRED.auto_shard("hint"), ValueError, "policy is"),
    (lambda: divvy.csv("x.csv", [3]), TypeError, "3 is no column"),
    (lambda: divvy.csv("x.csv", ["a"], separator=", "), ValueError, "separator"),
    (lambda: divvy.csv("x.csv", [divvy.Column("a", "complex")]), TypeError, "complex"),
    (lambda: divvy.records(iter([1])), TypeError, "__len__"),
    (lambda: divvy.generator(3), TypeError, "no function"),
    (lambda: divvy.generator(count_up).lease(), ValueError, "records"),
    (lambda: elements(divvy.csv("/nowhere/x.csv", ["a"])), KeyError, "/nowhere/x.csv"),
    (lambda: elements(divvy.libsvm("x", labels="odd")), ValueError, "labels"),
])
def test_bad_input_is_one_clear_error(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_data_that_is_missing_fails_the_loop_with_its_name():
    with pytest.raises(KeyError, match="/nowhere/x.csv"):
        epoch(divvy.csv("/nowhere/x.csv", ["i"]).batch(2))
    with divvy.testing.cluster() as c:
        with pytest.raises(TypeError, match="no dataset"):
            c.run_epoch(note, [1, 2])


# ---- files ----

def test_csv(tmp_path):
    (tmp_path / "a.csv").write_text("i,price,city\n3,1.5,Bonn\n4,,Rom\n")
    columns = [divvy.Column("city", "string", hash_buckets=10),
               divvy.Column("price", if_empty=-1), divvy.Column("i", "int64", below=5)]
    rows = elements(divvy.csv(tmp_path / "a.csv", columns))
    assert [int(row["i"]) for row in rows] == [3, 4]
    assert [float(row["price"]) for row in rows] == [1.5, -1.0]
    assert all(0 <= row["city"] < 10 for row in rows)
    salted = elements(divvy.csv(tmp_path / "a.csv", [divvy.Column("city", "string", salt="c")]))
    assert salted[0]["city"] == divvy.text_key("Bonn", "c")
    (tmp_path / "b.csv").write_text("1;2;x\n")
    with pytest.raises(divvy.DataLossError, match="b.csv.*1"):
        elements(divvy.csv(tmp_path / "b.csv", ["a", "b", "c"], separator=";"))
    with gzip.open(tmp_path / "c.csv.gz", "wt") as file:
        file.write("1,2,3\n4,5,6\n")
    wide = elements(divvy.csv(tmp_path / "c.csv.gz", [divvy.Column("v", "int32", width=3)]))
    assert wide[1]["v"].tolist() == [4, 5, 6]


def test_libsvm(tmp_path):
    (tmp_path / "a.libsvm").write_text("-1 3:0.5 7:1\n+1 1:2\n")
    batch = elements(divvy.libsvm(tmp_path / "a.libsvm", below=8, labels="binary").batch(2))[0]
    assert batch["label"].tolist() == [0, 1]
    assert batch["features"]["ids"].tolist() == [3, 7, 1]
    assert batch["features"]["row_splits"].tolist() == [0, 2, 3]
    assert batch["features"]["weights"].tolist() == [0.5, 1, 2]


def test_criteo(tmp_path):
    (tmp_path / "a.tsv").write_text("\t".join(["1"] + ["2"] * 13 + ["ab"] * 26) + "\n")
    row = elements(divvy.criteo(tmp_path / "a.tsv"))[0]
    assert row["label"] == 1 and row["dense"].shape == (13,) and len(set(row["sparse"])) == 1
    row = elements(divvy.criteo(tmp_path / "a.tsv", by_column=True))[0]
    assert len(set(row["sparse"].tolist())) == 26


def test_idx(tmp_path):
    (tmp_path / "images").write_bytes(struct.pack(">HBBIII", 0, 8, 3, 2, 2, 2) + bytes(range(8)))
    (tmp_path / "labels").write_bytes(struct.pack(">HBBI", 0, 8, 1, 2) + bytes([4, 9]))
    rows = elements(divvy.idx(tmp_path / "images", tmp_path / "labels"))
    assert rows[1]["image"].tolist() == [[4, 5], [6, 7]] and int(rows[1]["label"]) == 9


def masked_crc(data):
    """TFRecord's checksum, by a table of CRC-32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def length_delimited(number, payload):
    return bytes([number << 3 | 2, len(payload)]) + payload


def example(label, ids):
    def feature(name, kind, payload):
        value = length_delimited(kind, length_delimited(1, payload))
        return length_delimited(1, length_delimited(1, name) + length_delimited(2, value))
    features = (feature(b"label", 2, struct.pack("<f", label)) +
                feature(b"ids", 3, bytes(ids)))
    return length_delimited(1, features)


def test_tfrecord(tmp_path):
    with open(tmp_path / "a.tfrecord", "wb") as file:
        for record in (example(0.5, [1, 2]), example(1.5, [3, 4])):
            length = struct.pack("<Q", len(record))
            file.write(length + struct.pack("<I", masked_crc(length)) + record +
                       struct.pack("<I", masked_crc(record)))
    features = ["label", divvy.Column("ids", "int64", shape=(2,))]
    rows = elements(divvy.tfrecord(tmp_path / "a.tfrecord", features))
    assert [float(row["label"]) for row in rows] == [0.5, 1.5]
    assert rows[1]["ids"].tolist() == [3, 4]
    damaged = bytearray((tmp_path / "a.tfrecord").read_bytes())
    damaged[20] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(damaged)
    with pytest.raises(divvy.DataLossError, match="a.tfrecord"):
        elements(divvy.tfrecord(tmp_path / "a.tfrecord", features))


# ---- Python's objects ----

class Squares:
    """Records that count how often each is asked for."""

    def __init__(self, n):
        self.n = n
        self.asked = [0] * n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        with lock:
            self.asked[i] += 1
        return np.int64(i), {"square": np.float32(i * i)}


SQUARES = Squares(100)
LEASED = divvy.records(SQUARES)


def test_records_are_leased_each_once():
    SQUARES.asked = [0] * 100
    counts, _, _ = epoch(LEASED.batch(3), step=note_of_list, workers=3)
    assert counts.tolist() == [1] * 100
    assert min(SQUARES.asked) >= 1 and sum(SQUARES.asked) < 200  # not once for each worker
    rows = elements(LEASED.skip(9).take(1))
    assert rows[0][0] == 9 and rows[0][1]["square"] == 81


class Broken:
    def __len__(self):
        return 5

    def __getitem__(self, i):
        if i == 3:
            raise OSError("disk of record 3")
        return {"i": i} if i != 4 else {"i": object()}


def test_a_record_that_raises_fails_the_step_with_its_traceback():
    with pytest.raises(divvy.Error, match="disk of record 3") as raised:
        epoch(divvy.records(Broken()).batch(2))
    assert "__getitem__" in str(raised.value)
    with pytest.raises(ValueError, match=r"record 4 of records#\d+.*\['i'\] is a object"):
        elements(divvy.records(Broken()).skip(4))


def count_up():
    for i in range(50):
        yield {"i": i}


def count_parts(worker_index, num_workers):
    yield from ({"i": i} for i in range(worker_index, 100, num_workers))


def count_badly():
    yield {"i": 1}
    raise RuntimeError("the generator broke")


def test_a_generator_function_runs_on_each_worker():
    counts, _, _ = epoch(divvy.generator(count_up).batch(8))
    assert counts.tolist() == [1] * 50 + [0] * 50
    counts, _, _ = epoch(divvy.generator(count_parts).batch(8), workers=2)
    assert counts.tolist() == [1] * 100
    with pytest.raises(RuntimeError, match="the generator broke"):
        epoch(divvy.generator(count_badly).batch(1))
    assert [one["i"] for one in divvy.generator(count_up).skip(48)] == [48, 49]


def count_and_break():
    yield {"i": 0}
    yield {"i": object()}  # an element that is bad leaves the generator as it is
    yield {"i": 2}
    raise ValueError("the generator broke")


def test_a_generator_that_raised_is_no_end_of_the_data():
    data = divvy.generator(count_and_break)
    assert [one["i"] for one in data.ignore_errors(1).take(2)] == [0, 2]
    with pytest.raises(RuntimeError, match="raised after 3 elements, which ended it.*broke"):
        elements(data.ignore_errors(9))
    with pytest.raises(ValueError, match="the generator broke"):
        elements(data.skip(3))


# ---- iterators ----

@divvy.step
def take_one(batch, scale):
    return batch["i"] * scale


def test_an_iterator_arrives_as_its_next_element():
    with divvy.testing.cluster() as c:
        batches = iter(c.create_per_worker_dataset(HUNDRED.batch(40)))
        values = [c.schedule(take_one, batches, 10) for _ in range(3)]
        c.join()
        assert sorted(x for one in c.fetch(values) for x in one) == list(range(0, 1000, 10))
        end = c.schedule(take_one, batches, 10)
        c.join()
        with pytest.raises(divvy.OutOfRangeError):
            end.fetch()
        with pytest.raises(TypeError, match="pass the iterator to a step"):
            next(batches)


