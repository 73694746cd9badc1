"""`nescio audit`: along which directions is a model of your own certain far away from everything it has seen?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nescio._common.formatting import class_name, count
from nescio.cli.command_line import check_command, command_line
from nescio.cli.messages import tell_cheaper, tell_opened, tell_problems
from nescio.cli.options import add_command, add_data, add_model, add_running
from nescio.cli.paths import check_apart, check_page
from nescio.cli.specs import data_spec, model_spec

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from nescio.cli.options import Commands
    from nescio.limits import Audit
    from nescio.report.audit_advice import Advice
    from nescio.specs import DataSpec, Rows, Source

DIRECTIONS = ("features", "random", "towards", "away")
SHOWN = 20
EXAMPLES = """\
The data are inputs of the kind that the model was made for, such as numpy.savez("x.npz", x=array). The audit starts at
some of them and goes away along directions of four kinds:

  features   one feature alone, up and down; those features that vary most
  random     any direction
  towards    on through another input
  away       away from the mean of the data

Distance is counted in spreads. For a feature, a spread is its standard deviation. For the other directions, it is the
root mean square distance of the data from their mean, every feature in its own deviations.

For networks that are linear piece by piece (ReLU and its like, convolutions, pooling, batch norm), what the
probabilities tend to is proven. Everything else is measured up to the radius, and marked as measured.

