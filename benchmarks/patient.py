"""Ray with patience: it gives up the start of a machine after 30 s, which is soon where other work has the cores.

`python -m patient …` is `nescio …`, with four cores for a Ray of its own.
"""

from __future__ import annotations

import os
import sys
import time
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


def wait_longer() -> None:
    """Let machines, and what runs on them, start slowly; before Ray starts."""
    node.time = cluster_utils.time = Slow("time")
    os.environ |= {"RAY_agent_register_timeout_ms": "300000", "RAY_worker_register_timeout_seconds": "600"}


if __name__ == "__main__":
    wait_longer()
    start = ray.init
    ray.init = lambda *given, **more: start(*given, **({"num_cpus": 4} | more if more["address"] == "local" else more))
    from nescio.cli import main

    sys.exit(main(sys.argv[1:]))
