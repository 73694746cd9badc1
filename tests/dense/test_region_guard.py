"""Which part of a picture is foreign: found where it is, with the promise that it makes."""

import pytest
import torch
from torch import nn

import nescio
from nescio.dense import RegionGuard
from nescio.dense.region_guard import Averaged
from nescio.types import InputError, ModelError
from tests.dense.networks import Tagger, UNet, Upsampled

pytestmark = pytest.mark.filterwarnings("ignore:the reference has .* different inputs")


def pictures(n, seed, size=16):
    """Smooth pictures, each with a level and a slope of its own."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, 3, 3, generator=generator) * torch.rand(n, 1, 1, 1, generator=generator)
    return nn.functional.interpolate(coarse, (size, size), mode="bilinear", align_corners=True)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return UNet(width=8).eval()


@pytest.fixture(scope="module")
def guard(network):
    with pytest.warns(UserWarning, match="below 300 a guard finds fewer"):
        return RegionGuard(network).fit(pictures(200, 0))


def test_a_foreign_patch_is_found_where_it_is(guard):
    x = pictures(6, 1)
    strange = x.clone()
    checkered = (torch.arange(6)[:, None] + torch.arange(6)) % 2 * 4.0 - 1.0
    strange[:3, :, 10:, :6] = checkered
    verdict = guard.check(strange)
    flags = verdict.foreign(0.05)
    assert verdict.unknown(0.05).tolist()[:3] == [True] * 3
    patch = torch.zeros(16, 16, dtype=torch.bool)
    patch[10:, :6] = True
    for i in range(3):
        assert flags[i][patch].double().mean() > 0.8
        assert flags[i][:6].double().mean() < 0.3  # 5 % are expected; the memory is drawn by the pictures' bytes
        assert "does not know what is in the lower left part" in verdict.words()[i]
    assert verdict.map((32, 32)).shape == verdict.foreign(size=(32, 32)).shape == (6, 32, 32)


def test_words_of_a_known_picture_are_those_of_the_guard(guard):
    verdict = guard.check(pictures(40, 2))
    known = (~verdict.unknown(0.05)).nonzero().flatten().tolist()
    assert len(known) > 20
    assert all(verdict.words()[i] == verdict.whole.words()[i] for i in known)


def test_the_promise_holds_in_simulation(network):
    flagged, unknown = [], []
    for seed in range(12):
        guard = RegionGuard(network, memory=512).fit(pictures(60, 100 + seed, 8), seed=seed)
        verdict = guard.check(pictures(60, 500 + seed, 8))
        flagged += verdict.foreign(0.1).double().flatten(1).mean(1).tolist()
        unknown.append(verdict.unknown(0.1).double().mean().item())
    flagged, unknown = torch.tensor(flagged), torch.tensor(unknown)
    assert flagged.mean() <= 0.1 + 3 * flagged.std() / len(flagged) ** 0.5
    assert unknown.mean() <= 0.1 + 3 * unknown.std() / len(unknown) ** 0.5
    assert flagged.mean() > 0.02 and unknown.mean() > 0.02


def test_p_values_by_hand(guard):
    """Against the formula with loops."""
    x = pictures(2, 3)
    verdict = guard.check(x)
    state = guard._state
    n = len(state["maxima"])
    regions = 16 * 16
    assert len(state["values"]) == n * regions
    for place in ((0, 0, 0), (1, 7, 9)):
        s = float(verdict.score[place])
        wanted = (1 + float((state["values"] >= s - 1e-9).double().sum()) / regions) / (n + 1)
        assert float(verdict.p_value[place]) == pytest.approx(wanted, rel=1e-9)
    top = verdict.score.flatten(1).amax(1)
    ranks = [(1 + int((state["maxima"] >= s - 1e-9).sum())) / (n + 1) for s in top]
    torch.testing.assert_close(verdict.largest, torch.tensor(ranks, dtype=torch.float64))


def test_order_and_batches_change_nothing():
    torch.manual_seed(0)
    network = UNet(width=8).double().eval()  # in float32 the round-off of a batch moves a region by a rank
    x, new = pictures(40, 0).double(), pictures(3, 4).double()
    guard, other = RegionGuard(network).fit(x), RegionGuard(network).fit([x[30:], x[:30].flip(0)])
    torch.testing.assert_close(other.check(new).p_value, guard.check(new).p_value, rtol=1e-9, atol=0)
    parts = guard.check([new[:1], new[1:]])
    torch.testing.assert_close(parts.p_value, guard.check(new).p_value, rtol=1e-9, atol=0)
    assert len(parts) == len(parts.whole) == 3


def test_another_layer_and_a_coarser_grid(network):
    x = pictures(40, 5)
    assert RegionGuard(network, grid=4).fit(x).check(x[:2]).score.shape == (2, 4, 4)
    assert RegionGuard(network, layer="deep").fit(x).check(x[:2]).score.shape == (2, 8, 8)
    torch.manual_seed(0)
    assert RegionGuard(Upsampled()).fit(x).check(x[:2]).score.shape == (2, 4, 4)


def test_the_mean_of_the_logits_stands_for_the_picture(network):
    x = pictures(3, 6)
    classifier = nescio.Classifier(network, output="dense", class_dim=1)
    with torch.no_grad():
        wanted = network(x).mean((2, 3))
        torch.testing.assert_close(Averaged(classifier).logits(x), wanted)


def test_what_cannot_be_done_says_so(network, guard):
    with pytest.raises(InputError, match="at least 20 different pictures, got 6"):
        RegionGuard(network).fit(pictures(6, 0))
    with pytest.raises(InputError, match="read several times, got an iterator"):
        RegionGuard(network).fit(iter([pictures(40, 0)]))
    with pytest.raises(InputError, match="a guard that is fitted"):
        RegionGuard(network).check(pictures(2, 0))
    with pytest.raises(InputError, match=r"a level of at least 0\.0\d+, which \d+ pictures can hold, got 0\.001"):
        guard.check(pictures(2, 0)).foreign(0.001)
    tagger = nescio.Classifier(Tagger(), output="dense", class_dim=-1)
    with pytest.raises(ModelError, match="features of regions"):
        RegionGuard(tagger).fit(torch.arange(200).reshape(40, 5) % 20)


def test_the_model_is_left_as_it_was(network):
    torch.manual_seed(0)
    trained = UNet().train()
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    RegionGuard(trained).fit(pictures(40, 0)).check(pictures(2, 1))
    assert trained.training and all(torch.equal(v, before[k]) for k, v in trained.state_dict().items())
    assert all(not module._forward_hooks for module in trained.modules())
