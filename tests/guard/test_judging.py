"""The order of the work in a check on a GPU: it goes on with a batch while the host does what needs none of it."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from nescio import Guard
from nescio.guard import guard as of_guard
from nescio.guard.judging import Measured
from nescio.types import ModelError
from tests.guard.conftest import FEW, conv, pictures
from tests.trace.helpers import identical, state

pytestmark = pytest.mark.filterwarnings(FEW)


@pytest.fixture
def events(monkeypatch):
    """What comes after what in a check that takes the way of a GPU, on the CPU."""
    seen = []
    kept, verdict = of_guard.preserved, Measured.verdict

    @contextmanager
    def preserved(model):
        with kept(model):
            yield
        seen.append("put back")

    monkeypatch.setattr(of_guard, "preserved", preserved)
    monkeypatch.setattr(Measured, "verdict", lambda self: seen.append("verdict") or verdict(self))
    monkeypatch.setattr(Guard, "_works_on_gpu", lambda self: True)
    return seen


@pytest.mark.parametrize("count", [40, 400])
def test_the_next_batch_is_begun_and_the_model_put_back_before_the_host_waits(count, events):
    model = conv().train()
    guard, new = Guard(model).fit(pictures(count), nuisances=None), pictures(5, seed=1)
    model.register_forward_hook(lambda *_: events.append("forward"))
    before = state(model)
    found = guard.check(new, chunk=2)
    assert events == ["forward", "forward", "verdict", "forward", "verdict", "put back", "verdict"]
    assert identical(before, state(model))
    whole = guard.judge(of_guard.quantities.compute(guard.classifier, new, guard.requests))
    for name in ("p_value", "score", "predicted", "confidence"):
        torch.testing.assert_close(getattr(found, name), getattr(whole, name), rtol=1e-12, atol=0)


class Counting(nn.Module):
    """Counts its calls in a buffer, and overflows for inputs that lie far out."""

    def __init__(self):
        super().__init__()
        self.net = conv()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.net(x) * torch.where(x.flatten(1).amax(1) > 50, torch.inf, 1.0)[:, None]


@pytest.mark.parametrize("far", [0, 2, 4])
def test_an_overflow_is_told_of_after_its_batch_and_the_model_is_as_it_was(far, events):
    model = Counting().train()
    guard, new = Guard(model).fit(pictures(40), nuisances=None), pictures(5, seed=1)
    new[far] += 99
    before = state(model)
    with pytest.raises(ModelError, match="expected finite"):
        guard.check(new, chunk=2)
    assert identical(before, state(model))
