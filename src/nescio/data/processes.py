"""Processes that read picture files for a GPU: threads would take turns, for much of decoding is Python.

    room = memory of one batch, [size, C, H, W], shared      processes.read(room, first, places) ──► problems

They are forked, so they know the rows and share the rooms without a copy. This is done on Linux alone, since a fork is
not safe elsewhere. Linux also ends them when the process that they work for ends, for whatever reason. So none of them
keeps a folder of results busy that another run wants to go on with.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import warnings
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from math import prod
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

from nescio.data.sources.picture_files import PictureFiles
from nescio.data.sources.rows import Problem, Rows

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl
_mine: tuple[Rows, list[Tensor]] | None = None
"""What a process reads, and where to."""

Problems = list[tuple[int, Problem]]
"""The problems of some rows, by their place in the batch."""


class Processes:
    """`count` processes that read rows, and `rooms` rooms for batches of at most `size` rows."""

    def __init__(self, rows: Rows, count: int, size: int, rooms: int) -> None:
        (shape, kind), _ = rows._form, rows.labels  # read once, before the fork
        room = size * prod(shape) * kind.itemsize
        self.size = size
        self.rooms = [torch.frombuffer(mmap.mmap(-1, room), dtype=kind).view(size, *shape) for _ in range(rooms)]
        self._pool = ProcessPoolExecutor(
            count, get_context("fork"), initializer=_begin, initargs=(rows, self.rooms, os.getpid())
        )

    def read(self, room: int, first: int, places: range) -> Future[Problems]:
        """Begin to read rows into a room, from its row `first` on. A pool that has broken is told by the future."""
        with warnings.catch_warnings():
            # Python warns of a fork beside threads, but nothing that they hold is used
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                return self._pool.submit(_read, room, first, places)
            except BrokenProcessPool as error:
                broken: Future[Problems] = Future()
                broken.set_exception(error)
                return broken

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)


def can_fork(rows: Rows) -> bool:
    """Whether processes may read these rows: each in a file of its own, all of one form."""
    return sys.platform == "linux" and isinstance(rows.store, PictureFiles) and isinstance(rows._form, tuple)


def _begin(rows: Rows, rooms: list[Tensor], parent: int) -> None:
    global _mine
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the line above
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent to handle
    torch.set_num_threads(1)
    _mine = (rows, rooms)


def _read(room: int, first: int, places: range) -> Problems:
    assert _mine is not None
    rows, rooms = _mine
    problems: Problems = []
    for place, index in enumerate(places, first):
        row: Any = rows.attempt(index)
        if isinstance(row, Problem):
            problems.append((place, row))
        else:
            rooms[room][place] = row
    return problems
