"""A block with its own random numbers, which leaves the global generators as it found them."""

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
    """Inside, torch (on the CPU and on `device`), numpy and Python draw from `seed`; None changes nothing."""
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
    """A seed for one of several parts of a whole: parts of different wholes do not meet, as seed + part would."""
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
