"""divvy.run in one process: flags, exit codes, signals, and what it refuses."""
import os
import shutil
import signal
import subprocess
import sys

import pytest

import divvy
import programs

COUNTER = """
    total = divvy.Variable("total", (), dtype="int64")

    @divvy.step
    def add(n):
        total.assign_add(n)

    def main(c):
        for i in range(100):
            c.schedule(add, i)
        c.join()
        print("total", int(total.read()), "steps", c.step)

    if __name__ == "__main__":
        divvy.run(main)
        print("after")
"""


def test_a_program_runs_in_one_process(tmp_path):
    done = programs.run(programs.write(tmp_path, COUNTER))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "total 4950 steps 100\nafter\n"
    assert "chief, 2 ps, 1 workers in this process" in done.stderr


def test_all_flags_are_taken(tmp_path):
    path = programs.write(tmp_path, COUNTER)
    assert "--checkpoint_every" in programs.run(path, "--help").stdout
    done = programs.run(path, "--ps=3", "--workers=2")
    assert "chief, 3 ps, 2 workers" in done.stderr and done.returncode == 0
    bad = programs.run(path, "--nonsense=1")
    assert bad.returncode != 0 and "nonsense" in bad.stderr and bad.stdout == ""
    bad = programs.run(path, "--ps=0")
    assert bad.returncode != 0 and "ps" in bad.stderr and "Traceback" not in bad.stderr


def test_two_replicas_of_a_worker_are_refused(tmp_path):
    done = programs.run(programs.write(tmp_path, COUNTER), "--replicas_per_worker=2")
    assert done.returncode != 0
    assert "a worker of a Python program has one" in done.stderr


ENDS = """
    import sys

    @divvy.step
    def fails():
        raise ValueError("the step is bad")

    def main(c):
        how = sys.argv[1] if len(sys.argv) > 1 else HOW
        if how == "raise":
            raise RuntimeError("main is bad")
        if how == "step":
            c.schedule(fails)
            c.join()
        if how == "load":
            divvy.load("/nowhere/x")
        if how.startswith("exit"):
            sys.exit(int(how[4:]) if how[4:] else None)
        if how == "run":
            divvy.run(main)

    HOW = %r
    divvy.run(main)
"""


@pytest.mark.parametrize("how, code, words", [
    ("ok", 0, ""), ("raise", 1, "RuntimeError: main is bad"),
    ("step", 1, "ValueError: the step is bad"), ("load", 66, "/nowhere/x"), ("exit3", 3, ""),
    ("exit", 0, ""), ("exit0", 0, ""), ("run", 1, "divvy.run was called before"),
])
def test_how_main_ends_is_the_exit_code(tmp_path, how, code, words):
    done = programs.run(programs.write(tmp_path, ENDS % how))
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.count("Traceback (most recent call last)") <= 1


@pytest.mark.parametrize("code, words", [
    ("divvy.run(3)", "main is a int"),
    ("divvy.run(lambda: None)", "must take one argument"),
    ("divvy.run(print, argv=[1])", "argv is a list of texts"),
    ("divvy.run(print, placement='best')", "placement"),
    ("divvy.run(print, min_shard_bytes=0)", "min_shard_bytes"),
    ("import threading\nt = threading.Thread(target=divvy.run, args=(print,))\n"
     "t.start(); t.join(); raise SystemExit(1)", "on the main thread"),
    ("divvy.Variable('w', (1,)); divvy.Variable('w', (2,))", "declared twice"),
    ("divvy.run(lambda c: divvy.tensors(np.zeros(1 << 20)))", "make the dataset at module level"),
    ("divvy.run(lambda c: divvy.records([1, 2]))", "module level"),
    ("def main(c):\n    @divvy.step\n    def late(): pass\ndivvy.run(main)", "defined inside"),
])
def test_bad_input_is_one_clear_error(tmp_path, code, words):
    done = programs.run(programs.write(tmp_path, "") if not code else
                        _plain(tmp_path, code))
    assert done.returncode != 0
    assert words in done.stderr, done.stderr


def _plain(tmp_path, code):
    path = tmp_path / "plain.py"
    path.write_text("import divvy\nimport numpy as np\n" + code + "\n")
    return str(path)


