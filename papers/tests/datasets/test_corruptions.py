import colorsys
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from torch import Tensor

from nescio.types import InputError
from nescio_papers.datasets import CORRUPTIONS, corrupt, distortions
from nescio_papers.datasets.corruptions import CHUNK, TABLE

KINDS = list(CORRUPTIONS)


def pictures(n: int = 4, channels: int = 3, height: int = 32, width: int | None = None) -> Tensor:
    """Smooth shapes with edges, like small photographs."""
    random = torch.Generator().manual_seed(1)
    coarse = torch.rand(n, channels, 6, 6, generator=random)
    return torch.nn.functional.interpolate(coarse, (height, width or height), mode="bicubic").clamp(0, 1)


def fresh(n: int, seed: int = 0) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed + number) for number in range(n)]


@pytest.mark.parametrize("kind", KINDS)
class TestEvery:
    def test_a_picture_alone_or_among_others_is_the_same(self, kind: str) -> None:
        x = pictures(5)
        all_at_once = corrupt(x, kind, 3)
        alone = torch.cat([corrupt(x[place : place + 1], kind, 3) for place in range(5)])
        assert torch.equal(all_at_once, alone)
        order = torch.tensor([3, 1, 4, 0, 2])
        assert torch.equal(corrupt(x[order], kind, 3), all_at_once[order])

    def test_severity_is_distance(self, kind: str) -> None:
        x = pictures(6)
        steps = [(corrupt(x, kind, severity) - x).square().mean().item() for severity in range(1, 6)]
        assert steps[0] > 0
        assert all(lower < higher for lower, higher in itertools.pairwise(steps)), steps

    def test_levels_are_monotone(self, kind: str) -> None:
        levels = np.array(TABLE[kind].levels, dtype=float).reshape(5, -1)
        for column in np.diff(levels, axis=0).T:
            assert (column >= 0).all() or (column <= 0).all()
        assert (np.diff(levels[:, 0]) != 0).all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_input_and_generator_are_left_alone(self, kind: str, dtype: torch.dtype) -> None:
        x = pictures(2).to(dtype)
        before, state = x.clone(), torch.get_rng_state()
        got = corrupt(x, kind, 5)
        assert torch.equal(x, before)
        assert torch.equal(state, torch.get_rng_state())
        assert got.dtype == dtype
        assert got.shape == x.shape
        assert got.data_ptr() != x.data_ptr()

    @settings(max_examples=8, deadline=None)
    @given(
        n=st.integers(1, 3),
        channels=st.sampled_from([1, 3]),
        height=st.integers(8, 40),
        width=st.integers(8, 40),
        severity=st.integers(1, 5),
        flat=st.sampled_from([None, 0.0, 1.0]),
    )
    def test_any_size_stays_a_picture(
        self, kind: str, n: int, channels: int, height: int, width: int, severity: int, flat: float | None
    ) -> None:
        x = pictures(n, 3 if kind == "saturate" else channels, height, width)
        if flat is not None:
            x = torch.full_like(x, flat)
        got = corrupt(x, kind, severity)
        assert got.shape == x.shape
        assert ((got >= 0) & (got <= 1)).all()  # no NaN either


