"""What the commands that judge inputs by a guard share: --guard, one that was made before, and --reference."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nescio.cli.own_model import data_at, tell_problems

if TYPE_CHECKING:
    from nescio.data.sources import Rows
    from nescio.guard import Guard
    from nescio.models.sources import Source


def add_guard(command: argparse.ArgumentParser) -> None:
    """A guard, or what one is made of."""
    command.add_argument("--guard", metavar="FOLDER", help="which inputs are foreign: what `nescio guard` wrote")
    command.add_argument(
        "--reference", metavar="PATH",
        help="or make a guard now, of some hundred inputs of the kind that the model is meant for, not trained on",
    )  # fmt: skip


def recall_model(args: argparse.Namespace) -> None:
    """What the guard's folder knows of its model, where nothing else is given."""
    from nescio.specs.saved_models import names_code, remembered
    from nescio.types import InputError, ModelError

    if not Path(args.guard, "guard.json").is_file():
        raise InputError(f"--guard: expected a folder of `nescio guard`, but there is no guard.json in {args.guard}")
    kept = remembered(args.guard)
    if args.model is None:
        if kept is None:
            raise InputError(f"--model: expected the model of the guard, since {args.guard} does not say it; name it")
        if names_code(kept["model"]) and not args.trust_pickle:
            raise ModelError(
                f"{args.guard} names the function {kept['model']}, and opening it would run that: name it yourself if "
                f"you know it (--model {kept['model']}), or say --trust-pickle if you trust where the folder comes from"
            )
        args.model = kept["model"]
    if kept is None or kept["model"] != args.model:
        return
    for name, value in kept.items():
        if name != "model" and getattr(args, name, None) is None:
            setattr(args, name, value)


def given_guard(args: argparse.Namespace, source: Source) -> tuple[Guard | None, Rows | None]:
    """The guard of --guard, or one that is fitted to the rows of --reference; None where neither is given."""
    from nescio.guard import Guard
    from nescio.serve.engine import guarded
    from nescio.types import InputError

    if args.guard is not None and args.reference is not None:
        raise InputError("--reference: expected it in the place of --guard, got both; leave one out")
    if args.guard is not None:
        return Guard.load(args.guard, guarded(source)), None
    if args.reference is None:
        return None, None
    rows = fair_labels(args, source, data_at(args, args.reference).open(source))
    print(f"nescio: a guard is fitted to {args.reference}; `nescio guard` keeps one", file=sys.stderr)
    try:
        guard = Guard(guarded(source)).fit(rows)
    except InputError as error:
        raise InputError(f"--reference: {error}{left_out(rows)}") from error
    tell_problems(rows)
    return guard, rows


def fair_labels(args: argparse.Namespace, source: Source, rows: Rows) -> Rows:
    """The rows, without labels that are names of something else than the model's classes, as of folders."""
    named = rows.labels is not None and rows.classes is not None and rows.classes != source.classes
    if not named or args.label != "auto":
        return rows
    print(
        f"nescio: the labels of {args.reference} are not known to be classes of the model, and are left out: the guard "
        "will not say how likely an answer is wrong. --class-names says how the classes are called",
        file=sys.stderr,
    )
    return replace(data_at(args, args.reference), label=None).open(source)


def left_out(rows: Rows) -> str:
    """How many rows could not be used, as the end of a sentence; nothing where all could."""
    found = rows.problems
    return f"; {len(found)} of {len(rows)} rows could not be used, the first: {found[0]}" if found else ""
