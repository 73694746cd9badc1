"""Plans: what follows from what was measured, whatever that was."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nescio.batch.job_plan import Cost, Costs, Crew, good_part_rows, make_plan, span
from nescio.batch.plan_advice import changes

seconds = st.floats(1e-6, 1.0)


def cost(middle, spread=0.0, cpu=None):
    return Cost(middle, middle * (1 - spread), middle * (1 + spread), middle if cpu is None else cpu)


def costs(decode=0.001, transfer=0.0, compute=0.01, store=1e-4, **more):
    known = {
        "friction": 0.0, "cpu": decode + store, "part": 0.01, "start": 5.0, "start_cpu": 4.0, "ray_start": 20.0,
        "ray_cpu": 9.0, "worker_start": 5.0, "worker_cpu": 4.5,
        "batch": 64, "threads": 1, "numbers": True, "row_bytes": 40.0, "driver_bytes": 5e8, "driver_row_bytes": 100.0,
    }  # fmt: skip
    stages = (cost(decode), cost(transfer), cost(compute, cpu=0.0), cost(store))
    return Costs(*stages, **{**known, **more})


FILES = costs(decode=0.1, numbers=False, cpu=0.0)
any_costs = st.builds(
    lambda d, t, c, s, f, cpu: costs(d, t, c, s, friction=f * min(d, c), cpu=cpu),
    seconds, st.floats(0, 0.1), seconds, seconds, st.floats(0, 1), st.floats(1e-6, 0.1),
)  # fmt: skip
any_crew = st.builds(
    lambda workers, each: Crew("ray", workers, workers * each), st.integers(1, 500), st.integers(1, 16)
)
any_rows = st.integers(1, 10**10)
any_part = st.integers(1, 10**5).map(lambda batches: 64 * batches)


@given(any_costs, any_crew, any_rows, any_part, st.integers(1, 50))
def test_more_workers_with_their_cores_never_do_the_work_later(known, crew, rows, part, more):
    each = crew.cores // crew.workers
    larger = Crew("ray", crew.workers + more, each * (crew.workers + more))
    few, many = make_plan(known, crew, rows, part), make_plan(known, larger, rows, part)
    assert many.seconds <= few.seconds * (1 + 1e-9)


@given(any_costs, any_crew, any_rows, any_part)
def test_the_bottleneck_is_the_largest_stage_and_no_stage_takes_longer_than_all(known, crew, rows, part):
    plan = make_plan(known, crew, rows, part)
    assert plan.stages[plan.bottleneck] == max(plan.stages.values())
    assert plan.seconds >= plan.start + max(plan.stages.values()) * (1 - 1e-9)
    assert plan.parts * part >= rows > (plan.parts - 1) * part
    assert 0 <= plan.idle < 1
    assert plan.worker_hours == pytest.approx(plan.seconds * crew.workers / 3600)


@given(any_costs, any_crew, any_rows, any_part, st.sampled_from(["decode", "transfer", "compute", "store"]))
def test_a_dearer_stage_never_makes_it_quicker(known, crew, rows, part, name):
    dearer = replace(known, **{name: cost(2 * getattr(known, name).seconds + 1e-6, cpu=0.0)})
    assert make_plan(dearer, crew, rows, part).seconds >= make_plan(known, crew, rows, part).seconds * (1 - 1e-9)


@given(any_costs, any_rows, st.integers(1, 64), st.integers(1, 8))
def test_one_process_reads_while_it_computes_and_does_no_less_than_its_largest_stage(known, rows, cores, readers):
    plan = make_plan(known, Crew("local", 1, cores, readers), rows, 64)
    loop = max(known.decode.seconds / readers, known.transfer.seconds, known.compute.seconds + known.store.seconds)
    assert plan.seconds >= plan.start + rows * loop * (1 - 1e-9)
    assert plan.stages["driver"] == 0


@given(any_costs, any_crew, any_rows)
def test_a_good_part_has_whole_batches_and_is_never_bad_for_the_driver(known, crew, rows):
    size = good_part_rows(known, crew, rows)
    assert size >= known.batch and size % known.batch == 0
    plan = make_plan(known, crew, rows, size)
    assert plan.stages["driver"] <= 0.11 * (plan.seconds - plan.start) or plan.parts == 1


def test_hours_by_hand():
    known = costs(decode=0.001, compute=0.01, store=0.001, part=0.0, cpu=0.0)
    plan = make_plan(known, Crew("ray", 4, 400), 64_000, 640)
    part = 640 * 0.011 + 64 * 0.001  # the first batch is read before anything is computed
    assert plan.part_seconds == pytest.approx(part)
    assert plan.seconds == pytest.approx(5 + 20 + 5 + 25 * part)
    local = make_plan(known, Crew("local", 1, 1), 64_000, 640)
    assert local.seconds == pytest.approx(5 + 64_000 * 0.011)
    assert local.driver_bytes == pytest.approx(5e8 + 100 * 64_000 + 700 * 100)
    assert local.result_bytes == 40 * 64_000


def test_cores_that_workers_share_and_a_last_round_of_parts_take_their_time():
    known = costs(compute=0.01, decode=1e-6, store=1e-6, part=0.0, cpu=0.02)
    assert make_plan(known, Crew("ray", 4, 2), 64_000, 64).bottleneck == "cores"
    assert make_plan(known, Crew("ray", 4, 2), 64_000, 64).stages["cores"] == pytest.approx(640)
    odd = make_plan(costs(), Crew("ray", 4, 99), 5 * 640, 640)
    assert odd.idle == pytest.approx(1 - 5 / 8, abs=0.01)


def test_workers_that_start_on_few_cores_wait_for_each_other():
    assert make_plan(costs(), Crew("ray", 1, 2), 640, 64).start == 30.0
    assert make_plan(costs(), Crew("ray", 18, 2), 640, 64).start == 5 + (9 + 18 * 4.5) / 2 / 0.9


def test_seconds_of_a_processor_are_of_all_processes():
    known = costs(cpu=0.01)
    assert make_plan(known, Crew("local", 1, 2), 640, 64).cpu_seconds == pytest.approx(4 + 6.4)
    assert make_plan(known, Crew("ray", 3, 2), 640, 64).cpu_seconds == pytest.approx(4 + 6.4 + 9 + 3 * 4.5 + 10 * 0.006)


def test_fewer_threads_than_were_measured_compute_longer():
    known = replace(costs(threads=8), compute=cost(0.01, cpu=0.08))
    assert make_plan(known, Crew("ray", 1, 8), 640, 64).stages["compute"] == pytest.approx(6.4)
    assert make_plan(known, Crew("ray", 4, 8), 640, 64).stages["compute"] == pytest.approx(640 * 0.04 / 4)


def test_the_range_holds_the_plan():
    known = replace(costs(), compute=cost(0.01, spread=0.2, cpu=0.0))
    low, high = span(known, Crew("local", 1, 2), 10_000, 640)
    assert low < make_plan(known, Crew("local", 1, 2), 10_000, 640).seconds < high
    assert (low, high) == pytest.approx((5 + 81 + 0.16, 5 + 121 + 0.16), abs=0.01)


@pytest.mark.parametrize(
    ("known", "crew", "part", "words"),
    [
        (costs(decode=0.1), Crew("ray", 8, 88), 6400, "more workers: reading holds it up, and one thread of each"),
        (costs(decode=0.1), Crew("local", 1, 8), 6400, "--engine ray with more workers: reading holds it up"),
        (FILES, Crew("ray", 8, 88), 6400, "in each worker, by more cores for it, or smaller files: 1 thread now, 10 w"),
        (FILES, Crew("local", 1, 2), 6400, r"read \(--workers\) or smaller files: 2 threads now, 10 would keep up"),
        (costs(), Crew("ray", 8, 800), 6400, "a cheaper method or more workers"),
        (costs(transfer=0.1), Crew("ray", 8, 800), 6400, "copying to the GPU holds it up"),
        (costs(compute=1e-5, decode=1e-5, part=10.0), Crew("local", 1, 8), 64, "bigger parts, or a faster disk"),
        (costs(compute=1e-4, decode=1e-5, store=1e-6, part=0.0), Crew("ray", 8, 800), 64, "bigger parts: the driver"),
        (costs(cpu=1.0), Crew("ray", 8, 8), 6400, "more cores: 8 are all at work, 1 s of a core"),
    ],
)  # fmt: skip
def test_what_to_change_begins_with_the_bottleneck(known, crew, part, words):
    plan = make_plan(known, crew, 1_000_000, part)
    first = changes(known, plan, good_part_rows(known, crew, 1_000_000), gpus=False)[0]
    assert re.search(words, first)


def test_bigger_and_smaller_parts_are_advised_where_they_help():
    known, crew = costs(compute=1e-4, decode=1e-5, store=1e-6, part=0.0, cpu=0.0), Crew("ray", 8, 800)

    def told(part):
        plan = make_plan(known, crew, 10**9, part)
        return [
            line for line in changes(known, plan, good_part_rows(known, crew, 10**9), gpus=False) if "--part" in line
        ]

    assert "less time" in told(64)[0]
    assert "a kill takes away 30 s of work" in told(64 * 20_000)[0]
    assert told(good_part_rows(known, crew, 10**9)) == []