EXPORTS = """
    import os, tempfile

    rows = divvy.Table("rows", 2, optimizer=divvy.Sgd(1.0), initializer=0.0)
    w = divvy.Variable("w", 3, optimizer=divvy.Sgd(1.0))

    @divvy.step
    def train(number):
        rows.apply_gradient([number], -np.ones((1, 2), np.float32))
        w.apply_gradient(-np.ones(3, np.float32))

    def main(c):
        assert c.restore_latest() == 0
        assert not [name for name in os.environ if name.startswith("DIVVY_T")]
        assert "DIVVY_CHECKPOINT_DIR" not in os.environ
        for number in (7, 9):
            c.schedule(train, number)
        c.join()
        try:
            c.save_checkpoint()
        except divvy.FailedPreconditionError as error:
            print(error)
        c.export("model.safetensors")
        c.export("bundle")
        try:
            c.export("model.pt")
        except ValueError as error:
            print(error)
        try:
            c.set_learning_rate_scale(float("nan"))
        except ValueError as error:
            print(error)

    divvy.run(main)
    for path in ("model.safetensors", "bundle"):
        loaded = divvy.load(path)
        print(loaded["w"].tolist(), sorted(loaded["rows-keys"].tolist()))
    print(os.listdir(tempfile.gettempdir()))
"""


def test_a_program_in_one_process_exports_its_tables(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path)
    done = programs.run(programs.write(tmp_path, EXPORTS),
                        env={"TMPDIR": str(tmp_path / "temporary")})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "start the program with --checkpoint_dir" in lines[0]
    assert "'model.pt' has the suffix of another format" in lines[1]
    assert "cannot be scaled by nan" in lines[2]
    assert lines[3:] == ["[2.0, 2.0, 2.0] [7, 9]"] * 2 + ["[]"]


OBSERVED = """
    data = divvy.tensors({"i": np.arange(100)})

    @divvy.step
    def note(batch):
        return {"i": batch["i"]}

    def stop(recent):
        return "i" not in recent

    def main(c):
        metrics = c.run_epoch(note, data.repeat().batch(1), observer=stop)
        print("stopped", c.epoch, c.step > 0, metrics.counts["i"] == c.step)
        small = divvy.tensors({"i": np.arange(6)})  # travels with the recipe
        print(c.run_epoch(note, small.batch(4)))

    divvy.run(main)
"""


def test_an_observer_ends_a_loop_early(tmp_path):
    done = programs.run(programs.write(tmp_path, OBSERVED), "--report_every=50ms")
    assert done.stdout == "stopped 0 True True\n{'i': 2.5}\n", done.stderr


WAITS = """
    import signal, sys, time

    @divvy.step
    def one():
        pass

    def main(c):
        print("ready", flush=True)
        try:
            while True:
                c.schedule(one)
                c.join()
        except divvy.CancelledError as error:
            print("cancelled", flush=True)
            raise

    before = signal.getsignal(signal.SIGINT)
    try:
        divvy.run(main)
    except SystemExit as error:
        signal.raise_signal(signal.SIGURG)
        print("code", error.code, signal.getsignal(signal.SIGINT) is before)
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            print("Python's handler is back")
        raise
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_the_job_as_in_cpp(tmp_path, number):
    process = subprocess.Popen([sys.executable, programs.write(tmp_path, WAITS)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    programs.wait_for_line(process.stdout, "ready")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert out == "cancelled\ncode %d True\nPython's handler is back\n" % (128 + number)


ONE_EXIT = """
    import sys
    divvy.run(lambda c: sys.exit(3))
"""


def test_sys_exit_in_main_is_no_error_of_a_step(tmp_path):
    done = programs.run(programs.write(tmp_path, ONE_EXIT))
    assert done.returncode == 3
    assert "main called sys.exit(3)" in done.stderr
    assert "not a step" not in done.stderr and "Traceback" not in done.stderr


FORKS = """
    import multiprocessing, os, signal

    fork = multiprocessing.get_context("fork")

    def waits(handled):
        if handled:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
            started.release()
        while True:
            pass

    def ended(handled):
        process = fork.Process(target=waits, args=(handled,))
        process.start()
        if handled:
            started.acquire()
        process.terminate()
        process.join(20)
        return process.exitcode

    started = fork.Semaphore(0)

    @divvy.step
    def terminates():
        return [ended(False), ended(True)]

    def main(c):
        value = c.schedule(terminates)
        c.join()
        print(value.fetch(), ended(False))

    divvy.run(main)
"""


def test_a_signal_to_a_forked_process_ends_it_and_not_the_job(tmp_path):
    done = programs.run(programs.write(tmp_path, FORKS))
    assert (done.returncode, done.stdout) == (0, "[-15, 5] -15\n"), done.stderr


COMES_BACK = """
    import os

    def main(c):
        child = os.fork()
        if child == 0:
            return
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    divvy.run(main)
"""


def test_a_child_that_comes_back_from_main_is_ended(tmp_path):
    done = programs.run(programs.write(tmp_path, COMES_BACK))
    assert (done.returncode, done.stdout) == (0, "child 70\n"), done.stderr
    assert "was forked by main and returned from it" in done.stderr


HANGS = """
    import sys, threading, time

    forever = threading.Event()

    @divvy.step
    def hangs():
        print("hangs", flush=True)
        forever.wait()

    def main(c):
        c.schedule(hangs)
        c.join(timeout=0.5)

    if IN_TEST:
        with divvy.testing.cluster(ps=1) as c:
            main(c)
    divvy.run(main)
