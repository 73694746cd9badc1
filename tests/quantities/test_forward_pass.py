"""Features, the last layer and logits from one forward pass."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.models.feature_layer import Heard
from nescio.quantities import Features, ForwardPass, LastLayer, Logits, compute
from nescio.types import ModelError


def test_features_and_logits_come_from_one_pass_in_any_chunks(net: nn.Sequential, x: Tensor) -> None:
    calls: list[int] = []
    net.register_forward_hook(lambda *_: calls.append(1))
    requests = [Features(), Logits(), Features("0"), Features()]
    found: Any = compute(Classifier(net), x, requests)
    assert len(calls) == 1 and set(found) == set(requests)
    torch.testing.assert_close(found[Features()], net[:2](x).detach())
    torch.testing.assert_close(found[Features("0")], net[0](x).detach())
    torch.testing.assert_close(found[Logits()], net(x).detach())
    parts: Any = compute(Classifier(net), x, requests, chunk=2)
    for request in requests:
        torch.testing.assert_close(parts[request], found[request], rtol=1e-12, atol=1e-14)


def test_features_that_are_not_finite_are_told_with_their_layer() -> None:
    heard = Heard("m", nn.Identity(), torch.full((3, 2), torch.inf))
    with pytest.raises(ModelError, match="expected finite features from 'm', got NaN or infinite ones"):
        ForwardPass(torch.zeros(3, 2), {None: heard}, {}).features(None)


def test_the_last_layer_comes_from_the_same_pass(net: nn.Sequential, x: Tensor) -> None:
    calls: list[int] = []
    net.register_forward_hook(lambda *_: calls.append(1))
    requests = [LastLayer(), Features("0"), Logits(), Features()]
    found: Any = compute(Classifier(net), x, requests)
    assert len(calls) == 1 and set(found) == set(requests)
    layer = found[LastLayer()]
    assert layer.dtype == torch.float64 and layer.shape == (3, 7) and not layer.requires_grad
    torch.testing.assert_close(found[Features()] @ layer[:, :-1].T + layer[:, -1], found[Logits()])
    torch.testing.assert_close(found[Features("0")], net[0](x).detach())
    assert torch.equal(compute(Classifier(net), x, [LastLayer()], chunk=2)[LastLayer()], layer)  # type: ignore[arg-type]


def test_a_layer_that_is_called_for_each_token_is_the_last_one_where_logits_are_the_mean(x: Tensor) -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x.view(-1, 2, 2)).mean(1)

    found: Any = compute(Classifier(Tokens()), x, [LastLayer(), Features(), Logits()])
    layer = found[LastLayer()]
    torch.testing.assert_close(found[Features()] @ layer[:, :-1].T + layer[:, -1], found[Logits()])
