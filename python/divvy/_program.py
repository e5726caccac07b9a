"""divvy.run: the entry of a program, in every process of its cluster."""
import contextlib
import inspect
import json
import multiprocessing
import os
import sys
import tempfile
import threading

from divvy import _coordinator, _divvy, _registry, _variables


class _Main:
    """Calls the program's function, and keeps what it raised."""

    def __init__(self, function, before=lambda: None):
        self.function = function
        self.before = before
        self.raised = None

    def __call__(self, handle):
        try:
            self.before()
            _registry.create_declared()
            self.function(_coordinator.Coordinator(handle))
        except BaseException as error:  # pylint: disable=broad-except
            self.raised = error
            if isinstance(error, SystemExit) and error.code in (None, 0):
                return
            raise  # the task prints it, with its traceback, when it ends


def _split_gpus(words):
    """(what the flag --gpus says, the other words). Without the flag "auto"."""
    choice, others, i = "auto", words[:1], 1
    while i < len(words) and words[i] != "--":
        name, has_value, value = words[i].partition("=")
        i += 1
        if name not in ("--gpus", "-gpus"):
            others.append(words[i - 1])
        elif has_value:
            choice = value
        elif i < len(words):
            choice = words[i]
            i += 1
        else:
            others.append(name)  # which Divvy refuses: it has no value
    return choice, others + words[i:]


def _gpus_of(choice, count):
    """The numbers of the GPUs that --gpus means on a machine with `count`. ValueError: it is wrong,
    which says how."""
    if choice == "none":
        return []
    if choice in ("auto", "all"):
        if choice == "all" and count == 0:
            raise ValueError("--gpus=all, and PyTorch sees no GPU: give --gpus=auto or none")
        return list(range(count))
    words = choice.split(",")
    if not all(word.isdecimal() for word in words) or len(set(words)) != len(words):
        raise ValueError("--gpus=%s: wanted auto, all, none, or numbers of GPUs, each once, as in "
                         "0,2" % choice)
    numbers = [int(word) for word in words]
    if max(numbers) >= count:
        raise ValueError("--gpus=%s, and PyTorch sees %d GPUs: they are numbered from 0" %
                         (choice, count))
    return numbers


def gpu_of_this_worker(count):
    """The number of the GPU on which this process computes with another library than Divvy, or
    None. count: the GPUs of this machine. ValueError: --gpus is wrong."""
    gpus = _gpus_of(_split_gpus(list(sys.argv))[0], count)
    task = {"type": "worker", "index": 0}
    if "TF_CONFIG" in os.environ:
        try:
            task = json.loads(os.environ["TF_CONFIG"]).get("task", {})
        except (ValueError, AttributeError):
            return None  # divvy.run says what is wrong with it
    if task.get("type") != "worker" or not gpus:
        return None
    return gpus[int(task.get("index", 0)) % len(gpus)]


# The exit code of a process that SIGABRT ended. Another start may help after such a code, so the
# launcher restarts the worker, and the coordinator counts the attempt (--max_step_attempts).
_ABORTED = 134


@contextlib.contextmanager
def _no_exit_in_steps():
    """os._exit in a step of a worker ends it as os.abort does, whatever the code: a worker that
    ends with 0 has done its part, and one that ends with 1 would end the job."""
    exit_at_once, process = os._exit, os.getpid()

    def exit_of_task(status):
        if os.getpid() == process and _divvy.in_step():
            os.write(2, ("divvy: step %s called os._exit(%r), which ends the worker. Raise an "
                         "exception to end the job\n" % (_divvy.step_name(), status)).encode())
            exit_at_once(_ABORTED)
        exit_at_once(status)

    os._exit = exit_of_task
    try:
        yield
    finally:
        os._exit = exit_at_once


