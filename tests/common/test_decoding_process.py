"""What a process that decodes does: it starts quickly, asks for no memory again and again, and writes all."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from nescio._common import decoding_process
from nescio.data.decoders import Decoders
from nescio.data.sources import open_data
from nescio.models.sources import Pictures
from tests.child_processes import children

image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="they are started on Linux alone")
COUNT, ROOMS = 32, 5


@contextmanager
def started(folder):
    image.effect_noise((500, 375), 50).convert("RGB").save(folder / "000.jpg")
    for number in range(1, COUNT * ROOMS):
        os.link(folder / "000.jpg", folder / f"{number:03d}.jpg")
    decoders = Decoders(open_data(folder, preprocess=Pictures(crop=(20, 20))), 2, COUNT, ROOMS)
    try:
        yield decoders
    finally:
        decoders.close()


def test_they_are_started_without_torch():
    code = "import sys, nescio._common.decoding_process; print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == ["False"] * 2


def test_they_map_no_memory_for_each_picture(tmp_path):
    with started(tmp_path) as decoders:
        faults = []
        for room in range(ROOMS):
            decoders.read(room, range(COUNT * room, COUNT * (room + 1)))
            assert all(slot.width == 500 for slot in decoders.slots(room, COUNT))
            faults.append(sum(map(_faults, children(decoders._process.pid))))
    assert (faults[-1] - faults[0]) / COUNT / (ROOMS - 1) < 60  # a picture takes 137 pages


def test_they_keep_the_memory_of_a_picture_for_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")  # what a person says goes before
    with started(tmp_path) as decoders:
        decoders.read(0, range(2))
        decoders.slots(0, 2)
        told = Path(f"/proc/{decoders._process.pid}/environ").read_text().split("\0")
    assert f"MALLOC_TRIM_THRESHOLD_={1 << 26}" in told and "MALLOC_MMAP_THRESHOLD_=1000000" in told


def test_what_is_written_in_parts_is_whole(monkeypatch):
    file, real = os.memfd_create("test"), os.pwrite
    try:
        monkeypatch.setattr(os, "pwrite", lambda number, data, start: real(number, data[:1000], start))
        decoding_process._write(file, bytes(range(256)) * 10, 100)
        assert os.pread(file, 10000, 0) == bytes(100) + bytes(range(256)) * 10
    finally:
        os.close(file)


def _faults(process):
    """Pages that a process was given so far."""
    with open(f"/proc/{process}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[7])
