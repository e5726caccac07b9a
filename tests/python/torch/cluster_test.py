"""dt.Module and dt.Embedding in a cluster whose workers die in steps: everything counts once."""
import os
import re
import subprocess
import sys

PROGRAM = """
import os
import signal

import divvy
import divvy.torch as dt
import numpy as np
import torch

RECORDS, EPOCHS = 300, 4
data = divvy.tensors({"id": np.arange(RECORDS)})
visits = dt.Embedding("visits", 2, optimizer=divvy.Sgd(1.0), initializer=0.0)
net = torch.nn.Linear(3, 1)
torch.nn.init.zeros_(net.weight)
torch.nn.init.zeros_(net.bias)
model = dt.Module("net", net, optimizer=divvy.Sgd(1.0))

def die_once(number):
    try:
        open("died-%d" % number, "x").close()
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

@dt.step
def count(batch):
    (model(torch.ones(1, 3)).sum() + visits(batch["id"]).sum()).neg().backward()
    if divvy.step_number() in (20, 150, 151, 290):
        die_once(divvy.step_number())

def main(c):
    c.restore_latest()
    while c.epoch < EPOCHS:
        c.run_epoch(count, data.shuffle(RECORDS).batch(4))
    state = model.state_dict()
    print("weight", state["weight"].tolist(), "bias", state["bias"].tolist())
    print("visits", set(visits(torch.arange(RECORDS)).flatten().tolist()), "steps", c.step)

if __name__ == "__main__":
    divvy.run(main)
"""


def test_gradients_of_a_module_and_of_rows_count_once(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [os.path.abspath(os.environ["DIVVYCTL"]), "launch", "--ps=2", "--workers=2", "--",
               sys.executable, "program.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as launch:
        try:
            out, err = launch.communicate(timeout=240)
        except BaseException:
            launch.terminate()  # the launch ends its tasks
            raise
    assert launch.returncode == 0, err[-6000:]
    output = out + err
    assert len(list(tmp_path.glob("died-*"))) == 4, output[-6000:]
    assert len(re.findall("worker . was killed by SIGKILL", output)) == 4, output[-6000:]
    assert "weight [[300.0, 300.0, 300.0]] bias [300.0]" in output, output[-6000:]
    assert "visits {4.0} steps 300" in output
