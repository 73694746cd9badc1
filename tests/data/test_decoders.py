"""Processes that decode alone: the very pixels of the steps, problems in their turn, and none left behind."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from nescio.data import prefetch
from nescio.data.decoders import Decoders, can_decode
from nescio.data.prefetch import read_ahead
from nescio.data.processes import Processes
from nescio.data.sources import open_data
from nescio.models.sources import Pictures, Transformed
from nescio.types import InputError
from tests.child_processes import children
from tests.data.conftest import same_reads

image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes read on Linux alone")
COUNT, BROKEN = 30, (4, 5, 6, 7, 17)
STEPS = Pictures(resize=24, crop=(20, 20))


@pytest.fixture
def folder(tmp_path):
    """Pictures of many sizes and kinds, some of them broken."""
    draw = np.random.default_rng(0)
    for number in range(COUNT):
        file = tmp_path / f"{number:02d}.png"
        height, width = draw.integers(16, 60, 2)
        picture = image.fromarray(draw.integers(0, 256, (height, width, 3), dtype=np.uint8))
        kinds = {8: "L", 9: "RGBA", 10: "P", 11: "1", 12: "LA", 13: "CMYK"}
        turned = {}
        if number == 14:
            turned["exif"] = picture.getexif()
            turned["exif"][0x0112] = 6
        elif number == 15:
            picture = image.fromarray(draw.integers(0, 65536, (40, 30), dtype=np.uint16))
        picture = picture.convert(kinds[number]) if number in kinds else picture
        picture.save(file, "TIFF" if number == 13 else "PNG", **turned)
        if number in BROKEN:
            file.write_bytes(b"no picture")
    os.remove(tmp_path / "17.png")
    os.mkfifo(tmp_path / "17.png")
    return tmp_path


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_gives_the_same_bits(folder):
    truth = read_ahead(open_data(folder, preprocess=STEPS, on_error="skip"), ranges(5))
    for ours, theirs in zip(ahead(open_data(folder, preprocess=STEPS, on_error="skip"), 5), truth, strict=True):
        assert ours.batch.inputs.is_cuda and torch.equal(ours.batch.inputs.cpu(), theirs.batch.inputs)


@pytest.fixture
def started(lane, monkeypatch):
    """All processes that were started."""
    every, real = [], Decoders.__init__
    monkeypatch.setattr(Decoders, "__init__", lambda self, *given: (every.append(self), real(self, *given))[1])
    return every


def ranges(size):
    return [range(first, min(first + size, COUNT)) for first in range(0, COUNT, size)]


def ahead(rows, size, workers=2):
    return read_ahead(rows, ranges(size), workers=workers, device=torch.device("cuda"))


@pytest.mark.parametrize("size", [2, 4, 5])
@pytest.mark.parametrize(
    "steps",
    [STEPS, Pictures(resize=(30, 17)), Pictures(resize=80, crop=(20, 20), interpolation="bicubic", channels=1)],
    ids=str,
)
def test_batches_are_those_of_threads_bit_for_bit(folder, started, size, steps):
    rows = open_data(folder, preprocess=steps, on_error="skip")
    truth = list(read_ahead(open_data(folder, preprocess=steps, on_error="skip"), ranges(size), workers=2))
    for ours, theirs in zip(ahead(rows, size), truth, strict=True):
        assert same_reads(ours, theirs)
        assert ours.batch is None or ours.batch.inputs.is_contiguous()
    assert len(started) == 1
    assert [problem.index for problem in rows.problems] == list(BROKEN)


def test_the_processes_do_the_work_and_leave_what_is_not_plain(folder, started, monkeypatch):
    rows = open_data(folder, preprocess=STEPS, on_error="skip")
    assert can_decode(rows)
    asked, real = [], type(rows).attempt
    monkeypatch.setattr(type(rows), "attempt", lambda self, index: (asked.append(index), real(self, index))[1])
    list(ahead(rows, 5))
    assert sorted(asked) == list(BROKEN)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_there_may_be_more_processes_than_rows_or_fewer(folder, started, count):
    truth = read_ahead(open_data(folder, preprocess=STEPS, on_error="skip"), ranges(2))
    for ours, theirs in zip(ahead(open_data(folder, preprocess=STEPS, on_error="skip"), 2, count), truth, strict=True):
        assert same_reads(ours, theirs)


@pytest.mark.parametrize("first", ["plain", "large", "broken", "pipe"])
def test_memory_to_wait_in_is_as_large_as_the_first_picture_says(tmp_path, first):
    file = tmp_path / "00.png"
    image.new("RGB", (900, 700) if first == "large" else (30, 24)).save(file)
    image.new("RGB", (40, 40)).save(tmp_path / "01.png")
    if first in ("broken", "pipe"):
        file.write_bytes(b"no picture")
    if first == "pipe":
        file.unlink()
        os.mkfifo(file)
    decoders = Decoders(open_data(tmp_path, preprocess=STEPS, on_error="skip"), 1, 2, 1)
    try:
        bytes_of = {"plain": 30 * 24 * 3, "large": 20 * 20 * 3}
        assert decoders.likely == bytes_of.get(first, 3 << 18)
    finally:
        decoders.close()


def test_large_pictures_and_those_that_are_too_small_are_finished_there(tmp_path, lane):
    draw = np.random.default_rng(0)
    for number, shape in enumerate([(700, 900), (10, 12), (600, 24), (30, 3000), (24, 24), (20, 20)] * 2):
        image.fromarray(draw.integers(0, 256, (*shape, 3), dtype=np.uint8)).save(tmp_path / f"{number:02d}.png")
    for steps in (Pictures(resize=24, crop=(20, 20)), Pictures(crop=(26, 20))):
        rows = open_data(tmp_path, preprocess=steps)
        some = [range(first, first + 2) for first in range(0, 12, 2)]
        found = read_ahead(rows, some, workers=2, device=torch.device("cuda"))
        for ours, theirs in zip(found, read_ahead(rows, some), strict=True):
            assert torch.equal(ours.batch.inputs, theirs.batch.inputs)


def test_rows_of_another_form_are_told_in_the_usual_words(tmp_path, lane):
    for number in range(12):
        image.new("RGB", (30 + number // 10, 20)).save(tmp_path / f"{number:02d}.png")
    reads = read_ahead(
        open_data(tmp_path, preprocess=Pictures()),
        [range(k, k + 2) for k in range(0, 12, 2)],
        device=torch.device("cuda"),
    )
    with pytest.raises(InputError, match=r"10.png \(row 10\): expected \[3, 20, 30\] .* got \[3, 20, 31\]"):
        list(reads)


def test_a_problem_is_raised_in_its_turn(folder, started):
    reads = ahead(open_data(folder, preprocess=STEPS), 2)
    assert [next(reads).places, next(reads).places] == [range(0, 2), range(2, 4)]
    with pytest.raises(InputError, match=r"04.png \(row 4\): it is not a picture"):
        next(reads)
    assert started[0]._process.returncode is not None


def test_settings_of_pillow_hold_there_too(folder, lane, monkeypatch):
    import PIL.ImageFile

    whole = (folder / "00.png").read_bytes()
    (folder / "00.png").write_bytes(whole[: len(whole) * 2 // 3])
    rows = open_data(folder, preprocess=STEPS, on_error="skip")
    list(ahead(rows, 5))
    assert 0 in [problem.index for problem in rows.problems]
    small = {index for index in range(COUNT) if index not in BROKEN and _pixels(folder / f"{index:02d}.png") <= 1000}
    monkeypatch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 1000)
    monkeypatch.setattr(type(rows), "attempt", lambda self, index: prefetch.Problem(index, "", "left"))
    rows = open_data(folder, preprocess=STEPS, on_error="skip")
    list(ahead(rows, 5))
    kept = set(range(COUNT)) - {problem.index for problem in rows.problems}
    assert kept == small and 0 < len(kept) < COUNT - len(BROKEN)


def test_what_is_not_known_or_cannot_start_is_read_otherwise(folder, lane, monkeypatch):
    truth = [read.batch for read in read_ahead(open_data(folder, preprocess=STEPS, on_error="skip"), ranges(5))]

    def check():
        for ours, theirs in zip(ahead(open_data(folder, preprocess=STEPS, on_error="skip"), 5), truth, strict=True):
            assert torch.equal(ours.batch.inputs, theirs.inputs)

    with monkeypatch.context() as patch:
        patch.setattr("nescio.data.decoders.command", lambda given: [sys.executable, "-c", "1 / 0"])
        check()
    forked, real = [], Processes.__init__
    monkeypatch.setattr(Processes, "__init__", lambda self, *given: (forked.append(self), real(self, *given))[1])
    with monkeypatch.context() as patch:
        patch.setattr(os, "memfd_create", lambda name: (_ for _ in ()).throw(OSError("not permitted")))
        check()
    assert len(forked) == 1
    assert not can_decode(open_data(folder, preprocess=Transformed(lambda picture: picture, "mine")))
    assert not can_decode(open_data(folder, on_error="skip"))

    class Mine(Pictures):
        def __call__(self, row):
            return super().__call__(row).flip(0)

    assert not can_decode(open_data(folder, preprocess=Mine(resize=24, crop=(20, 20)), on_error="skip"))


def test_a_process_that_was_ended_is_told_and_none_is_left(folder, started):
    reads = ahead(open_data(folder, preprocess=STEPS, on_error="skip"), 2)
    next(reads)
    (decoders,) = started
    mine = children(decoders._process.pid)
    assert len(mine) == 2
    os.kill(mine[0], signal.SIGKILL)
    decoders._process.wait(10)
    with pytest.raises(InputError, match="but the process that read them was killed, perhaps because"):
        list(reads)
    assert not any(map(_alive, mine))


def test_closing_ends_them_and_leaves_no_file_open(folder, started):
    before = _open_files()
    reads = ahead(open_data(folder, preprocess=STEPS, on_error="skip"), 2)
    next(reads)
    (decoders,) = started
    mine = children(decoders._process.pid)
    assert len(mine) == 2 and all(map(_alive, mine))
    reads.close()
    assert not any(map(_alive, [decoders._process.pid, *mine]))
    threads = threading.enumerate
    _wait_until(lambda: "nescio-free" not in [thread.name for thread in threads()])  # it lets go of the memory
    assert _open_files() == before


@pytest.mark.parametrize("end", ["exhausted", "closed", "failed"])
def test_operations_take_one_thread_while_processes_take_all_cores(folder, started, end):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        reads = ahead(open_data(folder, preprocess=STEPS, on_error="stop" if end == "failed" else "skip"), 2)
        next(reads)
        assert torch.get_num_threads() == 1 and len(started) == 1
        if end == "closed":
            reads.close()
        elif end == "failed":
            with pytest.raises(InputError):
                list(reads)
        else:
            assert all(torch.get_num_threads() == 1 for _ in reads)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_they_end_with_the_interpreter(folder):
    code = f"""
