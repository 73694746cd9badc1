import pytest
import torch

from nescio.data import digits
from nescio.types import InputError


def test_pictures_are_scaled_and_parts_do_not_overlap():
    found = digits(held_out=300, seed=3)
    parts = [found.train, found.validation, found.held_out]
    assert [len(part.x) for part in parts] == [1347, 150, 300]
    every = torch.cat([part.x for part in parts])
    assert every.shape == (1797, 1, 8, 8)
    assert every.dtype == torch.float32
    assert every.min() == 0
    assert every.max() == 1
    assert torch.equal(every * 16, (every * 16).round())
    from sklearn.datasets import load_digits

    whole = torch.from_numpy(load_digits().images).float() / 16
    # the three parts hold each picture as often as the whole does
    assert torch.equal(every.flatten(1).sum(1).sort().values, whole.flatten(1).sum(1).sort().values)
    assert all(part.y.unique().tolist() == list(range(10)) for part in parts)


def test_labels_belong_to_their_pictures():
    from sklearn.datasets import load_digits

    bunch = load_digits()
    label = {tuple(image.ravel()): int(target) for image, target in zip(bunch.images, bunch.target, strict=True)}
    held_out = digits(held_out=50, seed=1).held_out
    assert [label[tuple((image * 16).flatten().tolist())] for image in held_out.x] == held_out.y.tolist()


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    first, again, other = digits(seed=0), digits(seed=0), digits(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.held_out.x, again.held_out.x)
    assert not torch.equal(first.held_out.x, other.held_out.x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out": 0}, "whole number from 1 to 1795, got 0"),
        ({"held_out": 1797}, "got 1797"),
        ({"validation": 1.0}, "a share above 0 and below 1, got 1.0"),
    ],
)
def test_impossible_splits_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        digits(**settings)


def test_the_smallest_training_part_still_has_a_picture():
    found = digits(held_out=1795, validation=0.99)
    assert (len(found.train.x), len(found.validation.x)) == (1, 1)
