"""Ray with patience: it gives up the start of a machine after 30 s, which is soon where other work has the cores.

`python -m patient …` is `nescio …`, with four cores for a Ray of its own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import ray
from ray import cluster_utils
from ray._private import node


class Slow(ModuleType):
    """The module `time`, by whose clock a tenth of the time passes."""

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    @staticmethod
    def monotonic() -> float:
        """Seconds since some moment."""
        return time.monotonic() / 10

    @staticmethod
    def time() -> float:
        """Seconds since some moment."""
        return time.time() / 10


@contextmanager
def patience() -> Iterator[None]:
    """Let machines, and what runs on them, start slowly within the block."""
    os.environ |= {"RAY_agent_register_timeout_ms": "300000", "RAY_worker_register_timeout_seconds": "600"}
    node.time = cluster_utils.time = Slow("time")
    try:
        yield
    finally:
        node.time = cluster_utils.time = time


if __name__ == "__main__":
    start = ray.init
    ray.init = lambda *given, **more: start(*given, **({"num_cpus": 4} | more))
    from nescio.cli import main

    with patience():
        sys.exit(main(sys.argv[1:]))
