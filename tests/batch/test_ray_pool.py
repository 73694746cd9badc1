"""Workers that are lost, late or never there, without a Ray: each part comes back once, and few are held at a time."""

import pickle
import random
from types import SimpleNamespace
from weakref import WeakSet

import pytest

from nescio.batch import ray_pool
from nescio.batch.columns import Scores
from nescio.batch.ray_pool import AHEAD, Ranges, results
from nescio.batch.ray_worker import ATTEMPTS, PartResult
from nescio.types import ModelError


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class Reference:
    def __init__(self, work):
        self.work, self.there, self.value = work, False, None


class Worker:
    """It does its calls in order, each when the ray says so."""

    def __init__(self, ray):
        self.ray, self.alive, self.calls = ray, True, []
        self.ready = SimpleNamespace(remote=lambda: self.call(self.ray.begin))
        self.score = SimpleNamespace(remote=lambda *given: self.call(self.ray.do, *given))
        ray.workers.append(self)

    def call(self, work, *given):
        made = Reference((work, given))
        self.calls.append(made)
        self.ray.alive.add(made)
        self.ray.most = max(self.ray.most, len(self.ray.alive))
        return made

    def go_on(self):
        call = self.calls.pop(0)
        work, given = call.work
        try:
            call.value, call.there = work(*given), True
        except RayTaskError as error:
            call.value, call.there = error, True
        except RayError:
            self.calls.insert(0, call)
            self.ray.kill(self)


class Ray:
    """A Ray in which one worker at a time goes on, and some are lost."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, do, seed=0, begin=lambda: None):
        self.do, self.begin, self.random = do, begin, random.Random(seed)
        self.workers, self.alive, self.most = [], WeakSet(), 0

    def wait(self, ones, num_returns, timeout=None, fetch_local=True):
        assert len(set(ones)) == len(ones) >= num_returns
        while timeout is None and not any(one.there for one in ones):
            self.random.choice([worker for worker in self.workers if worker.calls]).go_on()
        found = [one for one in ones if one.there]
        self.random.shuffle(found)
        return found[:num_returns], []

    def get(self, one, timeout=None):
        assert one.there
        if isinstance(one.value, Exception):
            raise one.value
        return one.value

    def kill(self, worker, no_restart=True):
        worker.alive = False
        for call in worker.calls:
            call.value, call.there = RayError("lost\nat its place"), True
        worker.calls = []
        if worker in self.workers:
            self.workers.remove(worker)


@pytest.fixture
def played(monkeypatch):
    def play(do, parts, workers=3, seed=0, feed=None, **more):
        ray = Ray(do, seed, **more)
        monkeypatch.setattr(ray_pool, "need", lambda *_: ray)
        play.ray = ray
        yield from results(feed or Ranges(parts), lambda: Worker(ray), workers)

    return play


def given_back(start, stop, attempts, table):
    return pickle.dumps(PartResult(start, Scores({}, [], {}), 0.0, attempts))


def parts(count):
    return [range(start, start + 4) for start in range(0, 4 * count, 4)]


@pytest.mark.parametrize("seed", range(5))
def test_each_part_is_given_back_once_though_workers_are_lost_and_what_is_held_does_not_grow(played, seed):
    held = {}
    for count in (100, 3000):
        chance, lost = random.Random(seed), []

        def do(start, *rest, chance=chance, lost=lost):
            if chance.random() < 0.02:
                lost.append(start)
                raise RayError
            return given_back(start, *rest)

        found = list(played(do, parts(count), seed=seed))
        assert sorted(one.start for one in found) == [part.start for part in parts(count)]
        assert {one.start: one.attempts - 1 for one in found if one.attempts > 1} == {
            start: lost.count(start) for start in lost
        }
        assert not played.ray.workers  # none is left behind
        held[count] = played.ray.most
    assert held[3000] <= 2 * 3 * (AHEAD + 1) + 6  # calls and their successors, and a lost worker's


def test_workers_have_another_part_before_what_they_gave_is_taken(played):
    taken = played(given_back, parts(50), workers=2)
    for _ in range(40):
        next(taken)
        assert sum(len(worker.calls) for worker in played.ray.workers) >= 1
    taken.close()
    assert not played.ray.workers


def test_a_part_that_ends_its_workers_is_counted_and_its_neighbours_are_not(played):
    def do(start, stop, attempts, table):
        if start == 8 and attempts <= ATTEMPTS:
            raise RayError
        return given_back(start, stop, attempts, table)

    found = {one.start: one.attempts for one in played(do, parts(20))}
    assert found.pop(8) == ATTEMPTS + 1
    assert set(found.values()) == {1} and len(found) == 19


def test_workers_that_never_begin_are_an_error_and_one_that_is_late_is_not_waited_for(played, monkeypatch):
    def never():
        raise RayError

    with pytest.raises(ModelError, match=r"5 workers of Ray were lost before they had begun; was .* \(lost"):
        list(played(given_back, parts(3), begin=never))
    assert not played.ray.workers

    def wrong():
        raise RayTaskError("no module named x")

    with pytest.raises(RayTaskError, match="no module named x"):
        list(played(given_back, parts(3), begin=wrong))

    class Late(Ray):
        def wait(self, ones, **more):
            for worker in self.workers[1:]:
                worker.calls = []
            return super().wait(ones, **more)

    late = Late(given_back)
    monkeypatch.setattr(ray_pool, "need", lambda *_: late)
    assert len(list(results(Ranges(parts(9)), lambda: Worker(late), 3))) == 9


def test_rows_that_were_lost_on_their_way_are_read_by_the_worker(played):
    class Sent:
        """Parts come with references to their rows, and one by one."""

        def __init__(self, count):
            self.left, self.here = parts(count), []

        def coming(self):
            if not self.left or self.here:
                return []
            one = Reference(None)
            one.there = True
            return [one]

        def came(self, one):
            self.here.append((self.left.pop(0), one))

        def take(self):
            return self.here.pop() if self.here else None

    asked = []

    def do(start, stop, attempts, table):
        asked.append((start, table == b""))
        if start == 4 and table != b"":
            raise RayTaskError("its rows are gone")
        if start == 12 and table != b"":
            raise RayError
        return given_back(start, stop, attempts, table)

    found = {one.start: one.attempts for one in played(do, None, feed=Sent(6))}
    assert found == {0: 1, 4: 1, 8: 1, 12: 2, 16: 1, 20: 1}
    assert (4, True) in asked and (12, True) in asked
    assert (0, False) in asked  # others had theirs

    def broken(*given):
        raise RayTaskError("by the worker itself")

    with pytest.raises(RayTaskError, match="by the worker itself"):
        list(played(broken, parts(3)))


def test_nothing_to_do_is_nothing(played):
    assert list(played(given_back, [])) == []
