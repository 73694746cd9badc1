from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Generator

from nescio.guard import changes
from nescio.guard.changes import CHANGES, Changes, compressed
from nescio.types import InputError
from tests.guard.conftest import pictures


@pytest.fixture(scope="module")
def photograph():
    return load_sample_image("flower.jpg")[150:241, 250:385]  # no multiple of 8 or 16


def saved(picture, quality, mode="RGB"):
    file = BytesIO()
    Image.fromarray(picture, mode=None).convert(mode).save(file, "jpeg", quality=quality)
    return np.asarray(Image.open(file)).astype(np.float64) / 255


@pytest.mark.parametrize("quality", [40, 60, 90])
def test_a_compressed_picture_is_what_pillow_saves(photograph, quality):
    x = torch.from_numpy(photograph.astype(np.float64) / 255).permute(2, 0, 1)
    own, real = compressed(x, quality).permute(1, 2, 0).numpy(), saved(photograph, quality)
    loss = np.abs(real - photograph / 255).mean()
    assert np.abs(own - real).mean() < 0.3 * loss
    assert np.abs(own - real).mean() < 0.005


@pytest.mark.parametrize("quality", [40, 90])
def test_a_grey_one_too_up_to_the_rounding_to_bytes(photograph, quality):
    grey = np.asarray(Image.fromarray(photograph).convert("L"))
    own = compressed(torch.from_numpy(grey.astype(np.float64) / 255)[None], quality)[0].numpy()
    assert np.abs(own - saved(grey, quality, "L")).mean() < 0.5 / 255


def test_the_cosines_are_orthonormal():
    waves = changes._cosines()
    torch.testing.assert_close(waves @ waves.T, torch.eye(8, dtype=torch.float64))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_small_and_depends_on_its_seed_alone(name):
    change = Changes.of([name])
    x = pictures(6)
    one, again = change(x, list(range(6))), change(x, list(range(6)))
    assert torch.equal(one, again)
    assert not torch.equal(one, change(x, list(range(1, 7))))
    assert one.shape == x.shape
    assert one.dtype == x.dtype
    assert 0 < float((one - x).abs().mean()) < 0.12
    assert 0.0 <= float(one.min()) <= float(one.max()) <= 1.0


def test_a_picture_is_changed_as_it_would_be_alone():
    x, change = pictures(5), Changes.of("auto")
    whole = change(x, [7, 8, 9, 10, 11])
    for i in range(5):
        assert torch.equal(change(x[i : i + 1], [7 + i])[0], whole[i])
    order = [3, 0, 4]
    assert torch.equal(change(x[order], [10, 7, 11]), whole[order])


def test_bytes_stay_bytes_and_normalised_pictures_keep_their_range():
    x = pictures(4)
    whole = Changes.of("auto")((255 * x).to(torch.uint8), [1, 2, 3, 4])
    assert whole.dtype == torch.uint8
    plain = Changes.of("auto")((255 * x).to(torch.uint8).double() / 255, [1, 2, 3, 4])
    assert float((whole.double() / 255 - plain).abs().max()) <= 0.51 / 255
    normalised = (x - 0.5) / 0.2
    own = Changes.of("auto")(normalised, [1, 2, 3, 4])
    low, high = normalised.amin((2, 3)), normalised.amax((2, 3))
    assert bool((own.amin((2, 3)) >= low - 1e-5).all())
    assert bool((own.amax((2, 3)) <= high + 1e-5).all())
    assert 0 < float((own - normalised).abs().mean()) < 0.6


def test_a_plain_picture_can_be_changed():
    grey = torch.full((2, 3, 16, 16), -1.5, dtype=torch.float64)
    changed = Changes.of("auto")(grey, [0, 1])
    assert bool(changed.isfinite().all())
    assert float((changed - grey).abs().max()) < 1e-5


@pytest.mark.parametrize(
    "x",
    [torch.rand(4, 6), torch.rand(4, 3, 20), torch.rand(4, 5, 12, 12), torch.rand(4, 3, 4, 4),
     torch.zeros(4, 3, 12, 12, dtype=torch.long), {"input_ids": torch.ones(4, 6, dtype=torch.long)},
     {"a": torch.rand(4, 3, 12, 12), "b": torch.rand(4, 3, 12, 12)}],
)  # fmt: skip
def test_what_is_no_picture_is_left_alone(x):
    assert Changes.of("auto")(x, [0, 1, 2, 3]) is None


def test_the_picture_of_a_mapping_is_changed():
    x = {"pixel_values": pictures(3), "mask": torch.ones(3, 5)}
    changed = Changes.of("auto")(x, [0, 1, 2])
    assert torch.equal(changed["pixel_values"], Changes.of("auto")(x["pixel_values"], [0, 1, 2]))
    assert changed["mask"] is x["mask"]


def test_own_functions_and_names_in_their_order():
    x = torch.ones(3, 4)
    changed = Changes.of([lambda v: v + 1, lambda v: 2 * v])(x, [0, 1, 2])
    assert changed.tolist() == [[4.0] * 4] * 3
    assert Changes.of(["jpeg", "resize"]).pictures == ("resize", "jpeg")
    assert Changes.of(None)(pictures(2), [0, 1]) is None
    assert Changes.of([])(pictures(2), [0, 1]) is None


def test_what_cannot_be_a_change_is_refused():
    for wrong in ("jpeg", 3, ["blur"], [3]):
        with pytest.raises(InputError, match="expected nuisances to be 'auto', None, or a list of resize"):
            Changes.of(wrong)
    with pytest.raises(InputError, match="one changed input for each of 3"):
        Changes.of([lambda v: v[:2]])(torch.ones(3, 4), [0, 1, 2])


def test_each_change_keeps_random_generators_as_they_were():
    before = torch.get_rng_state()
    Changes.of("auto")(pictures(3), [0, 1, 2])
    assert torch.equal(before, torch.get_rng_state())
    assert 0.0 <= changes._uniform(Generator().manual_seed(3)) < 1.0
