"""Linear layers at many positions, whose backward goes where a gradient arrives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nescio import modes
from nescio.models import Classifier
from nescio.trace.backward.substitutes import attention_products, folding, linear
from nescio.trace.probe import passes
from nescio.trace.runtime import autograd_names as names
from tests.trace.helpers import SMOOTH, ready, same_as_reference, slow


class Tokens(nn.Module):
    """Two layers of a transformer over [N, 9, 6], of which the first few tokens are looked at."""

    def __init__(self, count: int, first: bool = True) -> None:
        super().__init__()
        self.count, self.first = count, first
        self.layers = nn.Sequential(*(nn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", 1e-5, first) for _ in "ab"))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layers(x if self.first else x.transpose(0, 1))
        h = h if self.first else h.transpose(0, 1)
        return self.head(h[:, : self.count].tanh().mean(1))


class Ends(nn.Module):
    """Each input's last token that is not zero, at a place of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.head = nn.Linear(6, 8), nn.Linear(8, 6, bias=False), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        last = (x != 0).any(2).sum(1) - 1
        h = self.outer(self.inner(x).tanh())
        return self.head((h * (torch.arange(x.shape[1]) == last.unsqueeze(1)).unsqueeze(2)).sum(1))


def nodes(model: nn.Module, x: Tensor) -> list[str]:
    classifier = Classifier.of(model)
    with modes.preserved(classifier), modes.tracing(classifier):
        return [node.name() for node in passes.forward(classifier, x).graph.nodes]


@pytest.mark.parametrize("first", [True, False], ids=["batch first", "sequence first"])
@pytest.mark.parametrize("tokens", [1, 2, 9])
@pytest.mark.parametrize("count", [1, 4])
def test_the_engine_is_the_oracle(tokens: int, first: bool, count: int) -> None:
    torch.manual_seed(0)
    model, x = ready(Tokens(tokens, first)), torch.randn(count, 9, 6, dtype=torch.float64)
    assert slow(model, x) == set()
    same_as_reference(model, x)
    same_as_reference(model, x, norm=1, **SMOOTH)


def test_every_input_may_have_its_own_position() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 9, 6, dtype=torch.float64)
    x[0, 3:] = x[2, 5:] = 0
    model = ready(Ends())
    assert slow(model, x) == set()
    same_as_reference(model, x)


def test_nothing_is_multiplied_where_no_gradient_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = ready(Tokens(1)), torch.randn(4, 9, 6, dtype=torch.float64, requires_grad=True)
    found: list[int | None] = []
    inside = linear.reached

    def watched(g: Tensor, dim: int = 0) -> Tensor | None:
        at = inside(g, dim)
        found.append(None if at is None else len(at))
        return at

    monkeypatch.setattr(linear, "reached", watched)
    monkeypatch.setattr(attention_products, "reached", watched)
    with folding():
        logits = model(x)
    (g,) = torch.autograd.grad(logits.sum(), x)
    # behind the last attention one token of four inputs, in the MLP and what follows attention; its query alone
    assert found == [4, 4, 4, 1, None, None, None, None, None, None]
    torch.testing.assert_close(g, torch.autograd.grad(model(x).sum(), x)[0])


def test_gradients_of_zero_everywhere_are_zero() -> None:
    weight = torch.randn(4, 6, requires_grad=True)
    x = torch.randn(2, 9, 6, requires_grad=True)
    with folding():
        y = nn.functional.linear(x, weight)
    assert y.grad_fn is not None and y.grad_fn.name() == names.DATA_LINEAR
    (g,) = torch.autograd.grad(y, x, torch.zeros_like(y))
    assert g.shape == x.shape and not g.any()


def test_it_is_as_much_memory_as_it_was_and_may_be_written_into() -> None:
    x, layer = torch.randn(2, 9, 6), nn.Linear(6, 4)
    with folding():
        y = layer(x.transpose(0, 1))
        y += 1
    torch.testing.assert_close(y, layer(x).transpose(0, 1) + 1)


@pytest.mark.parametrize("kind", ["rows", "half", "made"])
def test_other_calls_are_left_to_pytorch(kind: str) -> None:
    layer = nn.Linear(6, 4)
    x = torch.randn(9, 6) if kind == "rows" else torch.randn(2, 9, 6)
    weight, bias = layer.weight, layer.bias
    if kind == "half":
        x, weight, bias = x.bfloat16(), weight.bfloat16(), bias.bfloat16()
    if kind == "made":
        weight = weight * 2
    with folding():
        y = nn.functional.linear(x, weight, bias)
    assert y.grad_fn is not None and y.grad_fn.name() != names.DATA_LINEAR


def test_a_model_may_run_it_under_vmap() -> None:
    class Mapped(Ends):
        def forward(self, x: Tensor) -> Tensor:
            def one(token: Tensor) -> Tensor:
                return self.outer(self.inner(token.expand(2, 3, -1)).tanh()).sum((0, 1))

            return self.head(torch.vmap(torch.vmap(one))(x)[:, 0])

    torch.manual_seed(0)
    model, x = ready(Mapped()), torch.randn(4, 9, 6, dtype=torch.float64)
    assert names.DATA_LINEAR in nodes(ready(Ends()), x)
    same_as_reference(model, x)
