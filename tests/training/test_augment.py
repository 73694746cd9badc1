import pytest
import torch

from nescio.training import augment
from nescio.types import InputError


def pictures(count=64, size=5):
    return torch.arange(count * 2 * size * size, dtype=torch.float32).view(count, 2, size, size)


def test_a_crop_is_a_window_of_the_padded_picture_and_each_has_its_own():
    x = pictures()
    out = augment.random_crop(2, fill=-1.0)(x)
    assert out.shape == x.shape
    padded = torch.nn.functional.pad(x, [2] * 4, value=-1.0)
    places = set()
    for before, after in zip(padded, out, strict=True):
        found = [(r, c) for r in range(5) for c in range(5) if torch.equal(before[:, r : r + 5, c : c + 5], after)]
        assert len(found) == 1
        places.update(found)
    assert len(places) > 15  # of 25


def test_a_mirrored_border_holds_the_picture_s_own_values():
    x = pictures()
    out = augment.random_crop(2)(x)
    assert not torch.equal(out, x)
    for before, after in zip(x, out, strict=True):
        assert torch.isin(after, before).all()


def test_about_half_are_flipped_and_the_others_are_as_they_were():
    x = pictures()
    out = augment.horizontal_flip()(x)
    same = (out == x).flatten(1).all(1)
    assert 20 < same.sum() < 44
    assert torch.equal(out[~same], x[~same].flip(3))
    assert torch.equal(augment.horizontal_flip(1.0)(x), x.flip(3))


def test_the_global_seed_decides():
    change = augment.compose(augment.random_crop(1), augment.horizontal_flip())
    outs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outs.append(change(pictures()))
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])


def test_bad_pictures_are_named():
    with pytest.raises(InputError, match=r"expected pictures \[N, C, H, W\] to augment, got a tensor"):
        augment.horizontal_flip()(torch.zeros(3, 4))
    with pytest.raises(InputError, match="padding: expected at least 0"):
        augment.random_crop(-1)
    with pytest.raises(InputError, match="padding: expected less than the pictures' size 5 × 5"):
        augment.random_crop(5)(pictures(2))
    with pytest.raises(InputError, match="probability: expected a number from 0 to 1"):
        augment.horizontal_flip(2)


def test_rotation_turns_about_the_middle() -> None:
    x = torch.rand(3, 2, 9, 9)
    torch.manual_seed(0)
    assert torch.allclose(augment.random_rotation(0)(x), x, atol=1e-6)
    turned = augment.random_rotation(30)(x)
    assert turned.shape == x.shape
    torch.testing.assert_close(turned[..., 4, 4], x[..., 4, 4], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(turned, x, atol=1e-2)


def test_rotation_keeps_shapes_of_pictures_that_are_not_square() -> None:
    bar = torch.zeros(1, 1, 33, 65)
    bar[..., 16, 12:53] = 1.0  # a level bar; turned by 90 degrees it stands upright and fills the height
    turn = augment.random_rotation(90)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", lambda *_: torch.ones(1))
        upright = turn(bar)
    torch.testing.assert_close(upright[0, 0, :, 32], torch.ones(33), atol=1e-4, rtol=0)
    assert upright[0, 0, :, :30].abs().max() < 1e-4
