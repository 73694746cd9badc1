"""Operations without a derivative: autograd goes on with zeros there, and the engine says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import trace
from nescio.types import ModelError
from tests.trace.helpers import same_as_reference

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.ao.quantization is deprecated", "ignore:torch.quantize_per_tensor", "ignore:.*an autograd kernel"
)

LIBRARY = torch.library.Library("nescio_tests", "DEF")
LIBRARY.define("opaque(Tensor x, Tensor w) -> Tensor")
LIBRARY.impl("opaque", lambda x, w: x.detach() @ w.detach().T, "CPU")


class Opaque(nn.Linear):
    """A linear layer whose kernel has no derivative, as those of quantised layers."""

    def forward(self, input: Tensor) -> Tensor:
        return torch.ops.nescio_tests.opaque(input, self.weight)


class Half(nn.Module):
    """The same weights along two ways, of which one has a derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.other = nn.Linear(4, 5), nn.Linear(5, 3), Opaque(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        return self.head(h) + self.other(h)


def quantised() -> nn.Module:
    body = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).eval()
    return torch.ao.quantization.quantize_dynamic(body, {"2"}, dtype=torch.qint8)


KINDS: dict[str, Callable[[], nn.Module]] = {
    "quantised": quantised,
    "opaque": lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), Opaque(5, 3)),
    "half": Half,
}
CALLS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "engine": trace.class_gradients,
    "oracle": trace.reference.class_gradients,
    "gradnorm": lambda m, x: nescio.score(m, x, "gradnorm"),
    "input": lambda m, x: trace.input_gradients(m, x, torch.ones(1, len(x), 3)),
    "map": lambda m, x: nescio.explain(m, x),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_gradient_that_is_lost_is_an_error(kind: str, call: str, count: int) -> None:
    torch.manual_seed(0)
    model, x = KINDS[kind](), torch.randn(count, 4)
    with pytest.raises(ModelError, match=r"derivative, such as a quantised layer|dynamically quantised layer"):
        CALLS[call](model, x)


def test_layers_behind_it_can_be_selected() -> None:
    """And what has no parameters below it is a part of the input."""
    torch.manual_seed(0)
    x = torch.randn(4, 5, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(5, 5), Opaque(5, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    assert same_as_reference(model, x, select=["3.*"]).shape == (4, 3, 2)
    model[1].weight.requires_grad_(False)
    with pytest.raises(ModelError, match="derivative"):
        trace.class_gradients(model, x)
