"""A GPU's lane for rows, without a GPU."""

from collections import deque

import pytest
import torch

from nescio.data import prefetch
from nescio.data.prefetch import _bytes, _Stage
from nescio.inputs import apply


@pytest.fixture
def lane(monkeypatch):
    """A lane that copies within the CPU's memory."""

    class Lane:
        def __init__(self, device, depth):
            self.device = torch.device("cpu")
            self.stages = deque(map(_Stage, range(depth + 1)))

        def stage(self):
            return self.stages.popleft()

        def send(self, read, stage, finish=None):
            self.stages.append(stage)
            if read.batch is None:
                return read
            x = read.batch.inputs
            if not stage.fits(x):
                stage.reserve(_bytes(x))
                x = stage.hold(x)
            moved = apply(x, torch.clone)
            return read._replace(batch=read.batch._replace(inputs=moved if finish is None else finish(moved)))

        def receive(self, read):
            pass

    monkeypatch.setattr(prefetch, "_Lane", Lane)
    monkeypatch.setattr(_Stage, "pinned", staticmethod(lambda size: torch.empty(size, dtype=torch.uint8)))


def same_reads(ours, theirs):
    """Whether what was read of some rows is the same bit for bit."""
    if (ours.places, ours.problems, ours.batch is None) != (theirs.places, theirs.problems, theirs.batch is None):
        return False
    if ours.batch is None:
        return True
    same = [torch.equal(getattr(ours.batch, name), getattr(theirs.batch, name)) for name in ("indices", "inputs")]
    return ours.batch.names == theirs.batch.names and all(same)
