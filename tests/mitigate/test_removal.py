"""Filling in doubtful pixels: the mask and the fills by hand, the numbers against `nescio.decompose`, the summary."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import nescio
from nescio import evaluate
from nescio.attribution.blur import blurred
from nescio.mitigate import inpaint, without
from nescio.posteriors import DeepEnsemble, Deterministic
from nescio.types import InputError


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 3 * 4, 3)).double()


@pytest.fixture(scope="module")
def ensemble():
    return DeepEnsemble([network(seed) for seed in range(3)])


def pictures(n=6, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 2, 5, 6, generator=draw, dtype=torch.float64)
    return x, torch.rand(n, 5, 6, generator=draw, dtype=torch.float64)


def test_before_and_after_are_what_the_distribution_says(ensemble):
    x, maps = pictures()
    found = without(ensemble, x, maps, share=0.2)
    for side, given_ in ((found.before, x), (found.after, found.x)):
        p = ensemble.predict(given_)
        parts = nescio.decompose(p)
        assert torch.equal(side.probabilities, p)
        assert torch.equal(side.classes, p.mean(0).argmax(1))
        for kind in ("total", "aleatoric", "epistemic"):
            assert torch.equal(getattr(side.uncertainty, kind), getattr(parts, kind))
    assert torch.equal(found.x, inpaint(x, found.mask))
    assert "6 of 30 pixels" in found.about and "DeepEnsemble" in found.about


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.02, 0.9), st.sampled_from(["inpaint", "blur", "mean", 0.25]))
def test_only_masked_pixels_change_and_as_many_as_asked_for(seed, share, by):
    x, maps = pictures(3, seed)
    found = without(Deterministic(network(0)), x, maps, share=share, by=by)
    assert found.mask.sum((1, 2)).tolist() == [math.floor(share * 30 + 0.5)] * 3
    assert not ((found.x != x).any(1) & ~found.mask).any()
    for one, inside in zip(maps, found.mask, strict=True):
        assert one[inside].min() >= one[~inside].max()


def test_an_empty_mask_changes_nothing(ensemble):
    x, _ = pictures()
    for by in ("inpaint", "blur", "mean", 3.0):
        found = without(ensemble, x, torch.zeros(6, 5, 6, dtype=torch.bool), by=by)
        assert torch.equal(found.x, x)
        assert torch.equal(found.before.probabilities, found.after.probabilities)
        summary = found.improved([0] * 6)
        assert (summary.less, summary.reduction, summary.flipped, summary.repaired, summary.broken) == (0, 0, 0, 0, 0)
        assert summary.nll_before == summary.nll_after


def test_the_default_is_a_twentieth_of_the_pixels_and_equal_ones_go_row_by_row(ensemble):
    x, _ = pictures()
    found = without(ensemble, x, torch.ones(6, 5, 6))
    assert found.mask.sum((1, 2)).tolist() == [2] * 6 and bool(found.mask[:, 0, :2].all())


def test_a_threshold_counts_from_the_lowest_to_the_highest(ensemble):
    x, _ = pictures(1)
    maps = torch.arange(30.0).view(1, 5, 6) + 100
    assert without(ensemble, x, maps, threshold=0.9).mask.flatten().nonzero().flatten().tolist() == [27, 28, 29]
    assert not without(ensemble, x, torch.ones(1, 5, 6), threshold=0.5).mask.any()


def test_the_fills(ensemble):
    x, maps = pictures()
    kept = x.clone()
    blur = without(ensemble, x, maps, share=0.3, by="blur", sigma=0.8)
    inside = blur.mask.unsqueeze(1)
    assert torch.allclose(blur.x, torch.where(inside, blurred(x, 0.8), x), atol=1e-12)
    mean = without(ensemble, x, maps, share=0.3, by="mean")
    for n, c in ((0, 0), (3, 1)):
        assert mean.x[n, c][mean.mask[n]].tolist() == pytest.approx([float(x[n, c][~mean.mask[n]].mean())] * 9)
    assert torch.equal(without(ensemble, x, maps, share=0.3, by=-1).x, x.masked_fill(inside, -1.0))
    assert torch.equal(x, kept)
    for by in ("inpaint", "blur", "mean", 0.0):
        assert not without(ensemble, x.clone().requires_grad_(), maps, by=by).x.requires_grad


def test_whole_numbers_stay_whole():
    x = torch.randint(0, 256, (2, 2, 5, 6), dtype=torch.uint8)
    model = nescio.Classifier(network(0), preprocess=lambda x: x.double() / 255)
    found = without(Deterministic(model), x, torch.rand(2, 5, 6), share=0.5, by="blur")
    expected = blurred(x.double(), 1.5).round().to(torch.uint8)
    assert found.x.dtype == torch.uint8 and torch.equal(found.x, torch.where(found.mask.unsqueeze(1), expected, x))


class Scripted:
    """A distribution that answers with the given probabilities: of all sets with ink first, then of the others."""

    def __init__(self, before, after):
        self.answers = [torch.tensor(before, dtype=torch.float64), torch.tensor(after, dtype=torch.float64)]

    def predict(self, x, *, progress=None):
        return self.answers.pop(0)


def test_the_summary_by_hand():
    before = [[[0.6, 0.4], [0.9, 0.1], [0.5, 0.5]], [[0.4, 0.6], [0.7, 0.3], [0.5, 0.5]]]
    after = [[[0.2, 0.8], [0.4, 0.6], [0.5, 0.5]], [[0.2, 0.8], [0.2, 0.8], [0.5, 0.5]]]
    found = without(Scripted(before, after), torch.rand(3, 1, 4, 5), torch.rand(3, 4, 5))
    assert found.flipped.tolist() == [True, True, False]
    summary = found.improved([1, 1, 0])
    assert (summary.inputs, summary.flipped, summary.repaired, summary.broken) == (3, 2, 2, 0)
    assert (summary.accuracy_before, summary.accuracy_after) == (1 / 3, 1.0)
    old, new = nescio.decompose(torch.tensor(before)).epistemic, nescio.decompose(torch.tensor(after)).epistemic
    assert summary.less == 2 / 3
    assert found.reduction().tolist() == pytest.approx([1.0, float(1 - new[1] / old[1]), 0.0], abs=1e-6)
    assert summary.before == pytest.approx(float(old.mean()), abs=1e-6)
    assert summary.nll_after == pytest.approx(-(math.log(0.8) + math.log(0.7) + math.log(0.5)) / 3)
    assert summary.nll_before == evaluate.nll(found.before.mean, [1, 1, 0])
    assert "2 predictions changed, 2 to the right class and 0 away from it; accuracy 0.3333 to 1.0000" in str(summary)
    assert (found.improved([0, 0, 0]).repaired, found.improved([0, 0, 0]).broken) == (0, 2)
    plain = found.improved(of="total")
    assert plain.of == "total" and plain.accuracy_before is None and "accuracy" not in str(plain)


def test_a_single_network_and_the_model_left_as_found():
    model, (x, maps) = network(0).train(), pictures()
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = without(model, x, maps)
    again = without(model, x, maps)
    assert "inserted dropout" in found.about and bool((found.before.uncertainty.epistemic > 0).all())
    assert torch.equal(found.after.probabilities, again.after.probabilities)
    assert model.training and torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_maps_from_explain_fit_in(ensemble):
    x, _ = pictures()
    maps = nescio.explain(ensemble, x)
    found = without(ensemble, x, maps, share=0.1)
    assert torch.allclose(found.before.uncertainty.epistemic, maps.uncertainty, rtol=1e-9)
    assert torch.equal(found.mask, without(ensemble, x, np.asarray(maps.maps), share=0.1).mask)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"share": 0.001}, "at least one of 30 pixels, got 0.001"),
        ({"share": 1.5}, "at most 1"),
        ({"share": 0.5, "threshold": 0.5}, "got both"),
        ({"threshold": 0.0}, "above 0 and at most 1"),
        ({"by": "median"}, "'inpaint', 'blur', 'mean' or a number, got 'median'"),
        ({"by": math.inf}, "a number, got inf"),
        ({"by": None}, "a number, got None"),
        ({"by": "blur", "sigma": 0}, "sigma to be a finite number above 0"),
        ({"share": 1.0}, "covers a whole picture"),
        ({"share": 1.0, "by": "mean"}, "a mask of a whole picture"),
        ({"maps": torch.rand(6, 5, 5)}, "shape \\[6, 5, 6\\], got \\[6, 5, 5\\]"),
        ({"maps": torch.ones(6, 5, 6, dtype=torch.bool), "share": 0.1}, "with a mask of booleans"),
        ({"maps": torch.ones(5, 5, 6, dtype=torch.bool)}, "booleans of shape \\[6, 5, 6\\]"),
        ({"x": torch.full((6, 2, 5, 6), math.nan)}, "expected finite pictures"),
        ({"x": torch.rand(6, 5, 6)}, "a tensor \\[N, C, H, W\\]"),
        ({"x": {"x": torch.rand(6, 2, 5, 6)}}, "a tensor \\[N, C, H, W\\]"),
    ],
)
def test_mistakes_are_named(ensemble, more, words):
    x, maps = pictures()
    x, maps = more.pop("x", x), more.pop("maps", maps)
    with pytest.raises(InputError, match=words):
        without(ensemble, x, maps, **more)


def test_a_kind_that_is_none_is_named(ensemble):
    x, maps = pictures()
    with pytest.raises(InputError, match="one of 'epistemic', 'aleatoric', 'total', got 'both'"):
        without(ensemble, x, maps).reduction("both")


def test_a_threshold_is_counted_from_the_lowest_of_a_map_with_signs(ensemble):
    x, _ = pictures()
    maps = torch.linspace(-1, 1, 30, dtype=torch.float64).view(5, 6).expand(6, 5, 6)
    for given_ in (maps, maps - 7):
        found = without(ensemble, x, given_, threshold=0.4).mask
        assert torch.equal(found, (maps + 1) / 2 >= 0.4)
    flat = torch.full((6, 5, 6), -2.0, dtype=torch.float64)
    assert not without(ensemble, x, flat, threshold=0.4).mask.any()


def test_a_number_of_numpy_to_put_there(ensemble):
    x, maps = pictures()
    for number in (np.float32(0.5), np.int64(1)):
        assert torch.equal(without(ensemble, x, maps, by=number).x, without(ensemble, x, maps, by=float(number)).x)
    with pytest.raises(InputError, match="real numbers"):
        without(ensemble, x > 0.5, maps)
