"""Reading ahead: the same batches in the same order, problems in their turn, and never much more than is used."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
import torch

from nescio import inputs
from nescio.data import prefetch
from nescio.data.decoders import Decoders
from nescio.data.prefetch import _bytes, _Stage, batches_ahead, read_ahead
from nescio.data.sources import Rows, open_data
from nescio.models.sources import Pictures
from nescio.types import InputError

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes read on Linux alone")


@pytest.fixture
def rows(tmp_path):
    x = np.arange(60, dtype=np.float32).reshape(30, 2)
    x[[4, 5, 6, 7, 17], 1] = np.nan
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(30))
    return lambda on_error="skip": open_data(tmp_path / "x.npz", on_error=on_error)


def ranges(size, start=0):
    return [range(first, min(first + size, 30)) for first in range(start, 30, size)]


@pytest.mark.parametrize("workers", [None, 1, 3])
@pytest.mark.parametrize("size", [1, 4, 7, 100])
def test_batches_are_those_of_the_rows_themselves(rows, workers, size):
    plain = rows()
    truth = list(plain.batches(size))
    found = list(read_ahead(rows(), ranges(size), workers=workers))
    assert [read.places for read in found] == ranges(size)
    batches = [read.batch for read in found if read.batch is not None]
    assert len(batches) == len(truth)
    for ours, theirs in zip(batches, truth, strict=True):
        assert ours.names == theirs.names
        for a, b in zip(
            (ours.indices, ours.inputs, ours.labels), (theirs.indices, theirs.inputs, theirs.labels), strict=True
        ):
            assert torch.equal(a, b)
    assert [problem for read in found for problem in read.problems] == plain.problems
    assert all(problem.index in read.places for read in found for problem in read.problems)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_batches_read_ahead_are_those_of_the_rows_in_their_order(rows, size):
    plain, ahead = rows(), rows()
    truth, found = list(plain.batches(size)), list(batches_ahead(ahead, size))
    assert [one.names for one in found] == [one.names for one in truth] and ahead.problems == plain.problems
    assert all(torch.equal(ours.inputs, theirs.inputs) for ours, theirs in zip(found, truth, strict=True))
    reads = batches_ahead(rows("stop"), 3)
    next(reads)
    with pytest.raises(InputError, match=r"x.npz\[4\] \(row 4\): it has NaN"):
        next(reads)
    assert not [one for one in threading.enumerate() if one.name.startswith("nescio-read")]


def test_rows_of_which_none_can_be_used_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.full((3, 2), np.nan, np.float32))
    with pytest.raises(InputError, match="none of the 3 rows can be used; the first: "):
        list(batches_ahead(open_data(tmp_path / "x.npz", on_error="skip"), 2))


def test_a_problem_is_raised_in_its_turn(rows):
    reads = read_ahead(rows("stop"), ranges(2), workers=2)
    assert [next(reads).places, next(reads).places] == [range(0, 2), range(2, 4)]
    with pytest.raises(InputError, match=r"x.npz\[4\] \(row 4\): it has NaN"):
        next(reads)


def test_no_more_is_read_than_a_few_batches_ahead_and_closing_ends_the_threads(rows, monkeypatch):
    asked, real = set(), Rows.attempt
    monkeypatch.setattr(Rows, "attempt", lambda self, index: (asked.add(index), real(self, index))[1])
    reads = read_ahead(rows(), ranges(5), workers=1)
    next(reads)
    end = time.monotonic() + 10
    while max(asked) < 19 and time.monotonic() < end:  # three more batches are read while the first is in use
        time.sleep(0.01)
    time.sleep(0.1)
    assert max(asked) == 19
    reads.close()
    assert not [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("nescio-read", "nescio-join"))
    ]
    assert max(asked) == 19
    assert list(read_ahead(rows(), [])) == []


def test_threads_read_side_by_side(rows, monkeypatch):
    together = threading.Barrier(3, timeout=10)  # three rows at a time, or none
    real = Rows.attempt
    monkeypatch.setattr(Rows, "attempt", lambda self, index: (together.wait(), real(self, index))[1])
    assert len(list(read_ahead(rows(), ranges(6), workers=3))) == 5


def test_a_thread_that_reads_computes_alone_and_others_are_as_they_were(rows, monkeypatch):
    seen, real, before = [], Rows.attempt, torch.get_num_threads()
    monkeypatch.setattr(
        Rows, "attempt", lambda self, index: (seen.append(torch.get_num_threads()), real(self, index))[1]
    )
    torch.set_num_threads(3)
    try:
        for _ in read_ahead(rows(), ranges(6), workers=2):
            assert torch.get_num_threads() == 3
        with ThreadPoolExecutor(1) as pool:  # a new thread too
            assert pool.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


@pytest.mark.parametrize("names", [None, ("ids", "mask")])
def test_a_batch_waits_in_memory_that_is_kept(monkeypatch, names):
    made, empty = [], torch.empty

    def pinned(size, pin_memory, **more):
        made.append((size, pin_memory))
        return empty(size, **more)

    def batch(rows):
        x = torch.arange(3.0 * rows).view(rows, 3).t()[:, :rows]  # not contiguous
        return x if names is None else {"ids": x.long(), "mask": x > 2}

    stage = _Stage()
    monkeypatch.setattr(torch, "empty", pinned)
    assert not stage.fits(batch(5))
    stage.reserve(_bytes(batch(5)))
    for size in (5, 2, 5):
        assert stage.fits(batch(size))
        held = stage.hold(batch(size))
        for ours, theirs in zip(inputs.tensors(held), inputs.tensors(batch(size)), strict=True):
            assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype and ours.is_contiguous()
            assert ours.untyped_storage().data_ptr() == stage.memory.data_ptr()
        stage.reserve(_bytes(batch(size)))
    assert not stage.fits(batch(50))
    assert made == [(64 if names is None else 256, True)]  # a power of two


def test_what_lies_in_the_memory_that_a_batch_waits_in_is_not_copied(monkeypatch):
    stage = _Stage()
    stage.memory = torch.zeros(1024, dtype=torch.uint8)
    pixels = stage.empty((2, 3, 100))
    assert pixels.data_ptr() == stage.memory.data_ptr()
    assert stage.empty((2000,)).data_ptr() != stage.memory.data_ptr()
    copied, real = [], torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: (copied.append(len(other)), real(self, other))[1])
    held = stage.hold({"pixels": pixels.fill_(7), "from": torch.arange(5)})
    assert held["pixels"] is pixels and copied == [5]
    assert held["from"].tolist() == [0, 1, 2, 3, 4] and bool((pixels == 7).all())


@pytest.fixture
def pictures(tmp_path, lane):
    """Read 12 pictures by processes, two at a time."""
    image = pytest.importorskip("PIL.Image")
    for number in range(12):
        image.new("RGB", (300, 200), (number, 0, 0)).save(tmp_path / f"{number:02d}.png")
    some, where = [range(k, k + 2) for k in range(0, 12, 2)], torch.device("cuda")
    return lambda: read_ahead(open_data(tmp_path, preprocess=Pictures(crop=(20, 20))), some, workers=1, device=where)


@on_linux
def test_the_thread_that_asks_copies_nothing(pictures, monkeypatch):
    seen, hold, pixels = [], _Stage.hold, Decoders.pixels

    def noted(work):
        return lambda *given: (seen.append((work, threading.current_thread().name)), work(*given))[1]

    monkeypatch.setattr(_Stage, "hold", noted(hold))
    monkeypatch.setattr(Decoders, "pixels", noted(pixels))
    assert [read.batch.inputs[0, 0, 0, 0].mul(255).round().item() for read in pictures()] == [0, 2, 4, 6, 8, 10]
    assert {work for work, _ in seen} == {hold, pixels}
    assert all(thread.startswith("nescio-join") for _, thread in seen)


@on_linux
def test_as_many_batches_are_read_while_the_model_works_on_one_and_has_the_next(pictures, monkeypatch):
    asked, ready, ask, join = [], [], Decoders.read, prefetch._decoded
    monkeypatch.setattr(prefetch, "DEPTH", 2)
    monkeypatch.setattr(Decoders, "read", lambda self, *given: (asked.append(given), ask(self, *given))[1])
    monkeypatch.setattr(prefetch, "_decoded", lambda *given: (join(*given), ready.append(given))[0])
    with closing(pictures()) as reads:
        next(reads)
        end = time.monotonic() + 10
        while len(ready) < len(asked) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.05)  # until the last is told to be done
        next(reads)
        assert len(asked) == 5  # two were taken, the third is sent, and two are read


def test_what_a_row_cannot_help_is_raised(rows, monkeypatch):
    def out(self, index):
        raise MemoryError("full")

    monkeypatch.setattr(Rows, "attempt", out)
    with pytest.raises(MemoryError, match="full"):
        next(read_ahead(rows(), ranges(4)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_batches_come_to_the_gpu(rows):
    device, ahead = torch.device("cuda"), read_ahead(rows(), ranges(2))  # more batches than there is memory to wait in
    for ours, theirs in zip(read_ahead(rows(), ranges(2), device=device), ahead, strict=True):
        assert (ours.batch is None) == (theirs.batch is None)
        if ours.batch is not None:
            assert ours.batch.inputs.is_cuda
            assert torch.equal(ours.batch.inputs.cpu(), theirs.batch.inputs)
