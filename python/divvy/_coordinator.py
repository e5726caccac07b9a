"""The coordinator: what main gets."""
import math
import os

from divvy import _datasets, _divvy, _errors, _metrics, _steps

# Whether the folder of checkpoints ends with the process (_program.py).
checkpoints_are_temporary = False

_OTHER_FORMATS = (".bin", ".ckpt", ".h5", ".hdf5", ".keras", ".npy", ".npz", ".onnx", ".pkl",
                  ".pt", ".pth")


class RemoteValue:
    """The result of a scheduled step. fetch() waits for it."""

    def __init__(self, handle):
        self._handle = handle

    @property
    def state(self):
        """"not_ready", "ready", "failed" or "cancelled". The last three are final."""
        return self._handle.state

    def fetch(self, timeout=None):
        """The step's result. Blocks for at most `timeout` seconds; None: as long as it takes.

        TimeoutError: not ready yet; call again. divvy.CancelledError: another step's error
        cancelled this one. Other errors are the step's own, with its name, number and worker, and
        its traceback.
        """
        return self._handle.fetch(timeout)

    def __repr__(self):
        return "<divvy.RemoteValue %s>" % self.state


class PerWorkerDataset:
    """A dataset that each worker opens for itself; iter() begins a pass."""

    def __init__(self, coordinator, dataset):
        self._coordinator = coordinator
        self._dataset = dataset

    def __iter__(self):
        """A new pass, as an argument of steps: it arrives there as its next element."""
        return self._coordinator._iterator(self._dataset)

    make_iterator = __iter__


class PassIterator:
    """A pass over a dataset on every worker. As an argument of a step it arrives as the next
    element. At its end fetch() of the step raises OutOfRangeError."""

    def __init__(self, handle):
        self._handle = handle

    def __iter__(self):
        return self

    def __next__(self):
        raise TypeError("the elements are on the workers: pass the iterator to a step")


def _plain(values):
    return [one._handle if isinstance(one, PassIterator) else one for one in values]


