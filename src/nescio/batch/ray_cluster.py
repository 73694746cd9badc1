"""Ray itself: joined, or started for a while, made quiet, and what machines it has for how many workers."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NamedTuple

from nescio._common.lazy_imports import need
from nescio.types import InputError

STORE = 512 * 2**20
"""Bytes of shared memory, at most, in which rows and results wait in a Ray of our own."""


class Node(NamedTuple):
    """Say what a machine has.

    Args:
        cores: Its processor cores.
        gpus: Its GPUs.

    Examples:
        >>> Node(cores=8, gpus=1).gpus
        1
    """

    cores: int
    gpus: int


def share(nodes: Sequence[Node], workers: int | None, most: int, gpu: bool = False) -> tuple[int, int]:
    """Find how many workers there are, and how many threads each has.

    Args:
        nodes: The machines.
        workers: How many workers are wanted; None takes as many as have room.
        most: How many threads a worker has at most; fewer where the workers would not have room otherwise.
        gpu: Whether a worker needs a GPU.

    Returns:
        The number of workers, and of threads of each.

    Examples:
        >>> share([Node(cores=8, gpus=0)], None, most=2), share([Node(cores=8, gpus=0)], 8, most=2)
        ((4, 2), (8, 1))
    """

    def places(threads: int) -> int:
        return sum(min(node.cores // threads, node.gpus) if gpu else node.cores // threads for node in nodes)

    for threads in range(most, 0, -1):
        if places(threads) >= (workers or 1):
            return workers or places(threads), threads
    what, there = "core and a GPU" if gpu else "core", places(1)
    hint = "give fewer --workers" if there else "give another --device" if gpu else "give another --address"
    raise InputError(f"expected a {what} for each of {workers or 1} workers, but there is room for {there}; {hint}")


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Join a cluster of Ray, or start one of this block's own, unless the process is with one already.

    Args:
        address: The cluster; None starts one on this machine.

    Returns:
        A context manager; Ray that it started ends with the block.

    Raises:
        InputError: If the cluster cannot be reached.

    Examples:
        >>> with connected(None):  # doctest: +SKIP
        ...     nodes()
        [Node(cores=8, gpus=0)]
    """
    ray = need("ray", "ray")
    if ray.is_initialized():
        yield
        return
    own: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": STORE}
    try:
        with _silent():
            ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    except Exception as error:  # it has no class of its own for what can go wrong there
        where = f"--address: cannot reach a cluster at {address}" if address else "cannot start Ray"
        raise InputError(f"{where}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing on standard error, not from C++ either, which tells there what it was told in the environment."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Ray from saying anything within the block, to people or to its makers.

    Returns:
        A context manager.

    Examples:
        >>> with quiet(), connected(None):  # doctest: +SKIP
        ...     nodes()
        [Node(cores=8, gpus=0)]
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with warnings.catch_warnings(), open(os.devnull, "w") as nothing:
        warnings.filterwarnings("ignore", module=r"ray\b")
        with redirect_stdout(nothing):  # where it tells of lost workers
            yield


def nodes() -> list[Node]:
    """Return the machines of the cluster.

    Returns:
        What each has.

    Examples:
        >>> with connected(None):  # doctest: +SKIP
        ...     nodes()
        [Node(cores=8, gpus=0)]
    """
    alive = [node["Resources"] for node in need("ray", "ray").nodes() if node["Alive"]]
    return [Node(int(one.get("CPU", 0)), int(one.get("GPU", 0))) for one in alive]
