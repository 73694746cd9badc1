"""Layers without a rule, and layers around other layers: the general path gives the same numbers, next to the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from tests.trace.helpers import SMOOTH, Then, ready, same_as_reference, slow


def real(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


WRAPPED: dict[str, Callable[[], tuple[nn.Module, Tensor, int]]] = {
    "weight_norm": lambda: (parametrizations.weight_norm(nn.Linear(5, 4)), real(4, 5), 4),
    "weight_norm conv": lambda: (parametrizations.weight_norm(nn.Conv1d(2, 4, 3)), real(4, 2, 5), 12),
    "spectral_norm": lambda: (parametrizations.spectral_norm(nn.Linear(5, 4)), real(4, 5), 4),
    "orthogonal": lambda: (parametrizations.orthogonal(nn.Linear(4, 4)), real(4, 4), 4),
    "pruned": lambda: (prune.random_unstructured(nn.Linear(5, 4), "weight", 0.5), real(4, 5), 4),
    "bilinear": lambda: (Both(nn.Bilinear(5, 5, 4)), real(4, 5), 4),
    "rnn cell": lambda: (nn.RNN(5, 3, batch_first=True), real(4, 2, 5), 6),
    "lstm, projected": lambda: (nn.LSTM(5, 4, proj_size=3, batch_first=True), real(4, 2, 5), 6),
}


class Both(nn.Module):
    """A layer of two inputs that gets the same one twice."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, torch.sin(x))


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_layers(name: str) -> None:
    body, x, width = WRAPPED[name]()
    with torch.no_grad():
        body.double()(x)
    model = Then(body, width).double().eval()
    same_as_reference(model, x)
    same_as_reference(model, x, norm=1, **SMOOTH)
    assert "head.weight" not in slow(model, x)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils")
@pytest.mark.filterwarnings("ignore:torch.nn.utils.weight_norm")
@pytest.mark.parametrize("wrap", [weight_norm, spectral_norm], ids=["weight_norm", "spectral_norm"])
def test_wrappers_of_the_old_kind(wrap: Any) -> None:
    body = wrap(nn.Linear(5, 4).double())
    model = Then(body, 4).double().eval()
    same_as_reference(model, real(4, 5))
    assert "head.weight" not in slow(model, real(4, 5))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag(mode: str) -> None:
    model, x = ready(Then(nn.EmbeddingBag(7, 4, mode=mode, padding_idx=2), 4)), torch.randint(0, 7, (5, 6))
    same_as_reference(model, x)
    assert slow(model, x) == {"body.weight"}


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_gradients(layer: type[nn.Module], norm: int) -> None:
    body = layer(7, 4, sparse=True, **({"mode": "sum"} if layer is nn.EmbeddingBag else {}))
    x = torch.randint(0, 7, (5, 3))
    same_as_reference(ready(Then(body, 4 if layer is nn.EmbeddingBag else 12)), x, norm=norm)


def test_gradients_scaled_by_frequency_are_those_of_an_input_alone() -> None:
    """The frequency is counted over whatever is looked up at once: over the input, not over the batch."""
    model, x = ready(Then(nn.Embedding(9, 4, scale_grad_by_freq=True), 12)), torch.randint(0, 3, (6, 3))
    x[:3] = torch.arange(9).view(3, 3)  # no two alike in the inputs that the plan is found from
    same_as_reference(model, x)
    assert slow(model, x) == {"body.weight"}


class Slopes(nn.Module):
    """A body and one of its parameters used in ways that have no rule."""

    def __init__(self, use: Callable[[Tensor, Tensor], Tensor], *shape: int) -> None:
        super().__init__()
        self.p, self.use = nn.Parameter(torch.zeros(shape)), use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(x, self.p)


