"""Small networks of torchvision's kinds on a GPU, where kernels of ours do most of the work, beside the slow loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import trace
from nescio.trace.probe import passes
from nescio.types import ModelError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
Built = tuple[nn.Module, Tensor]


def swin() -> Built:
    from torchvision.models.swin_transformer import SwinTransformer

    model = SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=5, stochastic_depth_prob=0.0)
    return model, torch.randn(6, 3, 64, 64)


def maxvit() -> Built:
    from torchvision.models import MaxVit

    model = MaxVit((64, 64), 16, 2, [16, 32], [1, 2], 8, 0.0, num_classes=5)
    return model, torch.randn(6, 3, 64, 64)


def efficientnet() -> Built:
    from torchvision.models import EfficientNet
    from torchvision.models.efficientnet import MBConvConfig

    kind = partial(MBConvConfig, width_mult=0.5, depth_mult=0.5)
    stages = [kind(1, 3, 1, 32, 16, 1), kind(6, 5, 2, 16, 24, 2), kind(6, 3, 1, 24, 40, 2)]
    return EfficientNet(stages, 0.0, 0.0, 5, last_channel=64), torch.randn(6, 3, 64, 64)


def resnet() -> Built:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5), torch.randn(6, 3, 64, 64)


@pytest.mark.parametrize("make", [swin, maxvit, efficientnet, resnet])
def test_norms_are_those_of_the_slow_loop(make: Callable[[], Built], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision")
    torch.manual_seed(0)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model, x = make()
    model = model.double().eval()
    wanted = trace.reference.class_gradients(model, x.double(), layers="tensor").norms
    model = model.float().cuda()
    for _ in range(4):  # as it is, recorded, and replayed
        found = trace.class_gradients(model, x.cuda(), layers="tensor")
        error = (found.norms - wanted).abs() / (wanted + 1e-3 * wanted.amax((1, 2), keepdim=True))
        assert float(error.max()) < 1e-3
    assert all(set(plan.fast) == set(found.layers) for plan in passes._PLANS[model].values() if plan.fast)


@pytest.mark.parametrize("make", [swin, efficientnet])
def test_scores_of_one_call_are_those_of_calls_of_their_own(make: Callable[[], Built]) -> None:
    pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model, x = make()
    model = model.eval().cuda()
    names: list[Any] = ["regrad", "evengrad", "entropy", "energy", "gen"]
    for _ in range(4):
        together = nescio.score(model, x.cuda(), names, progress=False)
        for name in names:
            own = nescio.score(model, x.cuda(), name, progress=False)
            torch.testing.assert_close(together[name], own, rtol=1e-3, atol=1e-6)
    with torch.no_grad():
        next(reversed(list(model.parameters()))).fill_(torch.inf)
    with pytest.raises(ModelError, match="finite"):
        nescio.score(model, x.cuda(), names, progress=False)
