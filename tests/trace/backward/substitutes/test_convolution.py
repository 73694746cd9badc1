"""Convolutions by their data gradients: the kernel for those by channel, and who waits for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nescio.trace.backward.substitutes import convolution
from nescio.trace.runtime import cudnn


def test_a_first_look_does_not_wait_for_the_kernel_of_convolutions_by_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.dtype] = []

    def depthwise(x: torch.Tensor, weight: torch.Tensor, *geometry: Any) -> torch.Tensor:
        asked.append(x.dtype)
        return F.conv2d(x, weight, None, *geometry[:3], groups=len(weight))

    monkeypatch.setattr(convolution, "kernels", lambda *_: SimpleNamespace(depthwise=depthwise))
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(2, 40, 5, 5, dtype=dtype).to(memory_format=torch.channels_last)
        weight = torch.randn(40, 1, 3, 3, dtype=dtype)
        call = convolution.arguments(x, weight, None, 2, 1, 1, 40)
        assert call is not None
        wanted = F.conv2d(x, weight, None, 2, 1, 1, 40)
        torch.testing.assert_close(convolution.DataConvolution.apply(*call), wanted)
        with cudnn.looking():
            torch.testing.assert_close(convolution.DataConvolution.apply(*call), wanted)
    assert asked == [torch.float32, torch.bfloat16, torch.bfloat16]  # cuDNN alone would take the last
