"""Processes that decode picture files into shared memory, with Pillow alone: they know nothing of torch, and start in
a tenth of a second. `nescio.data.decoders` starts them, and says what they are for.

    tasks (a pipe) ──► one of many processes ──► memory (files in memory, in slots of one picture each)
                                             └──► told (a pipe): the slot, width and height, and what is in the slot

The first process makes the others. It lives as long as its standard input is open, and the others as long as it does.
A picture is left in its slot as it was decoded, where it fits, or else after all steps. What is not plain, be it
an error or a warning, is left to the process that asked.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import stat
import struct
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nescio._common.picture_loading import load_picture
from nescio._common.picture_steps import PictureSteps

if TYPE_CHECKING:
    from PIL.Image import Image

TASK = struct.Struct("<ii")
"""The slot, and how many bytes of a path follow."""
TASK_BYTES = 256
"""With the path and what fills it up. What is written to a pipe in parts of at most 4,096 bytes stays in one piece."""
TOLD = struct.Struct("<iHHi")
"""The slot, the width and the height of what is in it, and one of the numbers below."""
LEFT, WHOLE, DONE, READY = 0, 1, 2, 3
"""Nothing is in the slot; the picture as decoded; after all steps; no picture, but word that the processes began."""
LONGEST = 2048
"""The longest side of a picture that is left as it was decoded."""
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl


class _Ended(Exception):
    """A process has ended."""


def main(given: dict[str, Any]) -> None:
    """Make the processes, and end them with the standard input.

    Args:
        given: `count`, the files `tasks`, `told` and those of `memory` by their numbers, `slot` in bytes, `steps`,
            the `shape` that pictures are to have, and Pillow's settings.

    Examples:
        >>> command({"count": 2})[1:3]
        ['-I', '-S']
    """
    import PIL.Image
    import PIL.ImageFile

    PIL.Image.MAX_IMAGE_PIXELS = given["most_pixels"]
    PIL.ImageFile.LOAD_TRUNCATED_IMAGES = given["truncated"]
    PIL.Image.preinit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that asked to handle
    gc.freeze()
    mine, children = os.getpid(), []
    for _ in range(given["count"]):
        child = os.fork()
        if child == 0:
            _child(given, mine)
        children.append(child)
    os.close(given["tasks"])
    signal.signal(signal.SIGCHLD, _child_ended)
    try:
        if os.waitpid(-1, os.WNOHANG)[0] == 0:  # none has ended before it would have been told
            os.write(given["told"], TOLD.pack(0, 0, 0, READY))
            os.close(given["told"])
            while os.read(0, 4096):
                pass
    except _Ended:
        pass
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def command(given: dict[str, Any]) -> list[str]:
    """Return the command that runs `main` in a process of its own.

    Args:
        given: What `main` takes.

    Returns:
        The words of the command.

    Examples:
        >>> command({"count": 2})[-1]
        '{"count": 2}'
    """
    path = [str(Path(__file__).resolve().parents[2]), *(place for place in sys.path if place)]
    code = (
        f"import sys; sys.path[:] = {path!r}; "
        "import json; from nescio._common.decoding_process import main; main(json.loads(sys.argv[1]))"
    )
    return [sys.executable, "-I", "-S", "-c", code, json.dumps(given)]


def _child_ended(*_: object) -> NoReturn:
    raise _Ended


def _child(given: dict[str, Any], parent: int) -> NoReturn:
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() == parent:
            os.close(0)
            warnings.simplefilter("error")
            _work(given, PictureSteps(**given["steps"]))
    finally:
        os._exit(0)


def _work(given: dict[str, Any], steps: PictureSteps) -> None:
    """Take tasks until there are no more."""
    while task := os.read(given["tasks"], TASK_BYTES):
        slot, length = TASK.unpack_from(task)
        file, place = given["memory"][slot % len(given["memory"])], slot // len(given["memory"])
        try:
            picture, what = _picture(task[TASK.size : TASK.size + length], steps, given)
            _write(file, picture.tobytes(), place * given["slot"])
            told = TOLD.pack(slot, *picture.size, what)
        except Exception:  # whatever it is: the process that asked reads this file itself, and says what is wrong
            told = TOLD.pack(slot, 0, 0, LEFT)
        os.write(given["told"], told)


def _write(file: int, pixels: bytes, start: int) -> None:
    """Write all of them, where one call may write a part."""
    left = memoryview(pixels)
    while left:
        done = os.pwrite(file, left, start)
        left, start = left[done:], start + done


def _picture(path: bytes, steps: PictureSteps, given: dict[str, Any]) -> tuple[Image, int]:
    """What is left in the slot, and the number that says what it is."""
    import PIL.Image

    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is a pipe or a device, which may never end")
    picture: Image = steps.coloured(load_picture(os.fsdecode(path), PIL.Image))
    if list(steps.shape(picture.size)) != given["shape"]:
        raise ValueError("it is not as large as the others")
    whole = stays_whole(picture.size, steps, given["slot"])
    return (picture, WHOLE) if whole else (steps.done(picture), DONE)


def stays_whole(size: tuple[int, int], steps: PictureSteps, slot: int) -> bool:
    """Return whether a picture is left as it was decoded.

    Args:
        size: Its width and height.
        steps: What is to be done with it.
        slot: Bytes of a slot.

    Returns:
        Whether it fits, and lies around what is cropped.

    Examples:
        >>> steps = PictureSteps(256, (224, 224), "bilinear", 3)
        >>> stays_whole((500, 375), steps, 786432), stays_whole((1000, 375), steps, 786432)
        (True, False)
    """
    return size[0] * size[1] * steps.channels <= slot and max(size) <= LONGEST and steps.inside(size)
