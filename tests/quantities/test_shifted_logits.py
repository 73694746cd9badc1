"""Shifted pictures against torch's own reflecting pad; the entropy of their mean."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.models import Classifier
from nescio.quantities import ShiftedLogits, compute
from nescio.types import InputError


@pytest.fixture
def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(2 * 5 * 6, 3)).double()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(7, 2, 5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def shifted(model: Any, x: Any, pixels: Any, **more: Any) -> Any:
    request = ShiftedLogits(pixels)
    return compute(Classifier(model), x, [request], **more)[request]


@pytest.mark.parametrize("pixels", [1, 2, 3])
def test_copies_are_crops_of_the_reflected_picture(net: nn.Sequential, x: Tensor, pixels: int) -> None:
    padded = nn.functional.pad(x, (pixels,) * 4, mode="reflect")
    crops = [
        padded[:, :, pixels - down : pixels - down + 5, pixels - right : pixels - right + 6]
        for down in (0, -pixels, pixels)
        for right in (0, -pixels, pixels)
    ]
    truth = torch.stack([net(crop) for crop in crops]).detach()
    assert len({tuple(one[0].tolist()) for one in truth}) == 9
    torch.testing.assert_close(shifted(net, x, pixels), truth, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(shifted(net, x, pixels, chunk=2), truth, rtol=1e-12, atol=1e-14)
    mean = truth.softmax(2).mean(0)
    score = nescio.score(net, x, "shift_entropy", pixels=pixels)
    torch.testing.assert_close(score, torch.special.entr(mean).sum(1), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize(("side", "pixels"), [(2, 1), (8, 1), (28, 2), (32, 2), (40, 2), (48, 3), (224, 4)])
def test_a_shift_is_a_sixteenth_of_the_shorter_side(side: int, pixels: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(side * (side + 50), 3)).double()
    x = torch.rand(1, 1, side, side + 50, dtype=torch.float64)
    assert torch.equal(shifted(net, x, "auto"), shifted(net, x, pixels))


def test_a_sure_network_keeps_its_order() -> None:
    """Plain arithmetic gives 0 for gaps above 40."""
    sure = torch.tensor([[50.0, 0.0], [100.0, 0.0]], dtype=torch.float64).expand(9, 2, 2)
    found = nescio.scores.ShiftEntropy()(sure)
    assert found[0] > found[1] > 0


def test_pictures_in_a_mapping_and_of_whole_numbers(net: nn.Sequential, x: Tensor) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, pixel_values: Tensor, weight: Tensor) -> Tensor:
            return self.net(pixel_values.to(torch.float64)) * weight[:, None]

    weight = torch.arange(1.0, 8.0, dtype=torch.float64)
    found = shifted(Named(), {"pixel_values": x, "weight": weight}, 1)
    torch.testing.assert_close(found, shifted(net, x, 1) * weight[:, None], rtol=1e-12, atol=1e-14)
    whole = (255 * x).to(torch.uint8)
    found = shifted(Named(), {"pixel_values": whole, "weight": weight}, 1)
    torch.testing.assert_close(found, shifted(net, whole.double(), 1) * weight[:, None], rtol=1e-12, atol=1e-14)


def test_what_is_no_picture_or_too_small_is_said(net: nn.Sequential, x: Tensor) -> None:
    with pytest.raises(InputError, match=r"expected pictures \[N, channels, height, width\], .* such as entropy"):
        shifted(nn.Linear(4, 3).double(), torch.rand(2, 4), 1)
    with pytest.raises(InputError, match=r"expected pictures larger than the shift of 5 pixels, .* smaller"):
        shifted(net, x, 5)
