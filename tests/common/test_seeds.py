"""Seeds of parts: the same everywhere and always, and different for different parts."""

import torch

from nescio._common.seeds import derived_seed


def test_seeds_are_the_same_on_every_machine() -> None:
    assert derived_seed(0) == 15793235383387715774
    assert derived_seed(3, 1) == 11425928242767342472
    assert derived_seed(3, 1, bits=63) == 11425928242767342472 >> 1


def test_parts_of_different_wholes_do_not_meet() -> None:
    seeds = [derived_seed(seed, part) for seed in range(20) for part in range(20)]
    assert len(set(seeds)) == 400


def test_a_generator_takes_them() -> None:
    first, second = (torch.Generator().manual_seed(derived_seed(7, part)) for part in range(2))
    assert not torch.equal(torch.randn(4, generator=first), torch.randn(4, generator=second))