WITHOUT: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = {
    "x / p": (lambda x, p: x / p, (5,)),
    "x ^ |p|": (lambda x, p: x.abs() ** p.abs(), (5,)),
    "p on the left": (lambda x, p: (p @ x.T).T, (4, 5)),
    "einsum": (lambda x, p: torch.einsum("ni,ijk,nj->nk", x, p, x), (5, 5, 4)),
    "twice, both ways": (lambda x, p: torch.tanh(x @ p) @ p.T, (5, 4)),
    "factor and term": (lambda x, p: x * p + p, (5,)),
    "plus its transpose": (lambda x, p: x @ (p + p.T), (5, 5)),
    "overlapping slices": (lambda x, p: torch.tanh(x @ p[:, :4]) + torch.tanh(x @ p[:, 2:]), (5, 6)),
    "a single number": (lambda x, p: torch.cat([x**2 / (1 + p**2), x], 1), ()),
    "a norm": (lambda x, p: x @ (p / p.norm()), (5, 4)),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_uses_without_a_rule(name: str) -> None:
    use, shape = WITHOUT[name]
    body = Slopes(use, *shape)
    width = use(torch.ones(1, 5), torch.ones(shape)).shape[1]
    model, x = ready(Then(body, width)), real(4, 5)
    assert slow(model, x) == {"body.p"}
    same_as_reference(model, x)
    same_as_reference(model, x, norm=1, **SMOOTH)
    same_as_reference(model, x[:1])


@pytest.mark.parametrize("way", ["list", "closure"])
def test_parameters_that_are_held_in_other_places(way: str) -> None:
    """Replacing a module's parameter does not reach a list or a closure: vmap would find no gradient there."""

    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(torch.randn(5, 4))
            self.others = [self.p]
            weight = self.p
            self.turn = lambda x: x @ torch.sin(weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.turn(x) if way == "closure" else x @ torch.sin(self.others[0])

    model, x = Then(Held(), 4).double(), real(4, 5)
    assert same_as_reference(model, x)[:, :, 0].min() > 0
    same_as_reference(model, x, **SMOOTH)


def test_a_weight_that_is_kept_from_the_first_call() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(torch.randn(5, 4))
            self.kept: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.kept is None:
                self.kept = torch.sin(self.p)
            return x @ self.kept

    model: Any = Then(Kept(), 4).double()
    assert same_as_reference(model, real(4, 5))[:, :, 0].min() > 0
    assert model.body.kept is None


def test_control_flow_that_is_not_the_same_for_all() -> None:
    """Each input goes the way that its own values tell, one after another."""

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 5)

        def forward(self, x: Tensor) -> Tensor:
            rows = []
            for row in x:
                h = row.unsqueeze(0)
                for _ in range(1 + int(row[0] > 0)):
                    h = torch.tanh(self.layer(h))
                rows.append(h)
            return torch.cat(rows)

    x = real(5, 5)
    x[:, 0] = torch.tensor([1.0, 1.0, 1.0, -1.0, 1.0])
    same_as_reference(ready(Then(Loop(), 5)), x)


class Dynamic(nn.Module):
    """A kernel for each input, scaled by a gate that is shut for some: gradients go through the kernel too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.kernel = nn.Linear(5, 8), nn.Parameter(torch.zeros(3, 2, 2))

    def forward(self, x: Tensor) -> Tensor:
        n, h = len(x), torch.tanh(self.first(x))
        gate = torch.relu(x[:, :1] * h[:, :1].square())
        kernels = self.kernel * (1 + gate.view(n, 1, 1, 1))
        y = nn.functional.conv1d(h.view(1, 2 * n, 4), kernels.flatten(0, 1), groups=n)
        return y.view(n, 9)


def test_kernels_that_depend_on_the_input() -> None:
    model, x = ready(Then(Dynamic(), 9)), real(6, 5)
    x[:, 0] = torch.tensor([-1.0, -1.0, -1.0, 1.0, 2.0, -1.0])  # the gate is shut for the first three
    same_as_reference(model, x)


@pytest.mark.parametrize("made", ["scale", "shift"])
def test_batch_norm_with_what_is_computed(made: str) -> None:
    """Its scale and its shift may come from other parameters."""

    class Computed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.p = nn.Linear(5, 4), nn.Parameter(torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            h, vector = self.first(x), self.p.exp()
            scale, shift = (vector, None) if made == "scale" else (None, vector)
            return nn.functional.batch_norm(h, torch.zeros_like(self.p), torch.ones_like(self.p), scale, shift)

    model, x = ready(Then(Computed(), 4)), real(4, 5)
    assert same_as_reference(model, x)[:, :, 2].min() > 0
    assert not slow(model, x)