from nescio.data.decoders import Decoders
from nescio.data.sources import open_data
from nescio.models.sources import Pictures
def asked():
    decoders = Decoders(open_data({str(folder)!r}, preprocess=Pictures(resize=24, crop=(20, 20))), 2, 4, 1)
    try:
        decoders.read(0, range(2))
        yield decoders.slots(0, 2)
    finally:
        decoders.close()
        print("closed")
left = asked()
next(left)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


@pytest.mark.parametrize("whom", ["first", "asked"])
def test_they_end_with_the_process_that_they_work_for(folder, whom):
    code = f"""
import time
from nescio.data.decoders import Decoders
from nescio.data.sources import open_data
from nescio.models.sources import Pictures
decoders = Decoders(open_data({str(folder)!r}, preprocess=Pictures(resize=24, crop=(20, 20))), 2, 4, 1)
decoders.read(0, range(2))
decoders.slots(0, 2)
print(decoders._process.pid, flush=True)
time.sleep(60)
"""
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    first = int(run.stdout.readline())
    mine = children(first)
    assert len(mine) == 2 and all(map(_alive, [first, *mine]))
    if whom == "first":
        os.kill(first, signal.SIGKILL)
        _wait_until_ended(mine)
    run.kill()
    run.wait()
    run.stdout.close()
    _wait_until_ended([first, *mine])


def _wait_until_ended(processes):
    _wait_until(lambda: not any(map(_alive, processes)))


def _wait_until(true):
    end = time.monotonic() + 10
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    assert true()


def _pixels(file):
    with image.open(file) as opened:
        return opened.width * opened.height


def _open_files():
    """Pipes and files in memory."""
    gc.collect()  # those of tests before
    names = [_name(number) for number in os.listdir("/proc/self/fd")]
    return sorted(name for name in names if name.startswith(("pipe:", "/memfd:")))


def _name(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:  # the one by which they were listed
        return ""


def _alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
