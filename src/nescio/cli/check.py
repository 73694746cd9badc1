"""`nescio check`: a guard and new inputs in; a table out that says of each whether it is foreign, and why.

It is work in parts, as `nescio score` is: what was done is kept, and the same command goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio.cli.decide import apart
from nescio.cli.guarding import recall_model
from nescio.cli.own_model import add_data, add_model, data_at, model_at, printable, tell_opened
from nescio.cli.score import LONG, add_parts, in_parts, open_job

if TYPE_CHECKING:
    from nescio.batch.jobs import Ready
    from nescio.batch.streaming import Usage
    from nescio.data.parts import Parts

EXAMPLES = """examples:
  nescio check --guard guard --data new --out verdicts.parquet
  nescio check --guard guard --data new --on-error skip --out verdicts.csv
  nescio check --guard guard --data new --level 0.01 --out verdicts.parquet
  nescio check --guard guard --data new --fdr 0.1 --out verdicts.csv
  nescio check --guard guard --model mymodels:build --data x.npz --out verdicts.json
  nescio check --guard guard --data new --out verdicts/ --engine ray --device cuda

The guard is one of `nescio guard`. The table has the columns index, name (where rows have one), predicted (class),
predicted_class (where names are known), confidence (the probability of that class), p_value, foreign, one for each
witness (about 0 or below: usual; 2: one in forty), words, and where the reference had labels wrong, the estimated
probability that the answer is wrong, with the ends wrong_low and wrong_high of its 90 % interval.

Of inputs like the reference at most a share of --level is flagged by mistake. With --fdr it is at most that share of
the flagged ones, on average; that takes the p-values of all rows, so it is settled when they are joined to one file,
and a folder of parts is refused. Work is kept in parts, and the same command goes on after a kill, as with `score`."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "check",
        help="which inputs are foreign to a model, and why, by a guard of `nescio guard`",
        description="Says of every input of a folder, a list or a table whether it is foreign, and writes a table.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    command.add_argument("--guard", required=True, metavar="FOLDER", help="what `nescio guard` wrote")
    add_model(command, required=False)
    add_data(command)
    command.add_argument(
        "--out", required=True, metavar="PATH", help="the table: .parquet, .csv or .json, or a folder for its parts"
    )
    command.add_argument(
        "--level", type=float, metavar="SHARE",
        help="the share of inputs like the reference that is flagged by mistake (default: 0.05)",
    )  # fmt: skip
    command.add_argument(
        "--fdr", type=float, metavar="SHARE", help="in its place: the share of mistakes among the flagged inputs"
    )
    add_parts(command)
    command.set_defaults(run=run, method=None, set=[], fit=None)


def run(args: argparse.Namespace) -> int:
    """Open, judge what is missing, join."""
    from nescio.batch import verdict_columns
    from nescio.data.tables import read_table
    from nescio.types import InputError

    recall_model(args)
    _check_shares(args)
    apart({"--guard": args.guard, "--out": args.out})
    found: dict[str, Any] = {}

    def change(parts: Parts) -> Any:
        if args.fdr is None:
            return None
        import numpy as np

        p = np.concatenate([read_table(file, ["p_value"])["p_value"] for file in parts.files])
        changed = verdict_columns.at_rate(p, args.fdr)
        found["notes"] = [verdict_columns.note(changed(read_table(file))) for file in parts.files]
        return changed

    def tell(words: str, ready: Ready, notes: list[tuple[int, Any]], usage: Usage) -> None:
        own = found.get("notes") or [one["guard"] for _, one in notes]
        _tell(args, ready, sum(count for count, _ in notes), verdict_columns.together(own))
        print(words)
        if usage.seconds >= LONG:
            print(usage)

    if args.fdr is not None and (args.out.endswith(("/", "\\")) or not Path(args.out).suffix):
        raise InputError(
            "--fdr: expected a file as --out, since it takes the p-values of all rows, and the parts of a folder are "
            "written before these are known; name a file, or give --level"
        )
    return in_parts(args, _opened, tell, change)


def _opened(args: argparse.Namespace, ray: Any) -> Ready:
    """What is to be judged, opened."""
    from nescio.batch.jobs import GuardAt, Job
    from nescio.batch.pacing import SIZES
    from nescio.guard.promise import check_level
    from nescio.progress import cheaper

    cheaper("a GPU (--device cuda) or more processes (--engine ray --workers N) are faster")
    readers = args.workers if args.engine == "local" else None
    at = GuardAt(args.guard, args.fdr or args.level)
    job = Job(model_at(args), data_at(args, args.data), (), None, args.batch_size or SIZES[-1], readers, guard=at)
    ready = open_job(job, ray, tell_opened)
    assert ready.guard is not None
    check_level(at.level, ready.guard.fitted.ranks)
    return ready


def _check_shares(args: argparse.Namespace) -> None:
    from nescio.types import InputError

    if args.level is not None and args.fdr is not None:
        raise InputError("--fdr: expected it in the place of --level, got both; leave one out")
    for option, value in {"--level": args.level, "--fdr": args.fdr}.items():
        if value is not None and not 0.0 < value < 1.0:
            raise InputError(f"{option}: expected a share between 0 and 1, such as 0.05, got {value:g}")
    if args.level is None and args.fdr is None:
        args.level = 0.05


def _tell(args: argparse.Namespace, ready: Ready, total: int, found: tuple[int, list[list[Any]]]) -> None:
    """What to do: how many are foreign, the worst by name with their reasons, and what they are good for."""
    assert ready.guard is not None
    foreign, worst = found
    known = f"the {ready.guard.fitted.count} inputs of the reference"
    if args.fdr is not None:
        promise = f"of those flagged at most {100 * args.fdr:g} % are mistakes, on average"
    else:
        promise = f"of {total} inputs like it up to {args.level * total:.3g} would be flagged by chance"
    if not foreign:
        print(f"None of {total} inputs is foreign: all are like {known} ({promise}).")
        return
    verb = "is" if foreign == 1 else "are"
    print(f"{foreign} of {total} inputs {verb} foreign: unlike {known} ({promise}).")
    for p, _, name, words in worst:
        print(f"  {printable(name)} (p = {p:.2g}): {words}")
    if foreign > len(worst):
        print(f"  and {foreign - len(worst)} more, where the column foreign says so")
    print("Do not trust the answers to these before someone has looked at them. If they are of the kind that the model")
    print(
        f"is meant for, put such inputs into the reference and make the guard anew: nescio guard … --out {args.guard}"
    )
