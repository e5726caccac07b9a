"""Python programs as clusters of processes whose tasks are killed: everything counts once."""
import os
import re

import pytest

import programs

# Each step adds whole numbers to three variables, by assign_add, by a gradient and by a table's
# gradient, and each record counts its visits. main repeats what an earlier run of it has done.
COUNTER = """
    import os, time

    counts = [divvy.Variable("count/%d" % i, (3,), dtype="int64") for i in range(3)]
    descent = divvy.Variable("descent", (2,), optimizer=divvy.Sgd(1.0))
    keys = divvy.Table("keys", 1, optimizer=divvy.Sgd(1.0), initializer=divvy.Zeros())
    visits = divvy.Variable("visits", (60,), dtype="int64")

    class Records:
        def __len__(self):
            return 60
        def __getitem__(self, i):
            return {"i": np.int64(i)}

    data = divvy.records(Records())

    def count():
        for one in counts:
            one.assign_add(np.ones(3, np.int64))
        descent.apply_gradient(np.full(2, -1, np.float32))

    @divvy.step
    def chunk(number):
        count()
        keys.apply_gradient([number, -number - 1], np.full((2, 1), -1, np.float32))

    @divvy.step
    def visit(batch):
        count()
        visits.scatter("add", batch["i"], np.ones(len(batch["i"]), np.int64))
        time.sleep(0.002)

    def main(c):
        c.restore_latest()
        for number in range(200):
            c.schedule_once("chunks", number, chunk, number)
        c.join()
        # A run that was killed within an epoch left the rest of it.
        while (c.epoch < 20 or c.step != 200 + c.epoch * 15 or
               not (os.path.exists(os.environ["ENOUGH"]) or c.epoch >= 1000)):
            c.run_epoch(visit, data.shuffle(60).batch(4))
        steps = 200 + c.epoch * 15
        assert c.step == steps, c.step
        for one in counts:
            assert one.read().tolist() == [steps] * 3, one.read()
        assert descent.read().tolist() == [steps] * 2, descent.read()
        assert visits.read().tolist() == [c.epoch] * 60, visits.read()
        assert keys.stats()["rows"] == 400, keys.stats()
        assert (keys.lookup(np.arange(-200, 200)) == 1).all()
        print("exact", flush=True)  # a kill behind it must not take it

    divvy.run(main)
"""


class Kills:
    """Makes the file `enough` when a task of each role was killed."""

    def __init__(self, roles, enough):
        self.left = set(roles.replace("coordinator", "chief").split(","))
        self.enough = enough

    def see(self, line):
        killed = re.search("chaos: SIGKILL to (worker|ps|chief)", line)
        if killed:
            self.left.discard(killed.group(1))
            if not self.left:
                self.enough.touch()


@pytest.mark.parametrize("roles, every", [("worker", "400ms"), ("ps", "1s"),
                                          ("coordinator", "1500ms"),
                                          ("worker,ps,coordinator", "700ms")])
def test_everything_counts_once_whoever_is_killed(tmp_path, roles, every):
    kills = Kills(roles, tmp_path / "enough")
    done = programs.launch(
        programs.write(tmp_path, COUNTER), "--chaos=" + every, "--chaos_roles=" + roles,
        "--max_restarts=1000", workers=3, see=kills.see,
        env={"ENOUGH": str(kills.enough)}, program_flags=[
            "--checkpoint_dir=%s" % (tmp_path / "checkpoints"),
            "--state_dir=%s" % (tmp_path / "state"), "--checkpoint_every=1s"])
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-6000:]
    assert "exact" in text
    assert not kills.left, text[-6000:]


SHARED = """
    %s

    @divvy.step
    def train(%s):
        pass

    def main(c):
        c.schedule(train, 1)
        c.join()
        print("trained")

    divvy.run(main)
"""
CHIEFS = """
    lacking = divvy.Variable("lacking", (2,))
    shape = divvy.Variable("shape", (2,))
    optimizer = divvy.Variable("optimizer", (2,), optimizer=divvy.Sgd(0.1))
    data = divvy.tensors(np.zeros(3))
"""
WORKERS = """
    shape = divvy.Variable("shape", (3,))
    optimizer = divvy.Variable("optimizer", (2,), optimizer=divvy.Adam(0.1))
    data = divvy.tensors(np.zeros(4))
"""


