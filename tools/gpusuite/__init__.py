"""The parts of tools/gpu_suite. They need Python 3.8 and nothing else: they run on the machine
with the GPU, from the pack."""


class SuiteError(Exception):
    """What a person has to mend; said as it is, without a traceback."""
