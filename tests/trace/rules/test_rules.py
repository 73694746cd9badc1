"""Every kind of layer that has a rule: the same numbers as the loop, and the rule was really used."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nescio.models.batch_axis import Layout
from nescio.trace import rules
from tests.trace.helpers import SMOOTH, Then, ready, same_as_reference, slow

few = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])


def check(body: nn.Module, x: Tensor, width: int | None = None, batch: int = 0) -> None:
    """All parameters fast; L2, L1 and smoothed norms as in the loop."""
    body = ready(body)
    if width is None:
        width = body(x).movedim(batch, 0)[0].numel()
    model = ready(Then(body, width, batch))
    assert slow(model, x) == set()
    same_as_reference(model, x)
    same_as_reference(model, x, norm=1)
    if x.is_floating_point():
        same_as_reference(model, x, **SMOOTH)


def real(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", [(4, 5), (4, 3, 5), (4, 2, 3, 5), (4, 1, 5)], ids=str)
def test_linear(shape: tuple[int, ...], bias: bool) -> None:
    check(nn.Linear(5, 6, bias=bias), real(*shape))


def test_linear_on_a_sequence_that_is_not_contiguous() -> None:
    class Turned(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.transpose(1, 2))

    check(Turned(5, 6), real(4, 5, 3))


@pytest.mark.parametrize("read", [slice(None), slice(1, 2), slice(0, 1)], ids=["all", "middle", "first"])
def test_linear_with_the_sequence_first(read: slice) -> None:
    class First(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.transpose(0, 1).contiguous())[read]

    check(First(5, 6), real(6, 3, 5), batch=1)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@few
@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    groups = data.draw(st.sampled_from([1, 2, 4]))
    kernel = data.draw(st.tuples(*[st.integers(1, 3)] * dims))
    transposed = data.draw(st.booleans())
    stride, dilation = (data.draw(st.tuples(*[st.integers(1, 2)] * dims)) for _ in range(2))
    mode = "zeros" if transposed else data.draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"]))
    padding: Any = data.draw(st.tuples(*[st.integers(0, 2)] * dims))
    options: dict[str, Any] = {"groups": groups, "bias": data.draw(st.booleans()), "dilation": dilation}
    if transposed:
        assume(all(2 * p < d * (k - 1) + 1 for p, d, k in zip(padding, dilation, kernel, strict=True)))
        options["output_padding"] = tuple(min(data.draw(st.integers(0, 1)), s - 1) for s in stride)
    elif data.draw(st.booleans()):
        padding, stride = "same", (1,) * dims
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    body = kind(
        4, 4 * data.draw(st.integers(1, 2)), kernel, stride=stride, padding=padding, padding_mode=mode, **options
    )
    check(nn.Sequential(nn.PReLU(4), body), real(3, 4, *range(5, 5 + dims)))  # the slopes' gradient goes through it


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "not affine"])
@pytest.mark.parametrize("dims", [0, 1, 2, 3])
def test_batch_norm(dims: int, affine: bool) -> None:
    kind = [nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d][dims]
    check(kind(4, affine=affine), real(4, 4, *(3,) * dims))


def test_batch_norm_hands_gradients_on() -> None:
    """To the layers before it, also where it was called with names, without an affine part, and twice."""
    check(
        nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.BatchNorm2d(3, affine=False)),
        real(4, 2, 4, 4),
    )
    shared = nn.BatchNorm1d(5)
    check(nn.Sequential(nn.Linear(5, 5), shared, nn.Tanh(), shared), real(4, 5))


def test_the_rule_of_a_fused_rms_norm() -> None:
    """Only a GPU has the fused operation: a node that holds what it would save."""
    x, weight = real(4, 3, 5), real(5).requires_grad_()
    scale = (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    delta = real(2, 4, 3, 5)
    node = SimpleNamespace(_saved_input=x, _saved_result1=scale, _saved_normalized_shape=(5,))
    entry = rules.find("FusedRmsNormBackward0", 1)
    assert entry is not None
    assert list(entry.batch(node, 3)) == [0, 1]
    found = entry.rule(rules.Context(node, (5,), Layout(0, True, 4)), delta)
    assert found is not None
    for k in range(2):
        for n in range(4):
            (wanted,) = torch.autograd.grad((x[n] * scale[n] * weight * delta[k, n]).sum(), weight)
            torch.testing.assert_close(found.power(2)[k, n], wanted.square().sum())


@pytest.mark.parametrize(
    "body",
    [
        lambda: nn.LayerNorm(4),
        lambda: nn.LayerNorm((3, 4)),
        lambda: nn.LayerNorm((2, 3, 4)),
        lambda: nn.LayerNorm((3, 4), bias=False),
        lambda: nn.LayerNorm(4, elementwise_affine=False),
        lambda: nn.RMSNorm(4),
        lambda: nn.RMSNorm((3, 4), eps=0.1),
        lambda: nn.GroupNorm(1, 2),
        lambda: nn.GroupNorm(2, 2),
        lambda: nn.GroupNorm(2, 2, affine=False),
        lambda: nn.InstanceNorm2d(2, affine=True),
        lambda: nn.InstanceNorm2d(2, affine=True, track_running_stats=True),
        lambda: nn.InstanceNorm2d(2),
        lambda: nn.PReLU(),
        lambda: nn.PReLU(2),
    ],
    ids=lambda make: str(make()),
)
def test_norms_and_slopes(body: Callable[[], nn.Module]) -> None:
    check(body(), real(4, 2, 3, 4))


def test_instance_norm_in_one_and_three_dimensions() -> None:
    check(nn.InstanceNorm1d(3, affine=True), real(4, 3, 5))
    check(nn.InstanceNorm3d(2, affine=True), real(4, 2, 3, 2, 2))


def test_group_norm_of_vectors() -> None:
    check(nn.GroupNorm(2, 6), real(4, 6))


def test_layer_norm_with_the_sequence_first() -> None:
    class First(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.transpose(0, 1))

    check(First(5), real(4, 3, 5), batch=1)


@pytest.mark.parametrize("batch", [0, 1], ids=["batch first", "sequence first"])
@pytest.mark.parametrize("padding", [None, 0, 3, -1])
def test_embedding(batch: int, padding: int | None) -> None:
    class Turned(nn.Embedding):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if batch == 0 else x.T)

    x = torch.randint(0, 7, (4, 5))
    x[0] = 3  # the same token everywhere
    check(Turned(7, 4, padding_idx=padding), x, width=20, batch=batch)


def test_embedding_of_one_token_and_of_a_grid() -> None:
    check(nn.Embedding(7, 4), torch.randint(0, 7, (5,)), width=4)
    check(nn.Embedding(7, 4), torch.randint(0, 7, (4, 2, 3)), width=24)


class TwoLookups(nn.Module):
    """One table for two parts of different length."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.tanh(self.table(x[:, :2])).mean(1), torch.tanh(self.table(x[:, 2:])).mean(1)], 1)


@pytest.mark.parametrize("length", [3, 4, 6])
def test_embedding_called_twice(length: int) -> None:
    x = torch.randint(0, 7, (5, length))
    x[:3] = x[:3, :1]  # in the first inputs both lookups see the same
    check(TwoLookups(), x, width=8)


def test_embedding_of_what_the_noise_changes() -> None:
    """Pixels that become tokens: each noisy copy looks other rows up."""

    class Palette(nn.Embedding):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward((x * 7).long().clamp(0, 6))

    check(Palette(7, 4), torch.rand(4, 5, dtype=torch.float64), width=20)
