import pytest
import torch

from nescio.data import NOT_DIGITS, digits, drawn_letters, photo_patches
from nescio.data.not_digits import FLAT, LETTERS
from nescio.types import InputError


@pytest.mark.parametrize("name", NOT_DIGITS)
def test_every_kind_has_the_form_of_the_digits_and_follows_its_seed(name):
    make = NOT_DIGITS[name].make
    before = torch.get_rng_state()
    first, again, other = make(40, 0), make(40, 0), make(40, 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.shape == (40, *digits().held_out.x.shape[1:])
    assert first.dtype == torch.float32
    assert 0 <= first.min() < 0.2
    assert 0.8 < first.max() <= 1
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(NOT_DIGITS[name].about) > 40


def test_patches_are_different_and_none_is_flat():
    patches = photo_patches(200).flatten(1)
    assert len(patches.unique(dim=0)) == 200
    assert patches.std(dim=1).min() >= FLAT


def test_letters_are_counted_blocks_of_ink_with_room_for_background():
    letters = drawn_letters(100)
    assert torch.equal(letters * 16, (letters * 16).round())
    ink = letters.flatten(1).mean(dim=1)
    assert ink.min() > 0.1
    assert ink.max() < 0.7


def test_the_ten_letters_come_equally_often_and_look_different(monkeypatch):
    drawn = []
    import nescio.data.not_digits as room

    monkeypatch.setattr(room, "_draw", lambda strokes, random: drawn.append(strokes) or torch.zeros(1, 8, 8))
    room.drawn_letters(30)
    assert sorted(map(drawn.count, LETTERS.values())) == [3] * 10
    assert drawn != sorted(drawn)  # not one letter after the other


@pytest.mark.parametrize(("make", "count"), [(photo_patches, 0), (photo_patches, 100_000), (drawn_letters, 0)])
def test_impossible_counts_are_refused(make, count):
    with pytest.raises(InputError, match=f"count: expected .* got {count}"):
        make(count)
