"""What would make a run quicker, or safer, in sentences that people can act on."""

from __future__ import annotations

from dataclasses import replace

from nescio._common.formatting import count, duration
from nescio.batch.job_plan import GOOD_PART, Costs, Plan, make_plan


def changes(costs: Costs, plan: Plan, better: int, *, gpus: bool) -> list[str]:
    """Say what would make a run quicker, or safer, in sentences; the first is about the bottleneck.

    Args:
        costs: What was measured.
        plan: The plan.
        better: How many rows a part should have (`good_part_rows`).
        gpus: Whether a worker has a GPU.

    Returns:
        The sentences.

    Examples:
        >>> from nescio.batch.job_plan import Cost, Crew
        >>> quick = Cost(0.001, 0.001, 0.002)
        >>> known = (0, 0.002, 0, 5, 5, 8, 8, 5, 5, 256, 1, True, 40, 1e9, 0)
        >>> costs = Costs(quick, quick, Cost(0.01, 0.01, 0.01), quick, *known)
        >>> crew = Crew("ray", workers=4, cores=8)
        >>> changes(costs, make_plan(costs, crew, 1_000_000, 2816), 2816, gpus=True)
        ['a cheaper method or more GPUs: the model holds it up, as it should be']
    """
    crew, sentences = plan.crew, [_about_bottleneck(costs, plan, gpus)]
    other = make_plan(costs, crew, plan.rows, better)
    gain = 1 - other.seconds / plan.seconds
    if gain > 0.02 or (better < plan.part_rows and plan.part_seconds > 2 * GOOD_PART):
        why = f"{gain:.0%} less time" if gain > 0.02 else f"a kill takes away {other.part_seconds:.0f} s of work"
        sentences.append(
            f"--part-rows {better}: {count(other.parts, 'part')} of {other.part_seconds:.0f} s each, {why}"
        )
    if plan.start > 0.2 * plan.seconds and crew.workers > 1:
        sentences.append(f"fewer workers: {plan.start:.0f} s of {plan.seconds:.0f} s are the start")
    twice = replace(crew, workers=2 * crew.workers, cores=2 * crew.cores)
    if crew.engine == "ray" and (faster := plan.seconds / make_plan(costs, twice, plan.rows, better).seconds) < 1.5:
        sentences.append(f"twice as many workers, with their cores, would be {faster:.2f} times as fast, and not twice")
    return sentences


def _about_bottleneck(costs: Costs, plan: Plan, gpus: bool) -> str:
    crew = plan.crew
    worker = "GPU" if gpus else "worker"
    if plan.bottleneck == "decode":
        return _about_reading(costs, plan, worker)
    if plan.bottleneck == "cores":
        return f"more cores: {crew.cores} are all at work, {duration(costs.cpu)} of a core for each row"
    return {
        "transfer": "smaller inputs, or bytes in the place of floats: copying to the GPU holds it up",
        "compute": f"a cheaper method or more {worker}s: the model holds it up, as it should be",
        "store": "bigger parts, or a faster disk: writing holds it up",
        "driver": "bigger parts: the driver of Ray holds it up, which handles one part after another",
    }[plan.bottleneck]


def _about_reading(costs: Costs, plan: Plan, worker: str) -> str:
    crew, stages = plan.crew, plan.stages
    now = crew.reading(costs)
    if costs.numbers:
        more = f"more {worker}s" if crew.engine == "ray" else "--engine ray with more workers"
        return f"{more}: reading holds it up, and one thread of each process reads rows of numbers"
    others = max(stages["compute"] + stages["store"], stages["transfer"])
    needed = -(-stages["decode"] * now // others) if others else float("inf")
    enough = f"{needed:.0f} would keep up with the model" if needed < 1000 else "as many as there are cores"
    where = f"in each {worker}, by more cores for it," if crew.engine == "ray" else "(--workers)"
    return f"more threads that read {where} or smaller files: {count(now, 'thread')} now, {enough}"
