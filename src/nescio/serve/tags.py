"""Notes in picture files (EXIF, and the directory of a TIFF), looked at before Pillow reads them.

A directory lists tags, each with the place and the length of its data. Nothing keeps thousands of tags from naming the
same megabytes, of which Pillow makes a copy for each: a file of 2 MB then takes gigabytes, and minutes. In an honest
file the data of all tags together fit into it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain

HEADS = {b"II*\0": ("<", False), b"MM\0*": (">", False), b"II+\0": ("<", True), b"MM\0+": (">", True)}
"""How a directory begins: the order of its bytes, and whether its numbers are of 64 bits."""
UNITS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""Bytes of a value by its type."""
INNER = (34665, 34853, 40965)
"""Tags whose value is the place of another directory."""
MOST = 100_000
"""Tags that are looked at."""


def honest(data: bytes) -> bool:
    """Whether all that the tags of a picture file name would fit into it."""
    room, left = 2 * len(data) + 2**16, MOST
    for block in _blocks(data):
        for size in chain((0,), _sizes(block)):
            room, left = room - size, left - 1
            if room < 0 or left < 0:
                return False
    return True


def _blocks(data: bytes) -> Iterator[memoryview]:
    """Every place where a directory may begin, to the end; and the notes of a JPEG, which may be cut into segments."""
    for head in HEADS:
        at = data.find(head)
        while at >= 0:
            yield memoryview(data)[at:]
            at = data.find(head, at + 1)
    if data.startswith(b"\xff\xd8"):
        yield memoryview(b"".join(part[6:] for part in _segments(data) if part.startswith(b"Exif\0\0")))


def _segments(data: bytes) -> Iterator[bytes]:
    """The segments of a JPEG before its pixels, as Pillow finds them."""
    at = data.find(b"\xff", 2)
    while 0 <= at < len(data) - 3:
        kind, length = data[at + 1], 0
        if kind == 0xDA:
            return
        if kind == 0xFF:
            at += 1
            continue
        if kind not in (0x00, 0x01) and not 0xD0 <= kind <= 0xD9:
            length = int.from_bytes(data[at + 2 : at + 4], "big")
            yield data[at + 4 : at + 2 + length]
        at = data.find(b"\xff", at + 2 + length)


def _sizes(block: memoryview) -> Iterator[int]:
    """The bytes that each tag names, of the first directory of a block and of those in it; nothing of a broken one."""
    if len(block) < 16 or bytes(block[:4]) not in HEADS:
        return
    order, wide = HEADS[bytes(block[:4])]
    entry = struct.Struct(order + ("HHQQ" if wide else "HHLL"))
    number, most = struct.Struct(order + ("Q" if wide else "L")), 8 if wide else 4
    count_of = number if wide else struct.Struct(order + "H")
    waiting, seen = [number.unpack_from(block, most)[0]], set()
    while waiting:
        start = waiting.pop()
        if start in seen or start + count_of.size > len(block):
            continue
        seen.add(start)
        count = count_of.unpack_from(block, start)[0]
        start += count_of.size
        for at in range(start, min(start + count * entry.size, len(block) - entry.size + 1), entry.size):
            tag, kind, values, place = entry.unpack_from(block, at)
            size = values * UNITS.get(kind, 0)
            yield max(0, min(size, len(block) - place)) if size > most else 0
            if tag in INNER:
                waiting.append(place)
