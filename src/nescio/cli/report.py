"""`nescio report`: a model and data in; one page out that says which inputs not to trust, why, and what to do."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nescio.cli.command_line import check_command, command_line
from nescio.cli.messages import tell_cheaper, tell_method, tell_opened, tell_problems
from nescio.cli.options import add_command, add_data, add_methods, add_model, add_posterior, add_running, positive
from nescio.cli.paths import check_apart, read_lines
from nescio.cli.specs import check_unfitted, data_spec, methods_of, model_spec, training_pairs

if TYPE_CHECKING:
    from torch import Tensor

    from nescio.cli.options import Commands
    from nescio.specs import AnyGuard, Rows, Source

EXAMPLES = """\
The page says which inputs of --data not to trust, and why: those that are unlike --reference, some hundred inputs that
the model is meant for and was not trained on. They need no labels. `nescio guard` keeps what it learns from them in a
folder, which --guard takes. With neither, the page only ranks the inputs: a rule that is made from the inputs that it
judges says nothing about them.

Labels come with the data (--label names them) or from a file of their own (--labels), one for each row. A row whose
label is not known has none, or -1. With labels the page also shows calibration, risk and coverage.

With --posterior, or with training data for a Laplace posterior (--fit), the page tells doubt of the model from doubt of
the data. Of a large set, --most rows are drawn at random. The page opens offline.

examples:
  nescio report --model torchvision:resnet18 --weights w.safetensors --data new --reference photos --out report.html
  nescio report --model mymodels:build --weights w.safetensors --data new.npz --guard guard/ --out report.html
  nescio report --model mymodels:build --posterior ensemble/ --data held-out.npz --out report.html
  nescio report --model hf:FOLDER --data reviews.csv --x text --reference known.csv --most 500 --out report.html
  nescio report --model mymodels:build --data table.csv --fit train.csv --out report.json --format json"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "report",
        help="write a page about your own model on your own data: which inputs not to trust, why, and what to do",
        description="Writes one page: on which of your own data your own model cannot be trusted, why, and what to do "
        "about it. Then it shows how doubtful the model is, and where its doubt comes from.",
        examples=EXAMPLES,
    )
    add_model(command, required=False)
    add_posterior(command)
    add_data(command)
    judge = command.add_mutually_exclusive_group()
    judge.add_argument(
        "--reference", metavar="PATH",
        help="some hundred inputs that the model is meant for; what is unlike them is foreign",
    )  # fmt: skip
    judge.add_argument("--guard", metavar="FOLDER", help="or the folder that `nescio guard` wrote")
    command.add_argument(
        "--level", type=float, default=0.05, metavar="SHARE",
        help="the share of inputs like the reference that is called foreign by mistake (default: %(default)s)",
    )  # fmt: skip
    command.add_argument("--ood", metavar="PATH", help="data of another kind, about which the model should be in doubt")
    command.add_argument("--labels", metavar="FILE", help="the labels of --data: .npz (y), .csv, .parquet, .json, .txt")
    command.add_argument("--fit", metavar="PATH", help="labelled training data, for methods and for a posterior")
    command.add_argument("--out", required=True, metavar="FILE", help="where to write: .html, or .json")
    command.add_argument(
        "--format", choices=("html", "json"), help="a page, or its numbers (default: by the ending of --out)"
    )
    add_methods(command, "a score of `nescio methods`; the first leads; may be repeated (default: gen, and others)")
    command.add_argument(
        "--most", type=positive, default=2000, metavar="N", help="the most rows of each set (default: %(default)s)"
    )
    command.add_argument(
        "--examples", type=int, default=6, metavar="N",
        help="how many of the most doubtful inputs are shown, and half as many others (default: %(default)s)",
    )  # fmt: skip
    command.add_argument("--no-maps", action="store_true", help="leave out the maps, which take the most time")
    command.add_argument("--no-audit", action="store_true", help="leave out the audit far away from the data")
    command.add_argument("--seed", type=int, default=0, help="the seed of sample, halves and intervals (default: 0)")
    add_running(command)
    command.set_defaults(run=run, batch_size=32, on_error="skip")


