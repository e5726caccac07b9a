"""Checkpoints and exports as arrays."""
import os

from divvy import _divvy


def load(path):
    """The variables of a checkpoint or an export: a dict of arrays by name.

    path: NAME.safetensors (also of several files), a directory with checkpoints, of which the
    newest is read, or the prefix of a checkpoint. Needs no job. Optimizers' slots are there under
    their own names; a table is NAME-keys, NAME-values and NAME-freqs. Blocks on the disk.

    divvy.NotFoundError: there is none. divvy.DataLossError: it is damaged; the message has the
    place.
    """
    return _divvy.load(os.fspath(path))
