"""Chunks: all of the work once, in order, and half as much at once when memory runs out."""

import pytest
import torch

from nescio._common.chunking import at_once, in_chunks


def test_every_part_once_and_in_order() -> None:
    assert in_chunks(7, 3, lambda a, b: (a, b)) == [(0, 3), (3, 6), (6, 7)]
    assert in_chunks(0, 3, lambda a, b: (a, b)) == []


OUT = [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("CPU: can't allocate memory")]


@pytest.mark.parametrize("error", OUT)
def test_out_of_memory_halves_the_chunk_and_goes_on(error: Exception) -> None:
    tried = []

    def step(start: int, stop: int) -> list[int]:
        tried.append(stop - start)
        if stop - start > 2:
            raise error
        return list(range(start, stop))

    assert [row for part in in_chunks(9, 8, step) for row in part] == list(range(9))
    assert tried == [8, 4, 2, 2, 2, 2, 1]


def test_one_row_that_does_not_fit_is_an_error() -> None:
    def step(start: int, stop: int) -> None:
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        in_chunks(4, 4, step)


def test_other_errors_are_not_tried_again() -> None:
    tried = []

    def step(start: int, stop: int) -> None:
        tried.append(stop)
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        in_chunks(4, 4, step)
    assert tried == [4]


def test_how_many_at_once() -> None:
    assert at_once(torch.empty(3, 10), None) == 256
    assert at_once(torch.empty(3, 3, 32, 32), None) == 42
    assert at_once(torch.empty(3, 3, 224, 224), None) == 4
    assert at_once({"a": torch.empty(1, 2**21), "b": torch.empty(1, 2**20)}, None) == 1
    assert at_once(torch.empty(1, 2**30, device="meta"), None) == 1
    assert at_once(torch.empty(3, 10), 5) == 5
