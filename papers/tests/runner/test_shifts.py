import pytest
import torch

from nescio_papers.runner.shifts import SHIFTS, shifted


@pytest.fixture
def pictures():
    return torch.randint(0, 256, (12, 3, 9, 9), dtype=torch.uint8), torch.arange(12) % 3


@pytest.mark.parametrize("kind", SHIFTS)
def test_shifts_keep_the_form_and_depend_on_the_seed_alone(pictures, kind):
    x, y = pictures
    before = x.clone()
    found = shifted(x, y, kind)
    assert found.shape == x.shape and found.dtype == torch.uint8 and found.is_contiguous()
    assert torch.equal(x, before) and not torch.equal(found, x)
    torch.rand(3)
    assert torch.equal(found, shifted(x, y, kind))


def test_tiles_are_moved_and_none_is_lost(pictures):
    x, y = pictures
    found = shifted(x, y, "shuffled")
    assert torch.equal(found[:, :, 8:], x[:, :, 8:])  # the rim stays
    assert torch.equal(found.flatten(1).sort(1).values, x.flatten(1).sort(1).values)
    tiles = x[0, :, :8, :8].unfold(1, 2, 2).unfold(2, 2, 2).permute(1, 2, 0, 3, 4).reshape(16, -1).tolist()
    moved = found[0, :, :8, :8].unfold(1, 2, 2).unfold(2, 2, 2).permute(1, 2, 0, 3, 4).reshape(16, -1).tolist()
    assert sorted(tiles) == sorted(moved)


def test_blended_pictures_are_of_two_classes():
    x = torch.zeros(6, 1, 4, 4, dtype=torch.uint8)
    y = torch.tensor([0, 0, 0, 1, 1, 1])
    x[y == 1] = 200
    assert (shifted(x, y, "blended") == 100).all()


def test_static_takes_every_pixel_from_its_place():
    x = torch.arange(16, dtype=torch.uint8).reshape(1, 1, 4, 4).repeat(5, 2, 1, 1)
    assert torch.equal(shifted(x, torch.zeros(5, dtype=torch.long), "static"), x)