class _CheckpointsForExports:
    """Where a job in one process makes the checkpoints from which its tables are exported.

    It is a temporary folder, and there is none if the program was given a folder or has no tables.
    If the process is killed, the folder stays. Without a place for it, exports of tables are
    refused.
    """

    def __init__(self, words, is_task):
        self.words = words
        self._folder = None
        given = is_task or "DIVVY_CHECKPOINT_DIR" in os.environ or any(
            name in word for word in words for name in ("checkpoint_dir", "flagfile"))
        tables = any(isinstance(one, _variables.Table) for one in _registry.variables.values())
        if given or not tables or not words:
            return
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="divvy-")
        except OSError:
            return
        # No other checkpoints are wanted there. And no parameter server of this process can be lost
        # alone, so no log for a replay is, either.
        end = words.index("--") if "--" in words else len(words)
        self.words = words[:end] + ["--checkpoint_every=0", "--durability=checkpoint"] + words[end:]

    def __enter__(self):
        if self._folder is not None:
            # Not --checkpoint_dir, which would stand for a folder that the program was given.
            os.environ.update(DIVVY_CHECKPOINT_DIR=self._folder.name, DIVVY_TEMPORARY="1")
            _coordinator.checkpoints_are_temporary = True
        return self

    def hide(self):
        """The flags have been read. A program that main starts must not find the folder."""
        if self._folder is not None:
            os.environ.pop("DIVVY_CHECKPOINT_DIR", None)
            os.environ.pop("DIVVY_TEMPORARY", None)

    def __exit__(self, *unused):
        self.hide()
        _coordinator.checkpoints_are_temporary = False
        if self._folder is not None:
            self._folder.cleanup()


def _check_main(function, name):
    if not callable(function):
        raise TypeError("divvy.run: %s is a %s, wanted a function of the coordinator" %
                        (name, type(function).__name__))
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise TypeError("divvy.run: %s must take one argument, the coordinator" % name) from None


def run(main, evaluate=None, *, argv=None, min_shard_bytes=None, placement="round_robin"):
    """Runs this process' task of the job; main(coordinator) runs on the coordinator alone.

    TF_CONFIG says which task this process is. Without one the whole job runs in this process: the
    coordinator, two parameter servers and a worker (--ps, --workers). All flags of Divvy are taken
    from `argv` (None: sys.argv), and --help lists them; `argv` does not reach the parameter servers
    of a cluster, which are processes of their own, so give flags on the command line there.
    Variables that the modules declare are created before main is called.

    evaluate(coordinator): for the task "evaluator"; called for each checkpoint. min_shard_bytes,
    placement: how variables are cut and placed ("round_robin" or "balanced").

    Returns when the task has ended well, and otherwise raises SystemExit with its exit code. Call
    it once, on the main thread, in every process.
    """
    if _registry.is_running():
        raise RuntimeError("divvy.run was called before: a process runs one task of one job. "
                           "divvy.testing.cluster starts any number of clusters for tests")
    if _divvy.in_step():
        raise RuntimeError("a step cannot run a program: it is part of one")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("divvy.run takes signals, so call it on the main thread")
    # The second is true while a new process imports the program, before it has a parent.
    if multiprocessing.parent_process() is not None or getattr(
            multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            "divvy.run in a process of multiprocessing, which has loaded the program again: put "
            'it below `if __name__ == "__main__":`')
    _check_main(main, "main")
    if evaluate is not None:
        _check_main(evaluate, "evaluate")
    words = list(sys.argv if argv is None else argv)
    if not all(isinstance(word, str) for word in words):
        raise TypeError("divvy.run: argv is a list of texts, with the program's name first")
    # Steps get arrays, which are on the CPU: Divvy's own arithmetic on GPUs has nothing to do, and
    # would want a replica for each GPU. The flag is for dt.device().
    choice, words = _split_gpus(words)
    if choice != "auto":
        _gpus_of(choice, 1 << 16)
    if words:
        words.insert(1, "--gpus=none")
    _registry.begin_run()
    scorer = None if evaluate is None else _Main(evaluate)
    sys.stdout.flush()
    is_task = "TF_CONFIG" in os.environ or any("task_type" in word for word in words)
    with _no_exit_in_steps() if is_task else contextlib.nullcontext(), \
            _CheckpointsForExports(words, is_task) as checkpoints:
        body = _Main(main, checkpoints.hide)
        code = _divvy.run(body, scorer, checkpoints.words or ["divvy"], min_shard_bytes, placement,
                          "TF_CONFIG" not in os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    raised = body.raised or (scorer and scorer.raised)
    if isinstance(raised, SystemExit):
        raise raised
    if code != 0:
        raise SystemExit(code)
