"""Batch norm in eval mode, forward: by a kernel where there is one, for which a first look does not wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nescio.trace.backward.substitutes import batch_norm
from nescio.trace.runtime import cudnn


def test_a_first_look_does_not_wait_for_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.dtype] = []

    def channel_map(x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, eps: float) -> Tensor:
        asked.append(x.dtype)
        return F.batch_norm(x, mean, var, weight, bias, eps=eps)

    monkeypatch.setattr(batch_norm, "kernels", lambda *_: SimpleNamespace(channel_map=channel_map))
    for dtype in (torch.float32, torch.bfloat16):
        x, mean, weight = torch.randn(2, 4, 5, 5, dtype=dtype), torch.randn(4).to(dtype), torch.randn(4).to(dtype)
        var = torch.rand(4).to(dtype) + 0.5
        wanted = F.batch_norm(x, mean, var, weight)
        call = batch_norm.arguments(x, mean, var, weight, None)
        assert call is not None
        torch.testing.assert_close(batch_norm.AffineBatchNorm.apply(*call), wanted, rtol=2e-2, atol=2e-2)
        with cudnn.looking():
            torch.testing.assert_close(batch_norm.AffineBatchNorm.apply(*call), wanted, rtol=2e-2, atol=2e-2)
    assert asked == [torch.float32, torch.bfloat16, torch.bfloat16]  # as convolutions by channel do