RANDOM = ["gaussian_noise", "shot_noise", "impulse_noise", "motion_blur", "fog", "elastic", "rotation", "translation"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_counts_where_there_is_chance(kind: str) -> None:
    x = pictures(8)
    assert torch.equal(corrupt(x, kind, 2, seed=5), corrupt(x, kind, 2, seed=5))
    assert torch.equal(corrupt(x, kind, 2, seed=5), corrupt(x, kind, 2, seed=6)) == (kind not in RANDOM)


def test_chunks_change_nothing() -> None:
    x = pictures(CHUNK + 3, 1, 8)
    assert torch.equal(corrupt(x, "gaussian_noise")[-4:], corrupt(x[-4:], "gaussian_noise"))


def test_noise_differs_between_pictures() -> None:
    x = torch.full((2, 1, 8, 8), 0.5)
    x[1, 0, 0, 0] = 0.6
    noise = corrupt(x, "gaussian_noise") - x
    assert (noise[0] - noise[1]).abs().mean() > 0.01


def test_severities_share_their_noise() -> None:
    x = torch.full((1, 1, 8, 8), 0.5)
    weak, strong = (corrupt(x, "gaussian_noise", severity) - x for severity in (1, 2))
    assert torch.allclose(weak / 0.04, strong / 0.06, atol=1e-5)


class TestAgainstOthers:
    def test_gaussian_noise(self) -> None:
        x = torch.full((1, 3, 200, 200), 0.5)
        noise = distortions.gaussian_noise(x, 0.1, fresh(1)) - x
        assert noise.mean().abs() < 1e-3
        assert noise.std().item() == pytest.approx(0.1, rel=0.01)

    def test_shot_noise_has_the_variance_of_poisson(self) -> None:
        x = torch.full((1, 3, 200, 200), 0.4)
        got = distortions.shot_noise(x, 50, fresh(1))
        assert got.mean().item() == pytest.approx(0.4, rel=0.01)
        assert got.var().item() == pytest.approx(0.4 / 50, rel=0.02)
        assert ((got * 50 - (got * 50).round()).abs() < 1e-4).all()

    def test_impulse_noise(self) -> None:
        x = torch.full((1, 3, 200, 200), 0.4)
        got = distortions.impulse_noise(x, 0.07, fresh(1))
        assert (got == 0).float().mean().item() == pytest.approx(0.035, rel=0.05)
        assert (got == 1).float().mean().item() == pytest.approx(0.035, rel=0.05)
        assert (got[(got > 0) & (got < 1)] == x[0, 0, 0, 0]).all()

    @pytest.mark.parametrize("sigma", [0.4, 1.0])
    def test_gaussian_blur_is_that_of_scipy(self, sigma: float) -> None:
        x = pictures(2, 3, 16, 20).double()
        wanted = ndimage.gaussian_filter(x.numpy(), sigma, mode="mirror", radius=math.ceil(3 * sigma), axes=(2, 3))
        got = distortions.gaussian_blur(x, sigma, [])
        assert np.abs(got.numpy() - wanted).max() < 1e-7  # the weights are float32

    @pytest.mark.parametrize("radius", [0.7, 1.5, 2.0])
    def test_defocus_blur_is_that_of_scipy(self, radius: float) -> None:
        x = pictures(1, 1, 16).double()
        axis = np.arange(-3, 4)
        disc = np.clip(radius + 0.5 - np.hypot(axis[:, None], axis[None, :]), 0, 1)
        wanted = ndimage.correlate(x[0, 0].numpy(), disc / disc.sum(), mode="mirror")
        got = distortions.defocus_blur(x, radius, [])
        assert np.abs(got[0, 0].numpy() - wanted).max() < 1e-7

    def test_motion_blur_smears_a_point_one_way_along_a_line(self) -> None:
        x = torch.zeros(1, 1, 33, 33)
        x[0, 0, 16, 16] = 1
        got = distortions.motion_blur(x, 2.0, fresh(1))[0, 0].double()
        assert got.sum().item() == pytest.approx(1, abs=1e-5)
        axis = torch.arange(33.0).double() - 16
        east, south = (got.sum(0) * axis).sum().item(), (got.sum(1) * axis).sum().item()
        steps = torch.arange(0, 6, 0.5)
        weights = torch.exp(-steps.square() / 8)
        assert math.hypot(east, south) == pytest.approx(((steps * weights).sum() / weights.sum()).item(), abs=1e-4)
        assert east > 0
        assert abs(south) <= east  # within 45 degrees
        across = (axis[None, :] * south - axis[:, None] * east) / math.hypot(east, south)
        assert (got * across.square()).sum() < 0.5  # thin

    def test_contrast(self) -> None:
        x = torch.tensor([0.0, 1.0]).repeat(32).reshape(1, 1, 8, 8)
        got = distortions.contrast(x, 0.4, [])
        assert torch.allclose(got.unique(), torch.tensor([0.3, 0.7]))

    @pytest.mark.parametrize("kind", ["brightness", "saturate"])
    def test_colours_are_those_of_colorsys(self, kind: str) -> None:
        x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double()
        x[..., 0, 0] = 0  # black
        x[..., 0, 1] = 0.3  # grey
        level = {"brightness": 0.3, "saturate": 2.0}[kind]
        got = getattr(distortions, kind)(x, level, []).clamp(0, 1)
        for row in range(8):
            for column in range(8):
                hue, saturation, value = colorsys.rgb_to_hsv(*x[0, :, row, column].tolist())
                if kind == "brightness":
                    value = min(value + level, 1)
                else:
                    saturation = min(saturation * level, 1)
                wanted = colorsys.hsv_to_rgb(hue, saturation, value)
                assert got[0, :, row, column].tolist() == pytest.approx(wanted, abs=1e-9)

    def test_brightness_of_grey_is_a_sum(self) -> None:
        x = pictures(1, 1, 8)
        assert torch.allclose(distortions.brightness(x, 0.1, []), (x + 0.1).clamp(max=1), atol=1e-6)

    def test_pixelate_by_half_is_a_mean_of_four(self) -> None:
        x = pictures(2, 3, 16)
        blocks = torch.nn.functional.avg_pool2d(x, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
        assert torch.allclose(distortions.pixelate(x, 0.5, []), blocks, atol=1e-6)

    def test_pixelate_three_pixels_to_two(self) -> None:
        """Cells of 1.5 pixels: (a + b/2)/1.5 and (b/2 + c)/1.5; the middle pixel shows half of each."""
        third = 1 / 3
        wanted = [[2 * third, third, 0], [third, third, third], [0, third, 2 * third]]
        assert torch.allclose(distortions._areas(3, 2), torch.tensor(wanted).double(), atol=1e-7)

    def test_jpeg_is_that_of_pillow(self) -> None:
        import io

        from PIL import Image

        for channels in (1, 3):
            x = pictures(1, channels)
            packed = io.BytesIO()
            array = x[0].mul(255).round().byte().permute(1, 2, 0).numpy()
            Image.fromarray(array[..., 0] if channels == 1 else array).save(packed, "JPEG", quality=40)
            wanted = torch.from_numpy(np.array(Image.open(packed))).reshape(32, 32, channels).permute(2, 0, 1) / 255
            assert torch.equal(corrupt(x, "jpeg", 5)[0], wanted)

    def test_fog_of_white_is_plasma(self) -> None:
        """On a white picture (1 + s·plasma)/(1 + s) is left, and plasma fills [0, 1]."""
        plasma = distortions.fog(torch.ones(3, 1, 32, 32), (1.0, 2.0), fresh(3)) * 2 - 1
        assert plasma.amin(dim=(1, 2, 3)).abs().max() < 1e-6
        assert (plasma.amax(dim=(1, 2, 3)) - 1).abs().max() < 1e-6

    def test_plasma_is_smoother_the_faster_it_fades(self) -> None:
        def roughness(fade: float) -> float:
            field = distortions._plasma(torch.ones(8, 1, 64, 64), fade, fresh(8))
            return field.diff(dim=3).square().mean().item()

        assert roughness(3.0) < roughness(2.0) < roughness(1.5)

    def test_plasma_by_hand(self) -> None:
        """With a wobble of 2u − 1 at each point: the middle first, then its neighbours from the mean of four."""
        u = torch.rand(2, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
        middle = u[1, 1]
        field = torch.tensor([[0.0, middle / 2 + u[0, 1]], [middle / 2 + u[1, 0], middle]])
        wanted = (field - field.min()) / (field.max() - field.min())
        assert torch.allclose(distortions._plasma(torch.ones(1, 1, 2, 2), 2.0, fresh(1))[0, 0], wanted, atol=1e-6)

    def test_elastic_moves_by_its_level(self) -> None:
        """On ramps the change of a value is the displacement; both ramps get the same field."""
        ramp = torch.arange(32.0).double().expand(1, 1, 32, 32) / 31
        east = (distortions.elastic(ramp, 0.05, fresh(1)) - ramp) * 31
        south = (distortions.elastic(ramp.mT.contiguous(), 0.05, fresh(1)) - ramp.mT) * 31
        inside = (slice(None), slice(None), slice(5, -5), slice(5, -5))
        moved = (east[inside].square() + south[inside].square()).mean().sqrt().item()
        assert moved == pytest.approx(0.05 * 32, rel=0.25)  # the mean over all pixels is exact, over the inside about
        assert east[inside].diff(dim=3).abs().max() < 1.5  # smooth

    def test_rotation_is_that_of_scipy(self) -> None:
        x = pictures(6, 1, 17, 21).double()
        got = distortions.rotation(x, 18, fresh(6)).numpy()
        turned = []
        for degrees in (18, -18):
            turned.append(ndimage.rotate(x.numpy(), degrees, axes=(3, 2), reshape=False, order=1, mode="nearest"))
        sides = [[np.abs(got[place] - one[place]).max() < 1e-6 for one in turned] for place in range(len(x))]
        assert all(sum(side) == 1 for side in sides)
        assert {side.index(True) for side in sides} == {0, 1}  # both ways occur

    def test_translation_moves_a_point_by_its_level(self) -> None:
        x = torch.zeros(5, 1, 32, 32)
        x[:, :, 16, 16] = 1
        got = distortions.translation(x, 0.2, fresh(5))[:, 0].double()
        axis = torch.arange(32.0).double() - 16
        east, south = (got.sum(1) * axis).sum(1), (got.sum(2) * axis).sum(1)
        assert torch.allclose(torch.hypot(east, south), torch.full((5,), 6.4).double(), atol=1e-4)
        assert len({round(angle, 3) for angle in torch.atan2(south, east).tolist()}) == 5


class TestErrors:
    def test_kind_severity_and_seed(self) -> None:
        x = pictures(1)
        with pytest.raises(InputError, match=r"expected one of gaussian_noise, .* but got 'frost'"):
            corrupt(x, "frost")
        for severity in (0, 6, 1.0, True):
            with pytest.raises(InputError, match="a whole number from 1 to 5"):
                corrupt(x, "fog", severity)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="expected seed to be a whole number"):
            corrupt(x, "fog", seed=0.5)  # type: ignore[arg-type]

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16])
    def test_type(self, dtype: torch.dtype) -> None:
        with pytest.raises(InputError, match="to_float"):
            corrupt(pictures(1).to(dtype), "fog")

    def test_no_tensor(self) -> None:
        with pytest.raises(InputError, match="but got ndarray"):
            corrupt(pictures(1).numpy(), "fog")  # type: ignore[arg-type]

    @pytest.mark.parametrize("shape", [(3, 32, 32), (0, 3, 32, 32), (1, 2, 32, 32), (1, 3, 7, 32), (1, 3, 32, 7)])
    def test_shape(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match="1 or 3, H, W"):
            corrupt(torch.zeros(shape), "fog")

    @pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
    def test_values(self, value: float) -> None:
        x = pictures(1)
        x[0, 0, 3, 3] = value
        with pytest.raises(InputError, match=r"values in \[0, 1\] and no NaN"):
            corrupt(x, "fog")

    def test_saturate_needs_colour(self) -> None:
        with pytest.raises(InputError, match="expected three channels"):
            corrupt(pictures(1, 1), "saturate")
