"""The parts of tools/gpu_suite. They run from the pack, on the machine with the GPU, so they need
Python 3.8 and nothing else."""


class SuiteError(Exception):
    """An error that the user has to fix. Its message is printed without a traceback."""
