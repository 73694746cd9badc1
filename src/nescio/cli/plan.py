"""`nescio plan`: how long a job over very many rows will take, on how many GPUs or workers, and what holds it up."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio.cli.messages import say, tell_method
from nescio.cli.options import add_command, add_data, add_methods, add_model, add_running, positive

if TYPE_CHECKING:
    from nescio.batch.job_plan import Costs, Crew, Plan
    from nescio.batch.jobs import Ready
    from nescio.cli.options import Commands

EXAMPLES = """\
A few hundred rows of --data are read, scored and written here, each step timed apart; the rest is arithmetic. So run it
on a machine like those of the run, with such a GPU, and with rows like those of the run. --rows is how many there will
be; --data may hold fewer.

With --gpus or --workers the plan is for `--engine ray`: processes with a model each. Without, it is for one process.
The range comes from how much the times differed here. What it cannot know: how fast other disks and the network are,
what else runs there, and how long machines take to come.

examples:
  nescio plan --model timm:resnet18 --weights resnet18.safetensors --data photos --rows 1e9 --gpus 64 --device cuda
  nescio plan --model mymodels:build --data x.npz --rows 1e6
  nescio plan --model mymodels:build --data x.npz --rows 1e8 --workers 32 --cores 64
  nescio plan --guard guard --data new --rows 1e7 --gpus 8 --device cuda
  nescio plan --model mymodels:build --data x.npz --method regrad --rows 1e6 --json"""
SAMPLE = 512
"""Rows that are timed, at most."""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "plan",
        help="how long will many rows take, on how many GPUs, and what holds it up",
        description="Times a few hundred rows here, and says what a run over many will take: hours, GPU-hours, parts, "
        "memory, the bottleneck and what to change.",
        examples=EXAMPLES,
    )
    add_model(command, required=False)
    add_data(command)
    add_methods(command, "a name that `nescio methods` lists; may be repeated (default: gen)")
    command.add_argument(
        "--fit", metavar="PATH", help="labelled training data, such as a .npz file, for the methods that need them"
    )
    command.add_argument("--guard", metavar="FOLDER", help="what `nescio guard` wrote: plans `nescio check` instead")
    command.add_argument(
        "--rows", type=rows, metavar="N", help="how many rows there will be, as 1000000 or 1e9 (default: as in --data)"
    )
    command.add_argument("--gpus", type=positive, metavar="N", help="GPUs, with a process and a model for each")
    command.add_argument(
        "--workers", type=positive, metavar="N", help="processes with a model each, where they need no GPU"
    )
    command.add_argument(
        "--cores", type=positive, metavar="N",
        help="cores of all machines together (default: those of this machine, for each GPU as many as here)",
    )  # fmt: skip
    command.add_argument(
        "--readers", type=positive, metavar="N", help="threads that read in each process (default: as a run has)"
    )
    command.add_argument(
        "--part-rows", type=positive, metavar="N", help="how many rows a part has (default: as a run chooses)"
    )
    command.add_argument(
        "--out", metavar="FOLDER", help="a folder on the disk of the results, to time it (default: the temporary one)"
    )
    command.add_argument(
        "--sample", type=positive, default=SAMPLE, metavar="N", help="how many rows are timed (default: %(default)s)"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_running(command, "how many rows go to the model at a time (default: found by time, 1 to 256)")
    command.set_defaults(run=run, batch_size=None)


def rows(text: str) -> int:
    """Read a number of rows, such as 1000000 or 1e9."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not (1 <= number < 1e18) or number != int(number):
        raise argparse.ArgumentTypeError(f"expected a whole number of rows, such as 1000000 or 1e9, got '{text}'")
    return int(number)


