"""A network that keeps what it worked out from its parameters: the score does not depend on earlier calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import trace
from nescio.types import ModelError
from tests.trace.helpers import bytes_of, close, ready


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.bias, self.head = nn.Linear(4, 5), nn.Parameter(torch.randn(5)), nn.Linear(5, 3)
        self.offset = torch.full((5,), 0.3, dtype=torch.float64)  # neither parameter nor buffer, and no cache

    def table(self) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.first(x) + self.table()).tanh() + self.offset)


class InDict(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, Any] = {"size": 5}

    def table(self) -> Tensor:
        if "cpu" not in self.cache:
            self.cache["cpu"] = self.bias.sin()
        return self.cache["cpu"]


class InList(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cache: list[Tensor] = []

    def table(self) -> Tensor:
        if not self.cache:
            self.cache.append(self.bias.sin())
        return self.cache[0]


class InAttribute(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cache: Tensor | None = None

    def table(self) -> Tensor:
        if self.cache is None:
            self.cache = self.bias.sin()
        return self.cache


class InProperty(Base):
    @cached_property
    def cache(self) -> Tensor:
        return self.bias.sin()

    def table(self) -> Tensor:
        return self.cache


class InTuple(Base):
    """Half of it: the parameter is used in another way too."""

    def table(self) -> Tensor:
        if not hasattr(self, "cache"):
            self.cache = (self.bias.sin(), 1)
        return self.cache[0] + self.bias


KINDS: dict[str, type[Base]] = {k.__name__: k for k in (InDict, InList, InAttribute, InProperty, InTuple)}


def made(kind: str) -> tuple[Any, Tensor, Tensor]:
    """A network, inputs, and the norms without any cache."""
    torch.manual_seed(0)
    model = ready(KINDS[kind]())
    x = torch.randn(3, 4, dtype=torch.float64)

    class Plain(KINDS[kind]):  # type: ignore[misc]
        def table(self) -> Tensor:
            return self.bias.sin() + (self.bias if kind == "InTuple" else 0)

    plain = Plain().double().eval()
    plain.load_state_dict(model.state_dict())
    return model, x, trace.class_gradients(plain, x, layers="tensor").norms


def kept(model: Any) -> list[Any]:
    """What the network holds, down to the bits and the objects."""
    held = [vars(model).get("cache"), model.offset]
    flat = [t for h in held for t in (h.values() if isinstance(h, dict) else h if isinstance(h, list | tuple) else [h])]
    return [
        sorted(vars(model)), *map(id, [*held, *flat]),
        *((bytes_of(t), t.grad_fn) for t in flat if isinstance(t, Tensor)),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", ["nothing", "prediction", "graph"])
@pytest.mark.parametrize("way", [trace.class_gradients, trace.reference.class_gradients])
def test_norms_do_not_depend_on_the_past(kind: str, before: str, way: Callable[..., Any]) -> None:
    model, x, wanted = made(kind)
    if before != "nothing":
        with torch.set_grad_enabled(before == "graph"):
            model(x)
    held = kept(model)
    close(way(model, x, layers="tensor").norms, wanted)
    assert kept(model) == held
    close(way(model, x, layers="tensor").norms, wanted)
    trace.input_gradients(model, x, torch.ones(1, 3, 3))
    nescio.score(model, x, "entropy")
    assert kept(model) == held


def test_what_is_written_into_a_kept_tensor_comes_back() -> None:
    model, x, _ = made("InDict")

    def table() -> Tensor:
        model.offset.mul_(1.0).copy_(torch.full((5,), 0.3)).add_(1e-9).sub_(1e-9)
        return model.bias.sin()

    model.table = table
    model.offset = torch.full((5,), 0.7, dtype=torch.float64)
    trace.class_gradients(model, x)
    assert model.offset.tolist() == [0.7] * 5


@pytest.mark.parametrize("kind", ["InDict", "InAttribute"])
def test_a_cache_of_other_parameters_is_an_error(kind: str) -> None:
    model, x, _ = made(kind)
    with torch.no_grad():
        model(x)
        model.bias.add_(1.0)
    held = kept(model)
    with pytest.raises(ModelError, match=r"keeps a tensor from an earlier call in its attribute 'cache'.*clear it"):
        trace.class_gradients(model, x)
    assert kept(model) == held


def test_the_book_of_a_cache_is_kept_with_it() -> None:
    """Which input size a table is for stands in another attribute, of another module."""

    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.size = 0
            self.body = InAttribute()

        def forward(self, x: Tensor) -> Tensor:
            if self.size != x.shape[1]:
                self.size, self.body.cache = x.shape[1], None
                self.body.table()
            table = self.body.cache
            assert table is not None
            return self.body.head((self.body.first(x) + table).tanh())

    torch.manual_seed(0)
    model, x = ready(Sized()), torch.randn(3, 4, dtype=torch.float64)
    ours = trace.class_gradients(model, x, layers="tensor")
    assert (model.size, model.body.cache) == (0, None)
    assert ours.norms[..., ours.layers.index("body.bias")].amin() > 1e-3
    model(x)
    assert model.size == 4


def test_a_network_of_others() -> None:
    levit = pytest.importorskip("timm.models.levit")
    torch.manual_seed(0)
    small: dict[str, Any] = {"embed_dim": (8, 8), "key_dim": 4, "num_heads": (2, 2), "depth": (1, 1)}
    model = ready(levit.Levit(img_size=64, num_classes=3, **small))
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    wanted = trace.class_gradients(model, x, layers="tensor")
    with torch.no_grad():
        model(x)
    close(trace.class_gradients(model, x, layers="tensor").norms, wanted.norms)
    biases = [i for i, name in enumerate(wanted.layers) if name.endswith("attention_biases")]
    assert biases and wanted.norms[..., biases].amin() > 0
