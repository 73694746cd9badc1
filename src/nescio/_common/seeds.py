"""Derive the seeds of parts from the seed of the whole."""

from __future__ import annotations

import numpy as np


def derived_seed(seed: int, *place: int, bits: int = 64) -> int:
    """Mix a seed with the place of a part into a seed for that part.

    Parts of different wholes get different seeds, which ``seed + part`` would not give: part 1 of seed 0 would be
    part 0 of seed 1.

    Args:
        seed: The seed of the whole, at least 0.
        *place: Where the part stands in the whole, such as the number of a sample; whole numbers of at least 0.
        bits: How many bits the result has, at most 64. A generator of PyTorch takes 64 bits.

    Returns:
        The seed, the same for the same arguments on every machine.

    Examples:
        >>> derived_seed(0, 1) == derived_seed(0, 1), derived_seed(0, 1) == derived_seed(1, 0)
        (True, False)
    """
    return int(np.random.SeedSequence([seed, *place]).generate_state(1, np.uint64)[0] >> np.uint64(64 - bits))