def run(args: argparse.Namespace) -> int:
    """Measure, plan, print."""
    from nescio.batch.job_plan import good_part_rows, make_plan, span
    from nescio.batch.stage_costs import measure
    from nescio.data.parts import part_rows
    from nescio.progress import cheaper

    _check(args)
    job = _job(args)
    folder = Path(args.out or tempfile.gettempdir())
    say(f"nescio: timing up to {args.sample} rows of {args.data} …")
    if args.guard is None:
        tell_method(args.method)
    cheaper("a smaller --sample takes less")
    load = os.getloadavg()[0]
    ready, costs = measure(job, args.sample, folder, find_batch=args.batch_size is None)
    total, crew = args.rows or len(ready.rows), _crew(args)
    row = None if args.gpus else costs.compute.seconds
    size = part_rows(total, costs.batch, args.part_rows, row)
    plan = make_plan(costs, crew, total, size)
    low, high = span(costs, crew, total, size)
    better = good_part_rows(costs, crew, total)
    known = {"low": min(low, plan.seconds), "high": max(high, plan.seconds), "load": load, "good_part_rows": better}
    if args.json:
        print(json.dumps(_record(args, ready, costs, plan, known), indent=1))
    else:
        _tell(args, ready, costs, plan, known)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raise where options do not go together."""
    from nescio.types import InputError

    if args.gpus is not None and args.workers is not None:
        raise InputError("--workers: expected either --workers or --gpus, got both; a GPU has one worker")
    if args.guard is not None and (args.method is not None or args.fit is not None):
        raise InputError("--guard: expected it without --method and --fit, since a guard has its own")
    if args.out is not None and not Path(args.out).is_dir():
        raise InputError(f"--out: expected a folder that exists, whose disk is timed, got {args.out}")


def _job(args: argparse.Namespace) -> Any:
    """Return what is to be planned: scores, or with --guard verdicts."""
    from nescio.batch.jobs import Job
    from nescio.batch.pacing import SIZES
    from nescio.cli.specs import data_spec, methods_of, model_spec
    from nescio.specs import GuardSpec

    model, data, batch = model_spec(args), data_spec(args), args.batch_size or SIZES[-1]
    if args.guard is not None:
        return Job(model, data, (), batch=batch, guard=GuardSpec(args.guard, 0.05))
    fit = None if args.fit is None else data_spec(args, args.fit)
    return Job(model, data, tuple(methods_of(args.method, args.set)), fit, batch)


def _crew(args: argparse.Namespace) -> Crew:
    """Return who does the work; a GPU has as many cores as it has here, where nothing is said."""
    import torch

    from nescio.batch.job_plan import Crew

    here = _cores()
    if args.gpus is not None:
        each = max(1, here // max(1, torch.cuda.device_count()))
        return Crew("ray", args.gpus, args.cores or each * args.gpus, args.readers)
    if args.workers is not None:
        return Crew("ray", args.workers, args.cores or here, args.readers)
    return Crew("local", 1, args.cores or here, args.readers)


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _record(args: argparse.Namespace, ready: Ready, costs: Costs, plan: Plan, known: dict[str, Any]) -> dict[str, Any]:
    """Return all that is known, as JSON can hold it."""
    from nescio.batch.jobs import machine

    return {
        "hours": plan.seconds / 3600,
        "hours_low": known["low"] / 3600,
        "hours_high": known["high"] / 3600,
        "gpu_hours": plan.worker_hours if args.gpus else 0.0,
        "worker_hours": plan.worker_hours,
        "good_part_rows": known["good_part_rows"],
        "changes": _changes(args, costs, plan, known),
        "cannot_know": _unknown(args, ready, known),
        "plan": asdict(plan),
        "measured": asdict(costs),
        "measured_on": machine(ready),
        "load_before": known["load"],
    }


def _changes(args: argparse.Namespace, costs: Costs, plan: Plan, known: dict[str, Any]) -> list[str]:
    from nescio.batch.plan_advice import changes

    return changes(costs, plan, known["good_part_rows"], gpus=args.gpus is not None)


def _unknown(args: argparse.Namespace, ready: Ready, known: dict[str, Any]) -> list[str]:
    """Say what the measurement cannot tell."""
    from nescio._common.formatting import count

    told = ["how fast the disks and the network of other machines are, and how long machines take to come"]
    if args.rows is not None and args.rows > len(ready.rows):
        told.append(f"whether the {args.rows:,} rows are like the {len(ready.rows):,} that were there")
    on_gpu = ready.device is not None and ready.device.type == "cuda"
    if args.gpus is not None and not on_gpu:
        told.append("how fast a GPU is: the model was timed on a processor; say --device cuda on a machine with one")
    cores = _cores()
    if known["load"] > cores:
        told.append(
            f"how fast this machine is alone: {known['load']:.0f} processes shared {count(cores, 'core')} while it was "
            "timed, and time without a core was left out as far as it is known"
        )
    told.append("whether files come from a disk: here the system may have kept them in memory")
    return told


def _tell(args: argparse.Namespace, ready: Ready, costs: Costs, plan: Plan, known: dict[str, Any]) -> None:
    """Print the plan for people."""
    from nescio._common.formatting import count, duration, number
    from nescio.batch.jobs import machine

    print(f"Measured here, a row: ({machine(ready)}; batches of {costs.batch}; load {known['load']:.1f})")
    for name in ("decode", "transfer", "compute", "store"):
        cost = getattr(costs, name)
        if cost.seconds:
            ends = f"{duration(cost.low, digits=2)} to {duration(cost.high, digits=2)}"
            print(f"  {name:10}{duration(cost.seconds, digits=2)} ({ends})")
    workers = count(plan.crew.workers, "GPU" if args.gpus else "worker" if plan.crew.engine == "ray" else "process")
    print(f"{plan.rows:,} rows by {workers} with {count(plan.crew.cores, 'core')} in all:")
    print(f"  time         {_hours(plan.seconds)} ({_hours(known['low'])} to {_hours(known['high'])})")
    kind = "GPU-hours" if args.gpus else "worker-hours"
    print(f"  {kind:13}{number(plan.worker_hours)}")
    print(f"  bottleneck   {plan.bottleneck}: {plan.stages[plan.bottleneck] / plan.seconds:.0%} of the time")
    each = _hours(plan.part_seconds)
    print(f"  parts        {plan.parts:,} of {count(plan.part_rows, 'row')}, {each} each")
    print(f"  results      {_size(plan.result_bytes)}")
    print(f"  driver       {_size(plan.driver_bytes)} of memory")
    for title, lines in {
        "What to change:": _changes(args, costs, plan, known),
        "What this cannot know:": _unknown(args, ready, known),
    }.items():
        print(title)
        for line in lines:
            print(f"  - {line}")


def _hours(seconds: float) -> str:
    from nescio._common.formatting import duration, number

    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{number(seconds / size)} {unit}"
    return duration(seconds)


def _size(amount: float) -> str:
    from nescio._common.formatting import number

    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{number(amount)} {unit}"
        amount /= 1000
    return f"{number(amount)} TB"
