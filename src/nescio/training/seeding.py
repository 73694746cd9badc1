"""A block with its own random numbers, which leaves the global generators as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from nescio._common.seeds import derived_seed


@contextmanager
def seeded(seed: int | None, device: torch.device | str = "cpu") -> Iterator[None]:
    """Run a block with random numbers of its own, and leave the global generators as they were.

    Args:
        seed: The seed for torch (on the CPU and on `device`), NumPy and Python; None changes nothing.
        device: The device that the block works on.

    Returns:
        A context manager.

    Examples:
        >>> with nescio.training.seeded(0):
        ...     first = torch.rand(2)
        >>> with nescio.training.seeded(0):
        ...     torch.equal(torch.rand(2), first)
        True
    """
    if seed is None:
        yield
        return
    device = torch.device(device)
    cuda = [torch.cuda.current_device() if device.index is None else device.index] if device.type == "cuda" else []
    python, array = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=cuda):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach every other device too
            for index in cuda:
                with torch.cuda.device(index):
                    torch.cuda.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)


def spawned(seed: int, *place: int) -> int:
    """Return the seed for one part of a whole.

    Args:
        seed: The seed of the whole.
        *place: Where the part stands in the whole, whole numbers.

    Returns:
        A seed of 63 bits. Parts of different wholes do not meet, as ``seed + part`` would.

    Examples:
        >>> nescio.training.spawned(0, 1) != nescio.training.spawned(1, 0)
        True
    """
    return derived_seed(seed, *place, bits=63)


def states(device: torch.device) -> dict[str, Any]:
    """The state of the global generators, in types that `torch.load` reads without executing code."""
    name, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "numpy": [name, torch.from_numpy(np.asarray(keys, np.int64)), *rest],
        "python": random.getstate(),
    }


def restore(saved: dict[str, Any], device: torch.device) -> None:
    """Go on with the generators from where `states` saw them."""
    torch.set_rng_state(saved["torch"])
    if saved["cuda"] is not None:
        torch.cuda.set_rng_state(saved["cuda"], device)
    name, keys, *rest = saved["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    random.setstate(saved["python"])
