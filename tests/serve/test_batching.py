import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest

from nescio.modes.stopping import stop_where_wanted
from nescio.serve.batching import Batcher, Closed, Full


class Held:
    """Work that waits until it is let go, and remembers its batches."""

    def __init__(self) -> None:
        self.go, self.begun, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, key: Any, rows: list[int]) -> list[int]:
        self.begun.set()
        assert self.go.wait(10)
        self.batches.append((key, list(rows)))
        if 13 in rows:
            raise ValueError("13 is bad")
        return [row * 10 for row in rows]


def begun(work: Held, **settings: Any) -> tuple[Batcher, Future[list[int]]]:
    """A batcher whose thread is busy with one job."""
    batcher = Batcher(work, **({"size": 8, "wait": 0.0, "most": 100} | settings))
    first = batcher.submit("a", [0])
    assert work.begun.wait(10)
    return batcher, first


def test_jobs_that_wait_are_done_together_and_get_their_own_part():
    work = Held()
    batcher, first = begun(work)
    futures = [batcher.submit("a", rows) for rows in ([1], [2, 3], [4])]
    work.go.set()
    assert first.result(10) == [0]
    assert [future.result(10) for future in futures] == [[10], [20, 30], [40]]
    batcher.close()
    assert work.batches == [("a", [0]), ("a", [1, 2, 3, 4])]


def test_jobs_of_other_keys_are_done_apart():
    work = Held()
    batcher, _ = begun(work)
    futures = [batcher.submit(key, [row]) for row, key in enumerate("abab")]
    work.go.set()
    assert [future.result(10) for future in futures] == [[0], [10], [20], [30]]
    batcher.close()
    assert work.batches[1:] == [("a", [0, 2]), ("b", [1, 3])]


def test_a_batch_has_at_most_its_size_of_small_jobs():
    work = Held()
    batcher, _ = begun(work, size=2)
    futures = [batcher.submit("a", [row]) for row in range(5)]
    work.go.set()
    assert [future.result(10) for future in futures] == [[10 * row] for row in range(5)]
    batcher.close()
    assert [len(rows) for _, rows in work.batches] == [1, 2, 2, 1]


def test_waits_for_others():
    seen: list[int] = []
    batcher = Batcher(lambda key, rows: [*map(str, rows)], 2, 5.0, 100, lambda jobs, rows, seconds: seen.append(jobs))
    start = time.monotonic()
    first = batcher.submit("a", [1])
    time.sleep(0.05)
    second = batcher.submit("a", [2])
    assert (first.result(10), second.result(10)) == (["1"], ["2"])
    assert time.monotonic() - start < 4  # a full batch does not wait to the end
    batcher.close()
    assert seen == [2]


def test_one_bad_job_spoils_nothing_for_others():
    work = Held()
    batcher, _ = begun(work)
    good, bad, other = (batcher.submit("a", [row]) for row in (1, 13, 2))
    work.go.set()
    assert (good.result(10), other.result(10)) == ([10], [20])
    with pytest.raises(ValueError, match="13 is bad"):
        bad.result(10)
    assert batcher.submit("a", [5]).result(10) == [50]  # the thread goes on
    batcher.close()


def test_what_was_cancelled_is_left_out():
    work = Held()
    batcher, _ = begun(work)
    gone, there = batcher.submit("a", [1]), batcher.submit("a", [2])
    assert gone.cancel()
    work.go.set()
    assert there.result(10) == [20]
    batcher.close()
    assert work.batches[-1] == ("a", [2])
    assert batcher.waiting == 0


def test_too_much_is_sent_away():
    work = Held()
    batcher, first = begun(work, most=3)
    batcher.submit("a", [1, 2])
    with pytest.raises(Full):
        batcher.submit("a", [3])
    work.go.set()
    first.result(10)
    batcher.close()


def test_closing_finishes_what_waits():
    work = Held()
    batcher, _ = begun(work)
    futures = [batcher.submit("a", [row]) for row in range(3)]
    work.go.set()
    batcher.close()
    assert [future.result(0) for future in futures] == [[0], [10], [20]]
    assert not batcher.alive
    with pytest.raises(Closed):
        batcher.submit("a", [1])


def test_quick_work_goes_before_the_next_row_of_slow_work():
    work = Held()
    batcher, _ = begun(work)
    slow = batcher.submit("map", [1, 2, 3], slow=True)
    other = batcher.submit("map", [4], slow=True)
    quick = batcher.submit("a", [5])
    work.go.set()
    assert (slow.result(10), other.result(10), quick.result(10)) == ([10, 20, 30], [40], [50])
    batcher.close()
    assert work.batches == [("a", [0]), ("a", [5]), ("map", [1]), ("map", [4]), ("map", [2]), ("map", [3])]


def test_a_large_job_lets_others_in_between():
    work = Held()
    batcher, _ = begun(work, size=2)
    large, small = batcher.submit("a", [1, 2, 3, 4, 5]), batcher.submit("a", [6])
    work.go.set()
    assert (large.result(10), small.result(10)) == ([10, 20, 30, 40, 50], [60])
    batcher.close()
    assert [rows for _, rows in work.batches] == [[0], [1, 2], [6, 3], [4, 5]]


def test_work_is_given_up_when_nobody_waits_for_it_any_more():
    work = Held()
    batcher = Batcher(work, size=8, wait=0.0, most=100)
    gone = batcher.submit("map", list(range(50)), slow=True)
    assert work.begun.wait(10)
    assert batcher.waiting == 50
    assert gone.cancel()  # in the middle of its first row
    assert batcher.waiting == 0
    work.go.set()
    batcher.close()
    assert work.batches == [("map", [0])]


def test_closing_does_not_wait_for_ever():
    work = Held()
    batcher, running = begun(work)
    slow = batcher.submit("map", [1, 2], slow=True)
    batcher.close(0.05)
    for future in (running, slow):
        with pytest.raises(Closed):
            future.result(0)
    assert batcher.busy
    work.go.set()
    batcher.close()
    assert work.batches == [("a", [0])]
    assert not batcher.busy


def test_a_row_that_nobody_waits_for_is_given_up_at_the_next_forward_pass():
    passes, begun, cancelled = [], threading.Event(), threading.Event()

    def work(key: Any, rows: list[int]) -> list[int]:
        for _ in range(3):
            stop_where_wanted()
            passes.append(rows)
            begun.set()
            assert cancelled.wait(10)
        return rows

    batcher = Batcher(work, size=1, wait=0.0, most=100)
    gone = batcher.submit("map", [1], slow=True)
    assert begun.wait(10)
    gone.cancel()
    cancelled.set()
    assert batcher.submit("map", [2], slow=True).result(10) == [2]
    batcher.close()
    assert passes == [[1], [2], [2], [2]]