def run(args: argparse.Namespace) -> int:
    """Open, gather, draw, write."""
    from nescio._common.lazy_imports import need
    from nescio.data import check_writable, replacing
    from nescio.findings import gather, plain
    from nescio.limits.reported import reported
    from nescio.specs import open_rows, open_source
    from nescio.types import InputError

    form = _form(args)
    for name in ("data", "ood", "labels", "fit", "weights", "reference", "guard"):
        check_apart({f"--{name}": getattr(args, name), "--out": args.out})
    check_apart({"--reference": args.reference, "--data": args.data})
    check_writable(args.out)
    if form == "html":
        need("matplotlib.figure", "demo")
        need("PIL.Image", "demo")
    methods = None if args.method is None else methods_of(args.method, args.set)
    if methods is None and args.set:
        raise InputError("--set: expected --method too, since it is a setting of a method")
    tell_cheaper(args, "--no-maps", "--no-audit", "a smaller --most")
    check_unfitted(args)
    model, data = model_spec(args), data_spec(args)
    source = open_source(model)
    rows = open_rows(data, source)
    foreign = None if args.ood is None else open_rows(replace(data, path=args.ood, label=None), source)
    tell_opened(source, rows)
    tell_method(args.method)
    labels = None if args.labels is None else _labels(args.labels, rows, source)
    training = None
    if args.fit is not None:
        training = training_pairs(replace(data, path=args.fit, label="auto"), source, args.batch_size)
    result = gather(
        source, rows, foreign=foreign, labels=labels, training=training, methods=methods, guard=_guard(args, source),
        level=args.level, most=args.most, examples=args.examples, maps=not args.no_maps,
        audit=None if args.no_audit else reported, batch=args.batch_size, seed=args.seed,
        repeat={"command": command_line("report", vars(args))}, again=_next_command(args),
    )  # fmt: skip
    for one in (rows, foreign):
        if one is not None:
            tell_problems(one)
    if form == "json":
        text = json.dumps(plain(result), indent=1, allow_nan=False) + "\n"
    else:
        from nescio.report.model_page import model_page

        text = model_page(result)
    with replacing(args.out) as part:
        part.write_text(text, encoding="utf-8")
    print("\n".join(result["summary"]))
    print(f"\nWrote {args.out}: {result['data']['used']:,} inputs of {args.data}, by {result['leading']}")
    return 0


def _form(args: argparse.Namespace) -> str:
    from nescio.types import InputError

    ending = Path(args.out).suffix.lower()
    known = {".html": "html", ".htm": "html", ".json": "json"}
    if args.format is None and ending not in known:
        raise InputError(f"--out: expected a file name that ends in .html or .json, but got '{args.out}'")
    if args.format is not None and known.get(ending, args.format) != args.format:
        raise InputError(f"--format: expected the form that '{args.out}' ends in, but got {args.format}")
    return str(args.format or known[ending])


def _guard(args: argparse.Namespace, source: Source) -> AnyGuard | None:
    """Return who judges the data: the guard of --guard, or one that is fitted to --reference."""
    from nescio.guard.fitting import LEAST
    from nescio.guard.promise import check_level
    from nescio.specs import GuardSpec, fit_guard, only_network, open_guard, open_rows

    if args.guard is None and args.reference is None:
        return None
    network = only_network(source, "beside --reference or --guard")
    if args.guard is not None:
        return open_guard(GuardSpec(args.guard), network)
    rows = open_rows(replace(data_spec(args, args.reference), label=None), source)
    if len(rows) >= LEAST:
        check_level(args.level, len(rows))  # before a fit that takes long
    guard = fit_guard(network, rows, seed=args.seed)
    tell_problems(rows)
    return guard


def _next_command(args: argparse.Namespace) -> str:
    """Return the command that judges more by the same reference, or without one the command that takes one."""
    own = ("model", "weights", "class_names", "x", "size", "crop", "mean", "std", "output")
    options = {name: getattr(args, name) for name in own}
    if args.guard is None and args.reference is None:
        return f"{command_line('report', {**options, 'data': args.data, 'out': args.out})} --reference FOLDER"
    check = check_command(args.guard or "guard/", args)
    if args.guard is not None:
        return check
    return f"{command_line('guard', {**options, 'reference': args.reference, 'out': 'guard/'})}\n{check}"


def _labels(path: str, rows: Rows, source: Source) -> Tensor:
    """One label for each row of a file of its own: in their order, or by name where a table has a column of names."""
    from nescio.data import read_npz, read_table
    from nescio.data.sources.labels import Labels, resolved
    from nescio.data.sources.table_rows import LABELS, NAMES
    from nescio.types import InputError

    ending = Path(path).suffix.lower()
    if ending == ".npz":
        values = read_npz(path, "y").tolist()
    elif ending == ".txt":
        values = [line.strip() for line in read_lines(path)]
    else:
        table = read_table(path)
        column = next((name for name in LABELS if name in table), None)
        if column is None:
            raise InputError(f"--labels: expected a column {' or '.join(LABELS)} in {path}, but it has {list(table)}")
        values = table[column].tolist()
        named = next((name for name in NAMES if name in table), None)
        if named is not None:
            by_name = dict(zip(map(str, table[named].tolist()), values, strict=True))
            values = [by_name.get(str(name), -1) for name in rows.names]
    if len(values) != len(rows):
        raise InputError(f"--labels: expected {len(rows)}, one for each row of the data, but {path} has {len(values)}")
    labels = resolved(Labels(values), source.classes)
    if labels.indices is None:
        raise InputError(f"--labels: expected labels in {path}, but none of them is known")
    return labels.indices