"""


def test_a_program_ends_although_a_step_hangs(tmp_path):
    done = programs.run(programs.write(tmp_path, HANGS.replace("IN_TEST", "False")), timeout=30)
    assert done.returncode != 0 and "DEADLINE_EXCEEDED" in done.stderr


def test_ctrl_c_ends_a_test_whose_step_hangs(tmp_path):
    process = subprocess.Popen(
        [sys.executable, programs.write(tmp_path, HANGS.replace("IN_TEST", "True"))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    programs.wait_for_line(process.stdout, "hangs")
    for _ in range(60):  # one ends the wait of `with`, one that of Python's end
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=0.5)
            break
        except subprocess.TimeoutExpired:
            continue
    process.communicate()
    assert process.returncode in (130, -signal.SIGINT)  # at Python's end, or at once


CONTINUES = """
    import threading

    def main(c):
        pass

    divvy.run(main)
    threading.Event().wait(3.5)  # longer than a task may take to end
    print("after")
"""


def test_a_program_may_go_on_for_long_after_run(tmp_path):
    done = programs.run(programs.write(tmp_path, CONTINUES))
    assert (done.returncode, done.stdout) == (0, "after\n"), done.stderr


SPAWNS = """
    import multiprocessing

    def other():
        pass

    def main(c):
        process = multiprocessing.get_context("spawn").Process(target=other)
        process.start()
        process.join()
        print("child", process.exitcode)

    %s
"""


def test_a_process_of_multiprocessing_does_not_start_the_job_again(tmp_path):
    done = programs.run(programs.write(tmp_path, SPAWNS % "divvy.run(main)"))
    assert "child 1" in done.stdout and "which has loaded the program again" in done.stderr
    guarded = 'if __name__ == "__main__":\n        divvy.run(main)'
    done = programs.run(programs.write(tmp_path, SPAWNS % guarded))
    assert done.stdout == "child 0\n", done.stderr


def test_the_program_of_the_reference_runs(tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../../docs/reference/python.md"), encoding="utf-8") as page:
        code = page.read().split("```python\n")[1].split("```")[0]
    shutil.copy(os.path.join(here, "../../examples/data/digits.csv.gz"), tmp_path)
    (tmp_path / "train.py").write_text(code)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("'accuracy'") == 3
    assert divvy.load(tmp_path / "digits.safetensors")["w"].shape == (64, 10)


def test_without_numpy_there_is_one_clear_error(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('No module named numpy')\n")
    path = _plain(tmp_path, "")
    done = programs.run(path, env={"PYTHONPATH": "%s:%s" % (tmp_path, os.environ["PYTHONPATH"])})
    assert done.returncode == 1
    assert "ImportError: divvy needs NumPy: apt-get install python3-numpy" in done.stderr


EVALUATED = """
    w = divvy.Variable("w", (2,))

    @divvy.step
    def add():
        w.assign_add(np.ones(2, np.float32))

    def main(c):
        c.restore_latest()
        for _ in range(4):
            c.schedule(add)
        c.join()

    def evaluate(c):
        print("checkpoint", c.step, w.read().tolist())
        c.report("scores", c.step, {"w": float(w.read()[0])})

    divvy.run(main, evaluate)
"""


def test_an_evaluator_scores_checkpoints(tmp_path):
    path = programs.write(tmp_path, EVALUATED)
    flags = ["--checkpoint_dir=%s" % (tmp_path / "checkpoints")]
    assert programs.run(path, *flags).returncode == 0
    done = programs.run(path, *flags, env={"TF_CONFIG": (
        '{"cluster": {"chief": ["localhost:1"], "ps": ["localhost:2"], "worker": ["localhost:3"]},'
        ' "task": {"type": "evaluator", "index": 0}}')})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "checkpoint 4 [4.0, 4.0]\n"


LEAVES = """
    import time

    @divvy.step
    def busy():
        for _ in range(1000000):
            if divvy.cancelled():
                break

    cluster = divvy.testing.cluster(workers=2)
    c = cluster.__enter__()
    values = [c.schedule(busy) for _ in range(50)]
    print("left", flush=True)
"""


def test_python_ends_although_a_cluster_runs(tmp_path):
    done = programs.run(programs.write(tmp_path, LEAVES))
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr


def test_help_reads_well():
    done = subprocess.run([sys.executable, "-c", "import divvy; help(divvy)"],
                          capture_output=True, text=True, check=True)
    assert "training on parameter servers" in done.stdout
    assert "A STEP IS A TRANSACTION" in done.stdout
