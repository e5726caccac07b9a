"""Clusters in this process, for tests of steps."""
import atexit
import contextlib
import os

from divvy import _coordinator, _divvy, _registry

_active = []


@atexit.register
def _stop_all():
    """Python is about to end, and no thread may call it afterwards."""
    for started in _active:
        started.stop()


@contextlib.contextmanager
def cluster(ps=2, workers=1, *, seed=1, checkpoint_dir="", min_shard_bytes=None,
            placement="round_robin"):
    """A coordinator, parameter servers and workers in this process, without a network.

        with divvy.testing.cluster(ps=2) as c:
            c.run_epoch(train, data)

    Creates the variables that the modules have declared. Those that the body creates end with the
    cluster. One at a time; any number after each other. Reads no flags.
    """
    started = _divvy.TestCluster(ps, workers, seed, os.fspath(checkpoint_dir), min_shard_bytes,
                                 placement)
    _registry.begin_test()
    try:
        _active.append(started)
        handle = started.start()
        _registry.create_declared()
        yield _coordinator.Coordinator(handle)
    finally:
        started.stop()
        _active.remove(started)
        _registry.end_test()
