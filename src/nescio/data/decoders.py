"""Processes that decode picture files for a GPU, and leave what remains to be done with the pixels to it.

    slots = memory of a batch, one slot a picture      decoders.read(room, places) … decoders.slots(room, places)

They are for `Pictures`, whose steps are known: what is done after decoding takes longer than decoding, and a GPU does
it at next to no cost (`nescio.data.pixel_steps`). They are started afresh and not forked: a fork of a process with
torch and a GPU's driver in it takes a tenth of a second, and there are as many as cores
(`nescio._common.decoding_process`). Files that are not plain are read again by the threads of this process, whose words
for them are the usual ones. Only on Linux is there memory that has no name and can be handed to another process.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from nescio._common.decoding_process import DONE, LEFT, READY, TASK, TASK_BYTES, TOLD, command
from nescio._common.lazy_imports import need
from nescio._common.picture_steps import PictureSteps
from nescio.data.sources.picture_files import PictureFiles
from nescio.data.sources.rows import Rows

WHOLE_PIXELS = 1 << 18
"""Pixels of the largest picture that is sent to the GPU as it was decoded."""
_PIPE = 1 << 20
_ATOMIC = 4096


class Slot(NamedTuple):
    """Say what is in a slot: a picture of this size, as decoded, after all steps, or none."""

    width: int
    height: int
    what: int


class Decoders:
    """`count` processes that decode, and `rooms` rooms for batches of at most `size` rows."""

    def __init__(self, rows: Rows, count: int, size: int, rooms: int) -> None:
        assert isinstance(rows.store, PictureFiles)
        (shape, _), steps = rows._form, _steps(rows)
        assert steps is not None
        self.size, self.steps, self._store, self._faults = size, steps, rows.store, rows._labelled.faults
        slot = steps.channels * WHOLE_PIXELS
        slot = -(-max(slot, shape[0] * shape[1] * shape[2]) // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = os.memfd_create("nescio")
        tasks, self._tasks = os.pipe()
        self._told, told = os.pipe()
        try:
            os.ftruncate(memory, rooms * size * slot)
            whole = torch.frombuffer(mmap.mmap(memory, rooms * size * slot), dtype=torch.uint8)
            self.rooms = whole.view(rooms, size, slot)
            self._process = _started(
                {
                    "count": count, "tasks": tasks, "told": told, "memory": memory, "slot": slot,
                    "steps": asdict(steps), "shape": list(shape),
                },
                (tasks, told, memory),
            )  # fmt: skip
        except BaseException:
            os.close(self._tasks)
            os.close(self._told)
            raise
        finally:
            for file in (tasks, told, memory):
                os.close(file)
        for end in (self._tasks, self._told):
            _widen(end)
        self._beside = [torch.empty(0, dtype=torch.uint8)] * rooms
        self._found: list[dict[int, Slot]] = [{} for _ in range(rooms)]
        self._turn, self._began, self._rest, self._closed = threading.Lock(), False, b"", False

    def read(self, room: int, places: range) -> None:
        """Begin to decode rows into a room."""
        self._found[room] = found = {}
        tasks = []
        for row, index in enumerate(places):
            path = os.fsencode(self._store.path(index))
            if index in self._faults or TASK.size + len(path) > TASK_BYTES:
                found[row] = Slot(0, 0, LEFT)
            else:
                tasks.append((TASK.pack(room * self.size + row, len(path)) + path).ljust(TASK_BYTES, b"\0"))
        step = _ATOMIC // TASK_BYTES
        with suppress(BrokenPipeError):  # they ended: `slots` tells
            for start in range(0, len(tasks), step):
                os.write(self._tasks, b"".join(tasks[start : start + step]))

    def slots(self, room: int, count: int) -> list[Slot] | None:
        """Wait until so many rows of a room are decoded; None where a process was killed.

        Where they could not even begin, nothing is in the slots.
        """
        found = self._found[room]
        with self._turn:
            while len(found) < count:
                if not self._heard():
                    if self._began:
                        return None
                    found.update({row: Slot(0, 0, LEFT) for row in range(count) if row not in found})
                elif count - len(found) > 8:  # not every picture is worth being woken for
                    time.sleep(0.001)
        return [found[row] for row in range(count)]

    def empty(self, room: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return memory beside a room, which is kept with it: new memory takes longer to get than to fill."""
        size = prod(shape)
        if len(self._beside[room]) < size:
            self._beside[room] = torch.empty(size, dtype=dtype)
        return self._beside[room][:size].view(shape)

    def close(self) -> None:
        """End the processes."""
        if self._closed:
            return
        self._closed = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:  # another process holds the other end
            self._process.kill()
            self._process.wait()
        os.close(self._tasks)
        with self._turn:
            os.close(self._told)

    def _heard(self) -> bool:
        """Whether the processes told anything more."""
        if self._closed or not (said := os.read(self._told, 1 << 16)):
            return False
        said = self._rest + said
        end = len(said) // TOLD.size * TOLD.size
        self._rest = said[end:]
        for number, width, height, what in TOLD.iter_unpack(said[:end]):
            if what == READY:
                self._began = True
            else:
                room, row = divmod(number, self.size)
                self._found[room][row] = Slot(width, height, what)
        return True


def can_decode(rows: Rows) -> bool:
    """Whether such processes may read these rows: picture files, whose steps are known."""
    if sys.platform != "linux" or not isinstance(rows.store, PictureFiles) or _steps(rows) is None:
        return False
    form = rows._form
    return isinstance(form, tuple) and len(form[0]) == 3 and form[1] == torch.float32 and bool(sys.executable)


def in_slot(slot: Tensor, picture: Tensor) -> Slot:
    """Put the bytes of a picture ``[C, H, W]``, floats in [0, 1], into a slot, as all steps would have left them."""
    pixels = picture.mul(255).round().byte().permute(1, 2, 0).reshape(-1)
    slot[: len(pixels)] = pixels
    return Slot(picture.shape[2], picture.shape[1], DONE)


def _steps(rows: Rows) -> PictureSteps | None:
    steps = getattr(rows.preprocess, "steps", None)
    return steps if isinstance(steps, PictureSteps) else None


def _started(given: dict[str, object], files: Iterable[int]) -> subprocess.Popen[bytes]:
    image = need("PIL.Image", "data")
    settings = {"most_pixels": image.MAX_IMAGE_PIXELS, "truncated": need("PIL.ImageFile", "data").LOAD_TRUNCATED_IMAGES}
    return subprocess.Popen(
        command(given | settings),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=tuple(files),
    )  # fmt: skip


def _widen(pipe: int) -> None:
    """Let a pipe hold more than it usually does, where that is allowed."""
    import fcntl

    with suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
