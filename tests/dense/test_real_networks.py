"""torchvision's segmentation networks, and the U-Net of the study: maps, gradients, whole inputs, regions."""

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.dense import RegionGuard
from nescio.types import ModelError
from nescio_papers.dense.network import UNet
from tests.dense.test_gradient_maps import oracle
from tests.dense.test_whole_network import oracle as oracle_of_inputs

segmentation = pytest.importorskip("torchvision").models.segmentation

NAMES = {
    "fcn_resnet50": ["classifier.4"],
    "deeplabv3_mobilenet_v3_large": ["classifier.4"],
    "lraspp_mobilenet_v3_large": ["classifier.low_classifier", "classifier.high_classifier"],
    "unet": ["head"],
}
CLASSES = 3
pytestmark = pytest.mark.filterwarnings("ignore:the reference has .* different inputs")


class Out(nn.Module):
    """A network's tensor of logits, where it gives a mapping."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        out = self.network(x)
        return out if isinstance(out, Tensor) else out["out"]


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "unet":
        network: nn.Module = UNet(CLASSES, width=4)
    else:
        network = getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=CLASSES)
    for module in network.modules():  # of random weights the answer hardly depends on the place: as if trained
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.8, 1.2)
            nn.init.normal_(module.bias, 0.0, 0.2)
    return network.double().eval()


@pytest.fixture(scope="module", params=list(NAMES))
def named(request):
    return request.param, build(request.param)


def pictures(count: int, high: int = 64, wide: int = 48, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, high, wide, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_forward_scores_are_those_of_each_pixel(named):
    network, x = named[1], pictures(2)
    with torch.no_grad():
        z = Out(network)(x).movedim(1, -1)
    p = z.softmax(-1)
    found = nescio.score(network, x, ["entropy", "energy", "max_logit", "max_probability", "gen"])
    wanted = {
        "entropy": -(p * p.log()).sum(-1),
        "energy": -z.logsumexp(-1),
        "max_logit": -z.amax(-1),
        "max_probability": -p.amax(-1),
        "gen": ((p * (1 - p)) ** 0.1).sum(-1),
    }
    for name, right in wanted.items():
        assert found[name].shape == (2, 64, 48)
        moved = found[name] - right  # max_probability is 1 − p
        torch.testing.assert_close(moved, moved.mean().expand_as(moved), rtol=0, atol=1e-10)
    assert float(p.std((0, 1, 2)).max()) > 1e-6


def test_gradient_maps_are_those_of_autograd(named):
    name, network = named
    x = pictures(2)
    layers = [network.get_submodule(one) for one in NAMES[name]]
    places = [(0, 0, 0), (1, 17, 30), (1, 63, 47)]

    def logits(out: object) -> Tensor:
        return out if isinstance(out, Tensor) else out["out"]

    tables = {rows: oracle(network, layers, x, places, rows=rows, logits=logits) for rows in ("classes", "uniform")}
    for method in ("regrad", "evengrad", "ungrad", "gradnorm"):
        table = tables["uniform" if method == "gradnorm" else "classes"]
        own = nescio.scores.get(method, samples=0)
        found = nescio.score(network, x, own)
        torch.testing.assert_close(torch.stack([found[p] for p in places]), own(table), rtol=1e-8, atol=1e-12)


def test_the_whole_network_is_that_of_autograd(named):
    network, x = named[1], pictures(1, 32, 32)
    where = torch.zeros(1, 32, 32, dtype=torch.bool)
    where[:, 5:20, 3:30] = True
    table = oracle_of_inputs(Out(network), x, where)
    found = nescio.dense.whole_network(network, x, "exgrad", where=where)
    torch.testing.assert_close(found, nescio.scores.ExGrad()(table), rtol=1e-7, atol=0)


def test_the_guard_of_regions_finds_a_patch(named):
    if named[0] == "fcn_resnet50":
        pytest.skip("slow, and its head and its features are those of DeepLabV3")
    network = Out(named[1]).float() if named[0] == "unet" else named[1]
    dtype = next(network.parameters()).dtype
    known = 0.2 * pictures(44, 64, 64, 1).to(dtype)
    guard = RegionGuard(network).fit(known[:40])
    strange = known[40:].clone()
    checkered = (torch.arange(24)[:, None] + torch.arange(24)) // 4 % 2 * 2.0
    strange[:2, :, 40:, 40:] = checkered.to(dtype)
    verdict = guard.check(strange)
    height, width = verdict.score.shape[1:]
    inside = verdict.score[:2, 3 * height // 4 :, 3 * width // 4 :].mean()
    outside = verdict.score[:2, : height // 2, : width // 2].mean()
    assert inside > 1.3 * outside
    clean = guard.check(known[40:42]).score
    assert verdict.score[:2, 3 * height // 4 :, 3 * width // 4 :].mean() > 1.3 * clean.mean()


@pytest.mark.parametrize(
    "name", ["fcos_resnet50_fpn", "keypointrcnn_resnet50_fpn", "ssdlite320_mobilenet_v3_large", "maskrcnn_resnet50_fpn"]
)
def test_networks_for_objects_are_refused_in_words(name):
    torch.manual_seed(0)
    detection = pytest.importorskip("torchvision").models.detection
    network = getattr(detection, name)(weights=None, weights_backbone=None).eval()
    x = torch.rand(1, 3, 64, 64)
    for ask in (
        lambda: nescio.score(network, x, "entropy"),
        lambda: nescio.score(network, x, "exgrad", output="dense"),
        lambda: RegionGuard(network).fit(torch.rand(20, 3, 64, 64)),
        lambda: nescio.dense.whole_network(network, x, "exgrad"),
    ):
        with pytest.raises(ModelError) as refused:
            ask()
        words = str(refused.value)
        assert "logits [N, C], or of every position, got boxes or masks of objects ('boxes')" in words
        assert "cut the objects out" in words and "semantic segmentation" in words
