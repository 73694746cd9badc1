"""`nescio check`: a guard and new inputs in; a table out that says of each whether it is foreign, and why.

It is work in parts, as `nescio score` is: what was done is kept, and the same command goes on.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nescio._common.argument_checks import probability
from nescio._common.formatting import count, number
from nescio.cli.messages import printable, say, tell_cheaper, tell_opened
from nescio.cli.options import add_command, add_data, add_model, add_parts
from nescio.cli.paths import check_apart
from nescio.cli.score import LONG, about
from nescio.cli.specs import data_spec, engine_spec, model_spec, output_spec

if TYPE_CHECKING:
    from nescio.batch.run_job import Finished
    from nescio.batch.verdict_columns import Flagged, Retelling
    from nescio.cli.options import Commands
    from nescio.data.parts import Parts

EXAMPLES = """\
The guard is a folder that `nescio guard` wrote. The table has the columns index, name (if rows have names), predicted
(the class), predicted_class (its name, if known), confidence (the probability of that class), p_value, foreign, unsure
(the answer is in doubt), one for each witness (about 0 or below: usual; 2: one in forty) and words. If the reference
had labels, it also has wrong, the estimated probability that the answer is wrong, with the ends wrong_low and
wrong_high of its 90 % interval.

Of a model that answers at every position the guard judges each picture and its regions. predicted is the commonest
class, confidence a mean, foreign_share the share of the picture that is foreign, and words say which part the model
does not know. --maps writes a picture (NAME.maps.png, over the input) and the p-values of the regions (NAME.maps.npz).

Of inputs like the reference, at most the share --level is flagged by mistake. With --fdr, at most that share of the
flagged inputs is a mistake, on average. That takes the p-values of all rows, so --fdr needs a file as --out, and no
folder of parts. Work is kept in parts, and the same command goes on after a kill, as with `score`.

examples:
  nescio check --guard guard --data new --out verdicts.parquet
  nescio check --guard guard --data new --on-error skip --out verdicts.csv
  nescio check --guard guard --data new --level 0.01 --out verdicts.parquet
  nescio check --guard guard --data new --fdr 0.1 --out verdicts.csv
  nescio check --guard guard --model mymodels:build --data x.npz --out verdicts.json
  nescio check --guard guard --data scenes --out verdicts.csv --maps maps
  nescio check --guard guard --data new --out verdicts/ --engine ray --device cuda"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "check",
        help="which inputs are foreign to a model, and why, by a guard of `nescio guard`",
        description="Says of every input of a folder, a list or a table whether it is foreign, and writes a table.",
        examples=EXAMPLES,
    )
    command.add_argument("--guard", required=True, metavar="FOLDER", help="what `nescio guard` wrote")
    add_model(command, required=False)
    add_data(command)
    command.add_argument(
        "--level", type=float, metavar="SHARE",
        help="the share of inputs like the reference that is flagged by mistake (default: 0.05)",
    )  # fmt: skip
    command.add_argument(
        "--fdr", type=float, metavar="SHARE", help="in its place: the share of mistakes among the flagged inputs"
    )
    command.add_argument(
        "--maps", metavar="FOLDER",
        help="for a model that answers at every position: which part of each picture is foreign goes to this folder",
    )  # fmt: skip
    add_parts(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Open, judge what is missing, join."""
    from nescio.batch.jobs import Job
    from nescio.batch.pacing import SIZES
    from nescio.batch.run_job import Listener, run_job
    from nescio.batch.verdict_columns import Flagged, at_rate
    from nescio.specs import GuardSpec
    from nescio.types import InputError

    model, level = model_spec(args), _level(args)
    for option, path in {"--data": args.data, "--weights": model.weights, "--guard": args.guard}.items():
        check_apart({option: path, "--out": args.out})
    output = output_spec(args)
    if args.fdr is not None and output.is_folder:
        raise InputError(
            "--fdr: expected a file as --out, got a folder, whose parts are written before the p-values of all rows "
            "are known; name a file, or give --level"
        )
    tell_cheaper(args)
    job = Job(
        model, data_spec(args), (), batch=args.batch_size or SIZES[-1],
        workers=args.workers if args.engine == "local" else None, guard=GuardSpec(args.guard, level),
        maps=args.maps,
    )  # fmt: skip
    rated: list[Flagged] = []

    def change(parts: Parts) -> Retelling | None:
        """Flag by the p-values of all rows, where --fdr asks for that."""
        if args.fdr is None:
            return None
        retelling, flagged = at_rate(parts.files, args.fdr)
        rated.append(flagged)
        return retelling

    finished = run_job(
        job, output, engine_spec(args), find_batch=args.batch_size is None, about=about(args),
        listener=Listener(tell_opened, say), change=change,
    )  # fmt: skip
    notes = [Flagged.of_note(note["guard"]) for _, note in finished.notes]
    _tell(args, finished, level, Flagged.together(rated or notes))
    return 0


def _level(args: argparse.Namespace) -> float:
    """Return the level at which inputs are flagged, or may be: that of --level or --fdr."""
    from nescio.types import InputError

    if args.level is not None and args.fdr is not None:
        raise InputError("--fdr: expected either --fdr or --level, got both; leave one out")
    for option, value in {"--level": args.level, "--fdr": args.fdr}.items():
        if value is not None:
            probability(option, value)
    return float(args.fdr or args.level or 0.05)


def _tell(args: argparse.Namespace, finished: Finished, level: float, flagged: Flagged) -> None:
    """Print what to do: how many are foreign, the worst by name with their reasons, and what that means."""
    assert finished.ready.guard is not None
    total, foreign = sum(rows for rows, _ in finished.notes), flagged.foreign
    known = f"the {count(finished.ready.guard.fitted.count, 'input')} of the reference"
    if args.fdr is not None:
        promise = f"of those flagged at most {100 * level:g} % are mistakes, on average"
    else:
        promise = f"of {count(total, 'input')} like it up to {number(level * total)} would be flagged by chance"
    if foreign:
        verb = "is" if foreign == 1 else "are"
        those = f"{foreign:,} of {total:,} inputs {verb}" if total > 1 else "The one input is"
        print(f"{those} foreign: unlike {known} ({promise}).")
        for one in flagged.worst:
            print(f"  {printable(one.name)} (p = {one.p_value:.2g}): {one.words}")
        if foreign > len(flagged.worst):
            print(f"  and {foreign - len(flagged.worst)} more, where the column foreign says so")
        print("Do not trust the answers to these before someone has looked at them. If they are of the kind that the")
        print("model is meant for, put such inputs into the reference and make the guard anew:")
        print(f"  nescio guard … --out {args.guard} --overwrite")
    else:
        none = f"None of {total:,} inputs is foreign: all are" if total > 1 else "The one input is not foreign: it is"
        print(f"{none} like {known} ({promise}).")
    if flagged.unsure:
        others = " of the others" if foreign else ""
        print(f"The model is unsure of its answers to {flagged.unsure}{others}: see the column unsure.")
    print(finished.words)
    if finished.usage.seconds >= LONG:
        print(finished.usage)
