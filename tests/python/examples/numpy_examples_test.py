"""The examples that need NumPy only."""
from run_example import figures, run


def test_digits_learns_the_digits_in_one_process():
    losses = figures("loss", run("digits_numpy").split("held out")[0])
    assert losses[-1] < losses[0] / 4


def test_digits_learns_the_digits_as_a_cluster():
    output = run("digits_numpy", launch=["--ps=2", "--workers=2"])
    assert figures("held out: accuracy", output)[-1] > 0.93
    assert "450 training steps, 14,370 examples" in output
