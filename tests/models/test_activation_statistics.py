"""Means and deviations of what layers give, with a faster way where one is offered."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nescio import Classifier
from nescio.models.activation_statistics import statistics, summaries
from nescio.quantities.forward_pass import _moments
from nescio.types import Depth


def plain(x: Tensor) -> Tensor:
    """By the definition, over all but the first two dimensions."""
    flat = x.double().flatten(2)
    return torch.cat([flat.mean(2), (flat - flat.mean(2, keepdim=True)).square().mean(2).sqrt()], 1)


def test_a_faster_way_is_taken_for_channels_whose_positions_lie_side_by_side() -> None:
    asked: list[tuple[int, ...]] = []

    def moments(x: Tensor) -> Tensor:
        asked.append(tuple(x.shape))
        return plain(x).float()

    x = torch.randn(2, 3, 4, 5)
    for value in (x, x.bfloat16(), x[:, :, 0]):
        before = len(asked)
        found = statistics(value, 1, moments=moments)
        torch.testing.assert_close(found.double(), plain(value), rtol=1e-5, atol=1e-6)
        assert len(asked) == before + value.is_contiguous()
    last = x.contiguous(memory_format=torch.channels_last)
    for value, axis in ((last, 1), (x.permute(0, 2, 3, 1).contiguous(), 3), (x[:, :, 0, 0], 1), (x[:, :, :1, :1], 1)):
        before = len(asked)
        statistics(value, axis, moments=moments)
        assert len(asked) == before, "not for these"


def test_a_way_that_declines_changes_nothing() -> None:
    x = torch.randn(2, 3, 4, 5)
    assert statistics(x, 1, moments=lambda t: None).equal(statistics(x, 1))


def test_hooks_hand_it_on() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 1))
    classifier, x = Classifier(model), torch.randn(2, 3, 4, 4)
    modules = dict(model.named_modules())
    places = [Depth("", 1), Depth("0", 1)]
    with summaries(classifier, places, x, modules, lambda t: torch.full((len(t), 2 * t.shape[1]), 7.0)) as found:
        model(x)
    assert [tuple(found[place].shape) for place in places] == [(2, 6), (2, 4)]
    assert all(bool((t == 7).all()) for t in found.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [(3, 5, 7, 7), (2, 64, 14, 14), (2, 3, 224, 224), (4, 16, 56, 56)])
def test_on_a_gpu_the_kernel_gives_what_torch_gives(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, device="cuda") * 3 + 5
    assert _moments(x.flatten(2)) is not None
    torch.testing.assert_close(statistics(x, 1, moments=_moments).double(), plain(x), rtol=1e-5, atol=1e-5)
