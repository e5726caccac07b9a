"""The programs of docs/guide/python.md, as they stand there."""
import os
import re
import subprocess
import sys

import pytest

from run_example import DIVVYCTL, figures

# The page of the tree: Bazel runs this file through a link.
PAGE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../docs/guide/python.md")
BLOCK = re.compile(r"^<!-- program: (\S+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(name="folder", scope="module")
def write_programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    with open(PAGE, encoding="utf-8") as page:
        text = page.read()
    for name, block in BLOCK.findall(text):
        with open(folder / name, "a", encoding="utf-8") as program:
            program.write(block + "\n\n")
    assert text.count("```python") == len(BLOCK.findall(text)), "a block belongs to no program"
    return folder


def run(folder, *command):
    done = subprocess.run([os.path.abspath(DIVVYCTL), *command] if command[0] == "launch" else
                          command, cwd=folder, capture_output=True, text=True, timeout=240,
                          check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout + done.stderr


def test_the_line_is_found_in_one_process(folder):
    output = run(folder, sys.executable, "line.py")
    assert "y = 3.00 a + -2.00 b + 1.00" in output
    assert "500 training steps" in output


def test_the_line_is_found_by_a_cluster(folder):
    output = run(folder, "launch", "--ps=2", "--workers=2", "--", sys.executable, "line.py")
    found = re.search(r"y = (\S+) a \+ (\S+) b \+ (\S+)", output)
    assert [round(float(one), 1) for one in found.groups()] == [3, -2, 1]


def test_taste_is_learned_and_saved(folder):
    aucs = figures("held out: auc", run(folder, sys.executable, "taste.py"))
    assert len(aucs) == 6
    assert aucs[-1] > 0.9
    load = "import torch; print(sorted(torch.load('taste.pt'))[:2])"
    assert "0.bias" in run(folder, sys.executable, "-c", load)
