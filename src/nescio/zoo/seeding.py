"""A block with its own random numbers, which leaves the global generators as it found them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int | None, device: torch.device | str = "cpu") -> Iterator[None]:
    """Inside, torch draws from `seed` on the CPU and on `device`; None changes nothing and keeps nothing."""
    if seed is None:
        yield
        return
    device = torch.device(device)
    cuda = [torch.cuda.current_device() if device.index is None else device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach every other device too
        for index in cuda:
            with torch.cuda.device(index):
                torch.cuda.manual_seed(seed)
        yield
