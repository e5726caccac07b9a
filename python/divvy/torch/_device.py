"""Which GPU a worker computes on."""
import torch

from divvy import _program


def device():
    """The torch.device of this process: a GPU if it is a worker that has one, otherwise the CPU.

        model = dt.Module("net", Net().to(dt.device()), optimizer=divvy.Adam(1e-3))

    The flag --gpus decides: "auto" is all GPUs that PyTorch sees, or the CPU; "all" is at least
    one; "0,2" are two of them; "none" is the CPU. Worker i takes the one at position i modulo their
    number, so each worker has one of its own where a machine has as many GPUs as workers. Tasks of
    other roles, and main, are on the CPU; without TF_CONFIG the process has worker 0, and main is
    on its device. Reads the command line and TF_CONFIG, so it may be called at module level.

    ValueError: --gpus is none of these, or names a GPU that PyTorch does not see.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = _program.gpu_of_this_worker(count)
    return torch.device("cpu") if number is None else torch.device("cuda", number)
