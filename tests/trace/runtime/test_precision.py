"""Gradients in bfloat16."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nescio import trace
from tests.trace.estimate.helpers import DECAY, total


def ranks(a: Tensor, b: Tensor) -> float:
    places = torch.stack([a.argsort().argsort().double(), b.argsort().argsort().double()])
    return float(torch.corrcoef(places)[0, 1])


def test_gradients_in_bfloat16_keep_the_model_and_the_probabilities() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).eval()
    x = torch.randn(24, 3, 8, 8)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    exact, found = trace.class_gradients(model, x), trace.class_gradients(model, x, precision="bfloat16")
    assert torch.equal(found.probabilities, exact.probabilities)
    assert not torch.equal(found.norms, exact.norms)
    torch.testing.assert_close(found.norms, exact.norms, rtol=0.05, atol=0.05)
    assert ranks(total(found, DECAY), total(exact, DECAY)) > 0.99
    assert all(torch.equal(t, before[name]) and t.dtype == before[name].dtype for name, t in model.state_dict().items())
    handle = model[3].register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("stop")))
    with pytest.raises(RuntimeError, match="stop"):
        trace.class_gradients(model, x, precision="bfloat16")
    handle.remove()
    assert all(t.dtype == before[name].dtype for name, t in model.state_dict().items())
