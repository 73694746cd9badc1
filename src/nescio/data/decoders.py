"""Processes that decode picture files for a GPU, and leave what remains to be done with the pixels to it.

    decoders.read(room, places) … decoders.slots(room, count) … decoders.pixels(room, rows, slots, empty)

    room = memory of a batch, one slot a picture; its slots take turns in several files (`decoding_process`)

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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from nescio._common.decoding_process import DONE, LEFT, READY, TASK, TASK_BYTES, TOLD, command, stays_whole
from nescio._common.lazy_imports import need
from nescio._common.picture_loading import FORMATS
from nescio._common.picture_steps import PictureSteps
from nescio.data.sources.picture_files import PictureFiles
from nescio.data.sources.rows import Rows

WHOLE_PIXELS = 1 << 18
"""Pixels of the largest picture that is sent to the GPU as it was decoded."""
_PIPE = 1 << 20
_ATOMIC = 4096
_KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 26), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
"""Lets glibc keep the memory of a picture for the next one: to get it anew takes as long as decoding does."""


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
        self.size, self.steps, self._shape = size, steps, shape
        self._store, self._faults = rows.store, rows._labelled.faults
        slot = max(steps.channels * WHOLE_PIXELS, shape[0] * shape[1] * shape[2])
        self._slot: int = -(-slot // mmap.PAGESIZE) * mmap.PAGESIZE
        files = min(count, size)
        self._height = -(-size // files)  # slots that a room has in one file
        self._room = self._height * files
        tasks, self._tasks = os.pipe()
        self._told, told = os.pipe()
        memory: list[int] = []
        try:
            self._files = [_shared(rooms * self._height, self._slot, memory) for _ in range(files)]
            self._process = _started(
                {
                    "count": count, "tasks": tasks, "told": told, "memory": memory, "slot": self._slot,
                    "steps": asdict(steps), "shape": list(shape),
                },
                (tasks, told, *memory),
            )  # fmt: skip
        except BaseException:
            os.close(self._tasks)
            os.close(self._told)
            raise
        finally:
            for file in (tasks, told, *memory):
                os.close(file)
        for end in (self._tasks, self._told):
            _widen(end)
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
                tasks.append((TASK.pack(room * self._room + row, len(path)) + path).ljust(TASK_BYTES, b"\0"))
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

    @cached_property
    def likely(self) -> int:
        """Bytes that a picture is likely to take: what the first one does, or a slot where nobody can tell."""
        size: tuple[int, int] | None = None
        with suppress(Exception):  # whatever it is, it is told in its turn
            path = self._store.path(0)
            if os.path.isfile(path):  # a pipe may never end
                with need("PIL.Image", "data").open(path, formats=FORMATS) as opened:
                    size = opened.size
        if size is None:
            return self._slot
        whole = stays_whole(size, self.steps, self._slot)
        return prod(size) * self.steps.channels if whole else prod(self._shape)

    def slot(self, room: int, row: int) -> Tensor:
        """Return the memory of a slot."""
        return self._files[row % len(self._files)][room * self._height + row // len(self._files)]

    def pixels(
        self, room: int, rows: Sequence[int], slots: Sequence[Slot], empty: Callable[[tuple[int, ...]], Tensor]
    ) -> Tensor:
        """Copy the pictures of some rows, bytes ``[N, H, W, C]`` as large as the largest.

        slots: what is in the slots of these rows. empty: gives memory of a shape.
        """
        across, down = max(one.width for one in slots), max(one.height for one in slots)
        pixels, many = empty((len(rows), down, across, self.steps.channels)), len(self._files)
        size = across * down * self.steps.channels
        if list(rows) == list(range(len(rows))) and len({(one.width, one.height) for one in slots}) == 1:
            flat = pixels.view(len(rows), size)
            for number, file in enumerate(self._files[: len(rows)]):  # one copy for all slots in a file
                mine = flat[number::many]
                mine.copy_(file[room * self._height :][: len(mine), :size])
            return pixels
        for place, (row, one) in enumerate(zip(rows, slots, strict=True)):
            shape = (one.height, one.width, self.steps.channels)
            pixels[place, : one.height, : one.width] = self.slot(room, row)[: prod(shape)].view(shape)
        return pixels

    def close(self) -> None:
        """End the processes."""
        if self._closed:
            return
        self._closed = True
        files, self._files = self._files, []
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
        _let_go(files)

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
                room, row = divmod(number, self._room)
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


def _shared(slots: int, size: int, memory: list[int]) -> Tensor:
    """Slots in a file in memory, which is added to those of the processes."""
    memory.append(os.memfd_create("nescio"))
    os.ftruncate(memory[-1], slots * size)
    return torch.frombuffer(mmap.mmap(memory[-1], slots * size), dtype=torch.uint8).view(slots, size)


def _let_go(files: list[Tensor]) -> None:
    """Let a thread give the memory back, which takes longer than to end the processes."""
    if not sys.is_finalizing():  # then a thread would never begin, and be waited for
        with suppress(RuntimeError):  # later versions of Python say so
            threading.Thread(target=files.clear, name="nescio-free").start()


def _started(given: dict[str, object], files: Iterable[int]) -> subprocess.Popen[bytes]:
    image = need("PIL.Image", "data")
    settings = {"most_pixels": image.MAX_IMAGE_PIXELS, "truncated": need("PIL.ImageFile", "data").LOAD_TRUNCATED_IMAGES}
    return subprocess.Popen(
        command(given | settings),
        env=_KEEP_MEMORY | os.environ,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=tuple(files),
    )  # fmt: skip


def _widen(pipe: int) -> None:
    """Let a pipe hold more than it usually does, where that is allowed."""
    import fcntl

    with suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
