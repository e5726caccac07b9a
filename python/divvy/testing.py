"""Clusters in this process, for tests of steps."""
import atexit
import contextlib
import os
import sys
import threading

from divvy import _coordinator, _divvy, _registry

_active = {}  # the clusters that are not stopped, each with the thread that stops it


@atexit.register
def _stop_all():
    """Python is about to end, and no thread may call it afterwards."""
    try:
        for started in list(_active):
            _stop(started)
    except KeyboardInterrupt:
        print("divvy.testing: a step still runs; the process ends without it", file=sys.stderr,
              flush=True)
        os._exit(130)


def _stop(started):
    """Waits until no step runs, and looks for signals meanwhile."""
    if _active[started] is None:
        started.end()
        _active[started] = threading.Thread(target=started.stop, daemon=True)
        _active[started].start()
    while _active[started].is_alive():
        _active[started].join(0.1)
    del _active[started]


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
        handle = started.start()
        _active[started] = None
        _registry.create_declared()
        yield _coordinator.Coordinator(handle)
    finally:
        try:
            if started in _active:
                _stop(started)
        finally:
            _registry.end_test()
