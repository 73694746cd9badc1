"""Ray with patience: it gives up the start of a machine after 30 s, which is soon where other work has the cores.

`python -m patient …` is `nescio …`, with four cores for a Ray of its own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TypeVar

import ray
from ray import cluster_utils
from ray._private import node

Result = TypeVar("Result")


class Slow(ModuleType):
    """The module `time`, by whose clock half of the time passes."""

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    @staticmethod
    def monotonic() -> float:
        """Seconds since some moment."""
        return time.monotonic() / 2

    @staticmethod
    def time() -> float:
        """Seconds since some moment."""
        return time.time() / 2


@contextmanager
def patience() -> Iterator[None]:
    """Let machines, and what runs on them, start slowly within the block."""
    os.environ |= {
        "RAY_agent_register_timeout_ms": "300000",
        "RAY_worker_register_timeout_seconds": "600",
        "RAY_worker_niceness": "0",  # else they stand back behind all other work on the machine
    }
    node.time = cluster_utils.time = Slow("time")
    try:
        yield
    finally:
        node.time = cluster_utils.time = time


def tried(work: Callable[[], Result], times: int = 6) -> Result:
    """Do what starts a Ray, again and again if need be: on busy cores its parts may not find each other in time."""
    for _ in range(times - 1):
        try:
            return work()
        except Exception as error:
            print(f"again, since {str(error)[-300:]}", flush=True)
    return work()


if __name__ == "__main__":
    start = ray.init
    ray.init = lambda *given, **more: start(*given, **({"num_cpus": 4} | more))
    from nescio.cli import main

    with patience():
        sys.exit(main(sys.argv[1:]))
