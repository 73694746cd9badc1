"""Judging maps: the blurring test by hand and against a plain loop, the anomaly test against scikit-learn."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from nescio.attribution.blur import blurred as attribution_blur
from nescio.evaluate.blurring import _blurred, _pixels, blurring
from nescio.evaluate.map_checks import anomaly, randomised
from nescio.types import InputError

DOT = torch.tensor([[[[0.0, 9.0, 0.0, 0.0]]]], dtype=torch.float64)


def brightness(x):
    return x.abs().sum((1, 2, 3))


def crooked(x):
    """An uncertainty that goes up as well as down when pixels are blurred."""
    weights = torch.linspace(-2, 3, x[0].numel(), dtype=x.dtype).sin()
    return 0.1 + (x.flatten(1) * weights).sum(1).square()


def pictures(n=7, channels=2, high=5, wide=6, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, channels, high, wide, generator=draw, dtype=torch.float64)
    return x, torch.randn(n, high, wide, generator=draw, dtype=torch.float64)


def by_a_plain_loop(uncertainty, x, maps, counts, sigma):
    """(URR, MURR, AUC) as they are defined, a pixel and an image at a time."""
    _, channels, high, wide = x.shape
    rates = []
    for image, attribution in zip(x, maps, strict=True):
        pixels = sorted(itertools.product(range(high), range(wide)), key=lambda at: (-float(attribution[at]), at))
        soft = torch.empty_like(image)
        for i, j in itertools.product(range(high), range(wide)):
            weights = torch.tensor(
                [[np.exp(-((i - k) ** 2 + (j - m) ** 2) / (2 * sigma**2)) for m in range(wide)] for k in range(high)],
                dtype=image.dtype,
            )
            for c in range(channels):
                soft[c, i, j] = (weights * image[c]).sum() / weights.sum()
        now, reduced = image.clone(), []
        for t, (i, j) in enumerate(pixels, 1):
            now[:, i, j] = soft[:, i, j]
            if t in counts:
                reduced.append(1 - float(uncertainty(now[None])[0]) / float(uncertainty(image[None])[0]))
        rates.append([max(reduced[: t + 1]) for t in range(len(reduced))])
    curve = [float(np.median([rate[t] for rate in rates])) for t in range(len(counts))]
    return curve, max(curve), sum(1 - value for value in curve) / len(curve)


def test_a_blurred_row_worked_by_hand():
    # with 2σ² = 1/ln 2 a neighbour counts ½ and the next but one 1/16: the blurred dot is 9 times
    # ½/(1 + ½ + 1/16 + 1/512), 1/(½ + 1 + ½ + 1/16), ½/(1/16 + ½ + 1 + ½), (1/16)/(1/512 + 1/16 + ½ + 1)
    sigma = (2 * np.log(2)) ** -0.5
    a, b, c, d = 9 * 256 / 801, 9 * 16 / 33, 9 * 8 / 33, 9 * 32 / 801
    result = blurring(brightness, DOT, [[[1.0, 3.0, 0.0, 2.0]]], share=1.0, sigma=sigma)
    # the dot goes first, b is left of 9; then the others only add, so the maximum stays
    np.testing.assert_allclose(result.curve, [1 - b / 9] * 4, atol=1e-12)
    worst_first = blurring(brightness, DOT, [[[3.0, 0.0, 2.0, 1.0]]], share=1.0, sigma=sigma)
    expected = [-a / 9, -a / 9, -a / 9, 1 - (a + b + c + d) / 9]  # first it grows: the best so far is the first
    np.testing.assert_allclose(worst_first.curve, np.maximum.accumulate(expected), atol=1e-12)
    assert worst_first.murr == pytest.approx(max(expected), abs=1e-12)
    assert worst_first.auc == pytest.approx(np.mean([1 - v for v in np.maximum.accumulate(expected)]), abs=1e-12)
    assert (worst_first.pixels, worst_first.of, worst_first.counts.tolist()) == (4, 4, [1, 2, 3, 4])


def test_the_median_is_taken_over_the_images():
    sigma = (2 * np.log(2)) ** -0.5
    x = torch.cat([DOT, DOT, DOT])
    maps = [[[0.0, 1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]]]
    # after one pixel: 1 − b/9, −a/9, −d/9 with d < a, so the third is the median
    assert blurring(brightness, x, maps, share=0.25, sigma=sigma).murr == pytest.approx(-32 / 801, abs=1e-12)


@pytest.mark.parametrize(("share", "steps"), [(0.3, None), (1.0, None), (0.3, 4), (0.3, 1), (0.3, 50)])
def test_equals_a_plain_loop(share, steps):
    x, maps = pictures()
    pixels = round(share * 30)
    counts = range(1, pixels + 1) if steps in (None, 50) else {4: [3, 5, 7, 9], 1: [9]}[steps]
    curve, murr, auc = by_a_plain_loop(crooked, x, maps, counts, 0.8)
    result = blurring(crooked, x, maps, share=share, sigma=0.8, steps=steps)
    assert result.counts.tolist() == list(counts)
    np.testing.assert_allclose(result.curve, curve, atol=1e-9)
    assert (result.murr, result.auc) == (pytest.approx(murr, abs=1e-9), pytest.approx(auc, abs=1e-9))
    if share < 1:
        assert min(curve) < max(curve) or steps == 1  # the case says something


def test_neither_batch_nor_order_of_the_images_matters():
    x, maps = pictures(9)
    seen = []

    def watched(part):
        seen.append(len(part))
        return crooked(part)

    whole = blurring(watched, x, maps, share=0.4, batch=10**6)
    assert seen == [9, 9 * 12]
    for batch in (1, 5, 12, 31):
        seen.clear()
        np.testing.assert_allclose(blurring(watched, x, maps, share=0.4, batch=batch).curve, whole.curve, atol=1e-12)
        assert max(seen) == batch if batch < 9 else max(seen) <= batch
        assert sum(seen) == 9 * 13  # nothing twice
    mixed = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    np.testing.assert_allclose(blurring(crooked, x[mixed], maps[mixed], share=0.4).curve, whole.curve, atol=1e-12)


def test_equal_pixels_go_from_the_top_left():
    x, maps = pictures()
    position = -torch.arange(30.0).reshape(5, 6).expand(7, -1, -1)
    flat = blurring(crooked, x, torch.zeros_like(maps), share=0.5)
    np.testing.assert_array_equal(flat.curve, blurring(crooked, x, position, share=0.5).curve)
    assert not np.allclose(flat.curve, blurring(crooked, x, -position, share=0.5).curve)


@pytest.mark.parametrize(("share", "side", "pixels"), [(0.02, 28, 16), (0.05, 28, 39), (0.02, 32, 20), (0.05, 32, 51)])
def test_shares_are_rounded_as_in_the_paper(share, side, pixels):
    assert _pixels(share, side * side) == pixels


def test_a_smaller_share_is_the_beginning_of_the_curve():
    x, maps = pictures(4, 1, 28, 28)
    large, small = (blurring(crooked, x, maps, share=share) for share in (0.05, 0.02))
    found = large.at(0.02)
    np.testing.assert_array_equal(found.curve, small.curve)
    assert (found.murr, found.auc, found.pixels) == (small.murr, small.auc, 16)
    with pytest.raises(InputError, match=r"up to 39\) but 0.1 of 784 is 78"):
        large.at(0.1)


@pytest.mark.parametrize("sigma", [0.5, 1.5, 4.0])
def test_the_blur_is_that_of_scipy_and_of_blur_integrated_gradients(sigma):
    ndimage = pytest.importorskip("scipy.ndimage")
    x, _ = pictures(2, 3, 9, 12)
    over = (0, 0, sigma, sigma)
    expected = ndimage.gaussian_filter(x.numpy(), over, mode="constant", truncate=40)
    expected /= ndimage.gaussian_filter(np.ones(x.shape), over, mode="constant", truncate=40)
    np.testing.assert_allclose(_blurred(x, sigma), expected, atol=1e-12)
    torch.testing.assert_close(_blurred(x, sigma), attribution_blur(x, sigma), atol=1e-14, rtol=0)


def test_images_are_handed_on_in_their_own_type_and_left_alone():
    x, maps = pictures()
    half, seen = x.half().requires_grad_(), set()
    before = half.detach().clone()

    def watched(part):
        seen.add((part.dtype, part.requires_grad))
        return 1 + part.float().square().sum((1, 2, 3))

    found = blurring(watched, half, maps.numpy(), share=0.1)
    assert seen == {(torch.float16, False)} and torch.equal(half, before)
    exact = blurring(watched, x, maps, share=0.1)
    np.testing.assert_allclose(found.curve, exact.curve, atol=2e-3)


X, MAPS = pictures(3)
NAN = MAPS.clone()
NAN[1, 0, 0] = torch.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uncertainty": lambda x: torch.zeros(len(x))}, r"above 0 .* but 3 of 3 are 0 \(image 0, 1, 2\)"),
        ({"uncertainty": lambda x: -brightness(x)}, "at least 0 but got values from -"),
        ({"uncertainty": lambda x: brightness(x) / 0}, "finite numbers .* to inf"),
        ({"uncertainty": lambda x: brightness(x) * torch.nan}, "uncertainty: .* 3 of 3 scores are NaN"),
        ({"uncertainty": lambda x: x.sum((2, 3))}, r"uncertainty: .* shape \[N\], but got shape \[3, 2\]"),
        ({"uncertainty": lambda x: [1.0]}, "one number for each of 3 images but got 1"),
        ({"maps": NAN}, r"maps: .* 1 of 3 maps hold NaN or infinity \(image 1\)"),
        ({"maps": MAPS[:2]}, r"shape \[3, 5, 6\], but got shape \[2, 5, 6\]"),
        ({"maps": MAPS.mT}, r"shape \[3, 5, 6\], but got shape \[3, 6, 5\]"),
        ({"maps": X}, r"shape \[N, H, W\].* add up the channels"),
        ({"x": X.long()}, r"x: .* floating-point .* but got torch.int64 of shape \[3, 2, 5, 6\]"),
        ({"x": X[0]}, r"but got torch.float64 of shape \[2, 5, 6\]"),
        ({"x": X[:0]}, r"of shape \[0, 2, 5, 6\]"),
        ({"x": X.numpy()}, "but got ndarray"),
        ({"x": X * torch.inf}, "x: expected finite numbers"),
        ({"share": 5}, "share: .* at most 1, but got 5"),
        ({"share": 0.01}, "0.01 of 30 pixels is less than one"),
        ({"share": float("nan")}, "share: .* got nan"),
        ({"sigma": 0.0}, "sigma: .* above 0, but got 0.0"),
        ({"steps": 0}, "expected steps to be a whole number of at least 1"),
        ({"batch": 0}, "expected batch to be a whole number of at least 1"),
    ],
)
def test_the_blurring_test_refuses(change, message):
    with pytest.raises(InputError, match=message):
        blurring(**{"uncertainty": brightness, "x": X, "maps": MAPS, **change})


def test_an_anomaly_worked_by_hand():
    mask = [[[1, 1, 0], [0, 0, 0]], [[1, 1, 0], [0, 0, 0]]]
    maps = [[[9.0, 8.0, 1.0], [2.0, 3.0, 4.0]], [[5.0, 1.0, 5.0], [0.0, 0.0, 7.0]]]
    result = anomaly(maps, mask)
    # the second: 5 beats 0, 0 and draws with 5; 1 beats 0, 0: 4.5 of 8. Of its two highest one is the 7, and the other
    # one of two equal pixels, one of which is in the mask: half a pixel of 2 + 2 − ½
    np.testing.assert_allclose(result.image_auroc, [1.0, 4.5 / 8], atol=1e-12)
    np.testing.assert_allclose(result.image_iou, [1.0, 0.5 / 3.5], atol=1e-12)
    assert (result.auroc, result.iou) == (12.5 / 16, pytest.approx(4 / 7, abs=1e-12))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.booleans())
def test_anomaly_equals_scikit_learn_and_sets_of_pixels(seed, ties):
    draw = np.random.default_rng(seed)
    maps = draw.integers(0, 4, (3, 4, 5)).astype(float) if ties else draw.normal(size=(3, 4, 5))
    mask = np.zeros((3, 20), dtype=bool)
    for row in mask:
        row[draw.permutation(20)[: draw.integers(1, 20)]] = True
    mask = mask.reshape(maps.shape)
    result = anomaly(torch.tensor(maps), torch.tensor(mask))
    aurocs = [roc_auc_score(inside.ravel(), one.ravel()) for one, inside in zip(maps, mask, strict=True)]
    np.testing.assert_allclose(result.image_auroc, aurocs, atol=1e-12)
    assert result.auroc == pytest.approx(np.mean(aurocs), abs=1e-12)
    if not ties:
        ious = []
        for one, inside in zip(maps, mask, strict=True):
            highest, patch = set(np.argsort(-one.ravel())[: inside.sum()]), set(np.flatnonzero(inside))
            ious.append(len(highest & patch) / len(highest | patch))
        np.testing.assert_allclose(result.image_iou, ious, atol=1e-12)
        assert result.iou == pytest.approx(np.mean(ious), abs=1e-12)
    mixed = draw.permutation(3)
    again = anomaly(maps[mixed], mask[mixed])
    assert (again.auroc, again.iou) == (result.auroc, result.iou)
    turned = anomaly(maps[:, ::-1, ::-1], mask[:, ::-1, ::-1])  # equal pixels have no order
    assert (turned.auroc, turned.iou) == (result.auroc, result.iou)


PATCH = np.zeros((3, 5, 6), dtype=bool)
PATCH[:, :2, :2] = True


@pytest.mark.parametrize(
    ("maps", "mask", "message"),
    [
        (NAN, PATCH, "maps: .* 1 of 3 maps hold NaN"),
        (MAPS[0], PATCH, r"shape \[N, H, W\].* but got shape \[5, 6\]"),
        (MAPS[:0], PATCH[:0], r"at least one image, but got shape \[0, 5, 6\]"),
        (MAPS, PATCH[0], r"mask: .* shape \[3, 5, 6\], but got shape \[5, 6\]"),
        (MAPS, PATCH * 255, "mask: expected booleans"),
        (MAPS, PATCH * np.arange(3).clip(max=1)[:, None, None], r"1 of 3 masks are empty .* \(image 0\)"),
        (MAPS, PATCH | True, r"cover the whole image \(image 0, 1, 2\)"),
        ("maps", PATCH, "maps: expected maps, one number for each pixel"),
    ],
)
def test_anomaly_refuses(maps, mask, message):
    with pytest.raises(InputError, match=message):
        anomaly(maps, mask)


def test_maps_before_and_after_the_weights_are_randomised():
    stats = pytest.importorskip("scipy.stats")
    before, after = pictures(40)[1], pictures(40, seed=1)[1].round()
    pairs = zip(before.flatten(1), after.flatten(1), strict=True)
    expected = np.mean([stats.spearmanr(one, other).statistic for one, other in pairs])
    assert randomised(before, after) == pytest.approx(expected, abs=1e-12)
    assert abs(expected) < 0.1
    assert randomised(before, before.exp()) == pytest.approx(1, abs=1e-12)
    assert randomised(before, -before) == pytest.approx(-1, abs=1e-12)
    # by hand: ranks 1 2 3 4 and 2 1 4 3 correlate by 1 − 6·4/(4·15) = 0.6; the second image by 1
    assert randomised([[[1.0, 2.0], [3.0, 4.0]]] * 2, [[[2.0, 1.0], [4.0, 3.0]], [[1.0, 2.0], [3.0, 4.0]]]) == (
        pytest.approx(0.8, abs=1e-12)
    )


def test_randomised_refuses():
    with pytest.raises(InputError, match=r"got shapes \[3, 5, 6\] and \[2, 5, 6\]"):
        randomised(MAPS, MAPS[:2])
    with pytest.raises(InputError, match=r"maps_after: .* 3 of 3 are constant \(image 0, 1, 2\)"):
        randomised(MAPS, 0 * MAPS)
    with pytest.raises(InputError, match=r"maps_before: .* NaN"):
        randomised(NAN, MAPS)
