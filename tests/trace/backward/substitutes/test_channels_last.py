"""Where a model takes channels last, its convolutions and batch norms do throughout, however pictures come to them."""

import pytest
import torch
from torch import nn

from nescio.trace.backward.substitutes import convolution, folding


@pytest.mark.parametrize("make", [lambda: nn.Conv2d(4, 8, 3, padding=1), lambda: nn.BatchNorm2d(4).eval()])
def test_what_comes_with_channels_first_is_laid_anew_where_there_are_kernels(
    make: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = make(), torch.randn(2, 4, 6, 6, requires_grad=True)
    kept = layer(x)
    with folding(last=True):
        assert layer(x).is_contiguous(), "there is no kernel for pictures on a CPU"
    monkeypatch.setattr(convolution, "kernels", lambda *tensors: object())
    with folding(last=True):
        laid = layer(x)
    with folding():
        assert layer(x).is_contiguous()
    assert laid.is_contiguous(memory_format=torch.channels_last) and not laid.is_contiguous()
    torch.testing.assert_close(laid, kept)
    torch.testing.assert_close(torch.autograd.grad(laid.sum(), x), torch.autograd.grad(kept.sum(), x))