def test_a_worker_with_another_program_is_refused_and_the_differences_are_named(tmp_path):
    """both.py is another program on the chief than on workers."""
    programs.write(tmp_path, SHARED % (CHIEFS, "batch"), "chief.py")
    programs.write(tmp_path, SHARED % (WORKERS, "rows"), "worker.py")
    both = tmp_path / "both.py"
    both.write_text(
        "import json, os, runpy\n"
        "role = json.loads(os.environ['TF_CONFIG'])['task']['type']\n"
        "name = 'worker.py' if role == 'worker' else 'chief.py'\n"
        "runpy.run_path(os.path.join(os.path.dirname(__file__), name), run_name='__main__')\n")
    done = programs.launch(str(both), "--max_restarts=0", ps=1, workers=1,
                           program_flags=["--ps_timeout=1s"])
    text = done.stdout + done.stderr
    assert done.returncode != 0 and "trained" not in text
    for words in (r"runs another program than the coordinator", "Start the same files on all tasks",
                  "it has no variable lacking", r"its variable shape is float32 \(3,\)",
                  r"coordinator's is float32 \(2,\)", r"variable optimizer is .*Adam.*Sgd",
                  r"its data tensors#0 is float64 \(4,\), and the coordinator's is "
                  r"float64 \(3,\)", r'its step "train" is a step of \(rows\)'):
        assert re.search(words, text), (words, text[-3000:])


# A line of the traceback in the chief's output.
TRACE_LINE = re.compile(r'\n\S+ +\|   File ".*in fails')

FAILS = """
    import os, sys

    @divvy.step
    def fails(how):
        if how == "raise":
            raise ValueError("bad on a worker")
        if how == "exit":
            sys.exit(5)
        if how == "huge":
            raise ValueError("begin" + "y" * 100_000 + "end")
        if how.startswith("_exit"):
            os._exit(int(how[5:]))
        os.abort()

    def main(c):
        value = c.schedule(fails, HOW)
        c.join()

    HOW = %r
    divvy.run(main)
"""


def test_an_exception_on_a_worker_arrives_with_its_traceback(tmp_path):
    done = programs.launch(programs.write(tmp_path, FAILS % "raise"), ps=1, workers=2)
    text = done.stdout + done.stderr
    assert done.returncode == 1, text[-3000:]
    assert re.search(r"step fails 0, worker \d: ValueError: bad on a worker", text), text[-3000:]
    assert TRACE_LINE.search(text), text[-3000:]
    done = programs.launch(programs.write(tmp_path, FAILS % "huge"), ps=1, workers=1)
    text = done.stdout + done.stderr
    assert "beginyyy" in text and "yyyend" in text and "characters left out" in text
    assert TRACE_LINE.search(text) and "\\x0a" not in text, text[-3000:]
    done = programs.launch(programs.write(tmp_path, FAILS % "exit"), ps=1, workers=1)
    text = done.stdout + done.stderr
    assert done.returncode == 1 and "sys.exit ends main, not a step" in text, text[-3000:]


@pytest.mark.parametrize("how, code", [("abort", "was killed by SIGABRT"),
                                       ("_exit0", "ended with exit code 134"),
                                       ("_exit1", "ended with exit code 134")])
def test_a_step_that_kills_its_workers_is_given_up(tmp_path, how, code):
    done = programs.launch(programs.write(tmp_path, FAILS % how), "--max_restarts=100", ps=1,
                           workers=2, program_flags=["--max_step_attempts=3"])
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "fails" in text and "attempts" in text, text[-3000:]
    assert re.search(r"worker \d %s" % code, text), text[-3000:]
    assert how == "abort" or "step fails called os._exit(%s)" % how[5:] in text


OUTLIVED = """
    import os, signal, time

    counted = divvy.Variable("counted", (), dtype="int64")

    @divvy.step
    def count(path):
        counted.assign_add(1)
        if os.path.exists(path):
            return
        child = os.fork()
        if child == 0:
            os.setsid()  # the launcher ends the group of a worker that is gone
            os.closerange(0, 3)  # the test reads these to their end
            time.sleep(60)
            os._exit(0)
        with open(path, "w") as file:
            file.write(str(child))
        os.kill(os.getpid(), signal.SIGKILL)

    def main(c):
        c.schedule(count, os.environ["CHILD"])
        c.join()
        with open(os.environ["CHILD"]) as file:
            os.kill(int(file.read()), signal.SIGKILL)  # an error if it is gone
        print("counted", counted.read())

    divvy.run(main)
"""


def test_a_worker_comes_back_although_a_process_that_it_forked_lives_on(tmp_path):
    done = programs.launch(programs.write(tmp_path, OUTLIVED), ps=1, workers=1,
                           env={"CHILD": str(tmp_path / "child")})
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    assert "counted 1" in text


LENDS = """
    import resource

    w = divvy.Variable("w", (512, 512))

    def resident():
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1]) * resource.getpagesize() >> 20

    def main(c):
        a = np.ones((512, 512), np.float32)
        w.assign(a.T[:, ::-1])
        before = resident()
        for _ in range(150):
            w.assign(a.T[:, ::-1])
        print("grown by", resident() - before)

    divvy.run(main)
"""


def test_the_memory_of_a_chief_stays_flat(tmp_path):
    # Without a redo log, which would keep the values.
    done = programs.launch(programs.write(tmp_path, LENDS), ps=1, workers=1,
                           program_flags=["--durability=checkpoint"])
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    assert int(re.search(r"grown by (-?\d+)", text).group(1)) < 50, text[-3000:]
