"""What ticks does so after each wait, and never after its block."""

import time
from itertools import islice, repeat

import pytest

from nescio._common.ticking import ever_rarer, ticking


def test_it_is_done_after_each_wait_and_not_after_the_block() -> None:
    times: list[float] = []
    began = time.monotonic()
    with ticking([0.05, 0.2], lambda: times.append(time.monotonic() - began)):
        time.sleep(0.6)
    assert len(times) == 2 and times[0] >= 0.05 and times[1] >= 0.25
    with ticking(repeat(0.02), lambda: times.append(0.0)):
        time.sleep(0.2)
    done = len(times)
    time.sleep(0.1)
    assert len(times) == done > 3


def test_a_block_that_fails_ends_it() -> None:
    times: list[float] = []
    with pytest.raises(KeyError), ticking([0.1], lambda: times.append(0.0)):
        raise KeyError
    time.sleep(0.2)
    assert not times


def test_waits_grow_up_to_the_longest() -> None:
    assert list(islice(ever_rarer(2.0, 8.0, 30.0), 6)) == [2.0, 8.0, 16.0, 30.0, 30.0, 30.0]