examples:
  nescio audit --model mymodels:build --weights w.safetensors --data x.npz --out audit.html
  nescio audit --model mymodels:build --data x.npz --score entropy regrad --directions features --feature-names age,pay
  nescio audit --model mymodels:build --data x.npz --directions random away --starts 4 --radius 100 --table audit.csv"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "audit",
        help="find the directions along which your own model is blindly certain",
        description="Finds the directions along which your own model becomes certain far away from everything it has "
        "seen. Says what its scores do there, and writes that as a page.",
        examples=EXAMPLES,
    )
    add_model(command)
    add_data(command)
    command.add_argument("--out", metavar="FILE.html", help="write a page, which opens offline")
    command.add_argument("--table", metavar="FILE", help="write the table: .parquet, .csv or .json")
    command.add_argument(
        "--score", nargs="+", action="extend", metavar="NAME",
        help="scores that `nescio methods` lists (default: max_probability entropy)",
    )  # fmt: skip
    command.add_argument(
        "--directions", nargs="+", choices=DIRECTIONS, default=list(DIRECTIONS), help="the kinds (default: all)"
    )
    command.add_argument(
        "--feature-names", metavar="A,B,…", help="what the features are called (default: as the columns of a table)"
    )
    command.add_argument("--fit", metavar="PATH", help="labelled training data, for the scores that need them")
    command.add_argument("--starts", type=int, default=8, metavar="N", help="how many inputs it starts at (default: 8)")
    command.add_argument(
        "--count", type=int, default=8, metavar="N", help="random directions, and inputs to go towards (default: 8)"
    )
    command.add_argument(
        "--features", type=int, default=32, metavar="N", help="how many features, those that vary most (default: 32)"
    )
    command.add_argument(
        "--radius", type=float, default=1024.0, metavar="R", help="how many spreads away to measure (default: 1024)"
    )
    command.add_argument("--seed", type=int, default=0, help="the seed of the random directions (default: 0)")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--exact", action="store_true", help="prove all that can be proven, however long it takes")
    how.add_argument("--measured", action="store_true", help="measure everything, also what could be proven")
    add_running(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Load, audit, print, write."""
    import torch

    from nescio import limits
    from nescio._common.lazy_imports import need
    from nescio.data import check_ending, check_writable, replacing, write_table
    from nescio.specs import open_rows, open_source
    from nescio.types import InputError

    if args.out is not None:
        check_page(args.out)
        need("matplotlib.figure", "demo")
    if args.table is not None:
        check_ending(args.table)
        check_writable(args.table)
    for name in ("data", "fit", "weights"):
        check_apart({f"--{name}": getattr(args, name), "--out": args.out, "--table": args.table})
    source = open_source(model_spec(args))
    if source.kind == "texts":
        raise InputError(
            "expected a model of numbers or pictures, got one of texts, among which there are no directions"
        )
    rows = open_rows(data_spec(args), source)
    tell_opened(source, rows)
    parts = [part.inputs for part in rows.batches(args.batch_size)]
    tell_problems(rows)
    if not parts:
        raise InputError(f"--data: expected at least one input, but {args.data} has none")
    x = torch.cat([part for part in parts if isinstance(part, torch.Tensor)])
    x = x if x.is_floating_point() else x.float()
    tell_cheaper(args, *([] if args.measured else ["--measured"]), "smaller --starts, --count and --features")
    audit = limits.audit(
        source.model,
        x,
        args.directions,
        args.score,
        starts=args.starts,
        count=args.count,
        features=args.features,
        names=_names(args, rows),
        classes=source.classes,
        radius=args.radius,
        exact=True if args.exact else False if args.measured else None,
        fit=None if args.fit is None else _training(data_spec(args, args.fit), source, args.batch_size),
        seed=args.seed,
        batch=args.batch_size,
    )
    print(audit.text(SHOWN))
    print("\nWhat to do:", *audit.advice(), sep="\n- ")
    if args.out is not None:
        page = _page(audit, args, rows)
        with replacing(args.out) as part:
            part.write_text(page, encoding="utf-8")
        print(f"\nWrote {args.out}: all {len(audit.sentences())} directions, with figures and a table to sort.")
    if args.table is not None:
        write_table(args.table, _table(audit))
        print(f"Wrote {count(len(audit.rows), 'row')} to {args.table}")
    return 0


def _names(args: argparse.Namespace, rows: Rows) -> list[str] | None:
    """The names of the features: those given, or the columns of a table."""
    from nescio.data.sources.table_rows import TableRows

    if args.feature_names is not None:
        return [name.strip() for name in args.feature_names.split(",")]
    columns = rows.store.columns if isinstance(rows.store, TableRows) else []
    return columns if len(columns) > 1 else None


def _training(data: DataSpec, source: Source, batch_size: int) -> list[tuple[object, Tensor | None]]:
    from nescio.specs import open_rows
    from nescio.types import InputError

    rows = open_rows(data, source)
    if rows.labels is None:
        raise InputError(f"--fit: expected labelled data, but {data.path} has no labels (--label names them)")
    return [(batch.inputs, batch.labels) for batch in rows.batches(batch_size)]


def _table(audit: Audit) -> dict[str, NDArray[Any]]:
    """The columns; what is infinite is left empty, since JSON has no infinity."""
    import numpy as np

    columns = audit.columns()
    for name in ("reached", "sure_from"):
        if np.isinf(columns[name]).any():
            columns[name] = np.array([None if np.isinf(v) else v for v in columns[name].tolist()], dtype=object)
    return columns


def _page(audit: Audit, args: argparse.Namespace, rows: Rows) -> str:
    import dataclasses
    import platform

    import torch

    from nescio import __version__
    from nescio.report.audit_page import audit_page

    settings = {
        "command": command_line("audit", vars(args), ("directions", "score")),
        "data": f"{count(audit.inputs, 'input')}, {audit.starts:,} of them to start from",
        "versions": f"nescio {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }
    table = [dataclasses.asdict(row) for row in audit.rows]
    advice = _advice(audit, args, _names(args, rows) is not None)
    return audit_page(table, audit.distances, audit.sentences(), audit.summary(), settings, advice, audit.classes)


def _advice(audit: Audit, args: argparse.Namespace, named: bool) -> Advice:
    """The nearest directions and what to do about them, in words for the page."""
    from nescio.limits import advice, moves
    from nescio.report.audit_advice import Advice, NearDirection, direction_picture

    near = []
    for row in audit.nearest():
        move = audit.moves[row.direction]
        changes = ", ".join(change.replace(" ", "\N{NO-BREAK SPACE}") for change in move.changes) + (
            f" and {move.others} more" if move.others else ""
        )
        near.append(
            NearDirection(
                row.direction,
                changes,
                class_name(row.answer, audit.classes) if row.answer >= 0 else "depends on the start",
                advice.spreads(row.sure_from),
                advice.spreads(move.leaves),
                "" if moves.EVERY in audit.ranges else move.first,
                None if move.picture is None else direction_picture(row.direction, move.picture),
            )
        )
    own = ("model", "weights", "x", "size", "crop", "mean", "std", "output")
    known = {name: getattr(args, name) for name in own}
    commands = [
        command_line("guard", {**known, "reference": "HELD-OUT", "out": "guard"}),
        check_command("guard", args),
    ]
    return Advice(near, audit.advice(), advice.code(audit.nearest(), audit.moves, audit.ranges, named), commands)
