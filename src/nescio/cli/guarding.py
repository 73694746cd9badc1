"""What the commands that judge inputs by a guard share: --guard, one that was made before, and --reference."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
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
        raise InputError(f"--reference: {error}") from error
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