class Coordinator:
    """The coordinator of the job, as main gets it. There is one.

    Steps start in the order in which they are scheduled, each on a worker that has room, and
    finish in any order. A lost worker's steps run again elsewhere; their effects count once. The
    first error of a step is raised by the next schedule, join, done or run_...; the other steps
    are cancelled then.
    """

    def __init__(self, handle):
        self._handle = handle

    def __reduce__(self):
        raise TypeError("the coordinator cannot be pickled or copied: it belongs to this process")

    # ---- steps ----

    def schedule(self, step, *args, **kwargs):
        """Queues a step with these arguments, and returns its RemoteValue.

        TypeError, which names the argument: it cannot travel. Blocks while 262,144 steps wait.
        """
        step = _steps.check(step)
        values, names = step._bound(args, kwargs)
        return RemoteValue(self._handle.schedule(step.name, step.read_only, _plain(values), names))

    def schedule_once(self, series, number, step, *args, **kwargs):
        """As schedule, but step `number` of `series` counts once in the life of the job.

        None: it has finished already, in an earlier run of the program.
        """
        step = _steps.check(step)
        values, names = step._bound(args, kwargs)
        handle = self._handle.schedule_once(series, number, step.name, step.read_only,
                                            _plain(values), names)
        return None if handle is None else RemoteValue(handle)

    def join(self, timeout=None):
        """Waits until no step is queued or running; TimeoutError after `timeout` seconds."""
        self._handle.join(timeout)

    def done(self):
        """Whether no step is queued or running."""
        return self._handle.done()

    def fetch(self, values, timeout=None):
        """The results of a RemoteValue, or of a list, tuple or dict of them."""
        if isinstance(values, RemoteValue):
            return values.fetch(timeout)
        if isinstance(values, dict):
            return {name: self.fetch(one, timeout) for name, one in values.items()}
        if isinstance(values, (list, tuple)):
            return type(values)([self.fetch(one, timeout) for one in values])
        return values

    # ---- loops ----

    def run_epoch(self, step, dataset, *args, observer=None, timeout=None, **kwargs):
        """One pass over the data: step(batch, *args) for each element, on all workers.

        Returns divvy.Metrics: what the steps returned, merged, as a dict of floats. observer:
        called every few seconds with the metrics since its last call, a dict of divvy.Metric;
        False ends the loop early. timeout: seconds. Each element is visited exactly once.
        """
        return self._loop(step, dataset, args, kwargs, None, observer, timeout)

    def run_until(self, last_step, step, dataset, *args, observer=None, timeout=None, **kwargs):
        """Pass after pass, until `last_step` training steps of the job have finished."""
        if _steps.check(step).read_only:
            raise ValueError("run_until counts training steps; use run_epoch for a read-only step")
        return self._loop(step, dataset, args, kwargs, int(last_step), observer, timeout)

    def _loop(self, step, dataset, args, kwargs, last_step, observer, timeout):
        step = _steps.check(step)
        dataset = _check_dataset(dataset)
        values, names = step._bound((None,) + args, kwargs)
        return _metrics.Metrics(
            self._handle.run_loop(step.name, step.read_only, dataset._policy, dataset._recipe,
                                  values[1:], names[1:], last_step, observer, timeout))

    def create_per_worker_dataset(self, dataset):
        """A dataset for steps that are scheduled one by one: schedule(step, iter(it))."""
        return PerWorkerDataset(self, _check_dataset(dataset))

    def _iterator(self, dataset):
        return PassIterator(self._handle.iterator(dataset._policy, dataset._recipe))

    # ---- state ----

    @property
    def epoch(self):
        """Passes of training steps that are complete. Count from it, not from 0."""
        return self._handle.epoch

    @property
    def step(self):
        """Training steps that have finished."""
        return self._handle.step

    @property
    def durable_steps(self):
        """Training steps that the newest checkpoint has."""
        return self._handle.durable_steps

    @property
    def program_state(self):
        """Bytes of the program's own, which each checkpoint has."""
        return self._handle.program_state

    @program_state.setter
    def program_state(self, value):
        if not isinstance(value, bytes):
            raise TypeError("program_state is a %s: wanted bytes" % type(value).__name__)
        self._handle.program_state = value

    def restore_latest(self, timeout=None):
        """Resumes from the newest saved state; the number of steps in it, 0 if there is none.

        Call it first in main: the program may run more than once in the life of its job.
        """
        return self._handle.restore_latest(timeout)

    def save_checkpoint(self, timeout=None):
        """Makes a checkpoint in --checkpoint_dir, and returns its name."""
        if checkpoints_are_temporary:
            raise _errors.FailedPreconditionError(
                "there is no directory for checkpoints: start the program with --checkpoint_dir")
        return self._handle.save_checkpoint(timeout)

    def export(self, path, slots=False, timeout=None):
        """Writes the variables for other programs: NAME.safetensors, or a TensorFlow bundle.

        path: NAME.safetensors, or a folder that gets the bundle. slots: also what the optimizers
        keep. divvy.load reads both. A cluster that has tables and was not started by `divvyctl
        launch` wants --checkpoint_dir.
        """
        path = os.fspath(path)
        if os.path.splitext(path)[1] in _OTHER_FORMATS:
            raise ValueError("export: %r has the suffix of another format: wanted "
                             "NAME.safetensors, or a folder for a TensorFlow bundle" % path)
        self._handle.export(path, slots, timeout)

    def set_learning_rate_scale(self, scale):
        """Multiplies every optimizer's learning rate, for steps that start from now on."""
        if not math.isfinite(scale):
            raise ValueError("the learning rate cannot be scaled by %r" % (scale,))
        self._handle.set_learning_rate_scale(scale)

    def report(self, run, step, metrics):
        """Adds figures to the log and to TensorBoard's run `run` at `step`."""
        self._handle.report(run, step, {
            name: value if isinstance(value, _metrics.Metric) else _divvy.mean(float(value), 1.0)
            for name, value in metrics.items()})


def _check_dataset(dataset):
    if not isinstance(dataset, _datasets.Dataset):
        raise TypeError("%r is no dataset: make one by divvy.csv, divvy.tensors, divvy.records, ..."
                        % (dataset,))
    return dataset
