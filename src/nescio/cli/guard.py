"""`nescio guard`: a model and inputs of the kind that it is meant for in; a guard out, in a folder."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio.cli.asked import method
from nescio.cli.decide import apart
from nescio.cli.guarding import fair_labels, left_out
from nescio.cli.own_model import add_data, add_model, add_running, data_at, model_at, tell_opened, tell_problems

if TYPE_CHECKING:
    from nescio.batch.jobs import ModelAt
    from nescio.guard import Guard

EXAMPLES = """examples:
  nescio guard --model timm:resnet18 --weights resnet18.safetensors --reference photos --out guard
  nescio guard --model timm:resnet18 --weights w.safetensors --reference photos --on-error skip --out guard
  nescio guard --model mymodels:build --reference held-out.npz --out guard
  nescio guard --model hf:FOLDER --reference reviews.csv --x text --out guard
  nescio guard --model mymodels:build --reference x.npz --nuisances resize,jpeg --doubt entropy --out guard
  nescio check --guard guard --data new --out verdicts.parquet

The reference is some hundred inputs of the kind that the model is meant for and was not trained on: 20 at least, 100 to
flag at a level of 0.05, and a few hundred to see well. They need no labels. Where they have some, of the model's own
classes, `nescio check` also says how likely an answer is wrong. Changes that do not make a picture foreign (a re-saved,
resized, slightly brighter copy) are made to copies of the reference; --nuisances none leaves that out.

The folder remembers the model and how rows are made ready for it, but holds no weights: `nescio check` opens them again
where they were. A function of your own is never run because a folder names it: give --model again then."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "guard",
        help="learn what known inputs look like, for `nescio check`",
        description="Fits a guard to inputs of the kind that a model is meant for, and keeps it in a folder.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    add_model(command)
    add_data(command, option="--reference")
    command.add_argument("--out", required=True, metavar="FOLDER", help="where the guard is kept")
    command.add_argument("--overwrite", action="store_true", help="replace the guard that the folder holds")
    command.add_argument(
        "--nuisances", type=_nuisances, default="auto", metavar="LIST",
        help="changes of pictures that do not matter: auto, none, or some of resize,brightness,noise,rotation,jpeg "
        "(default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--doubt", type=method, default="gen", metavar="NAME",
        help="the score that the witness of doubt takes (default: %(default)s); see `nescio methods`",
    )  # fmt: skip
    add_running(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Open, fit, save."""
    from nescio._common.lazy_imports import need
    from nescio.guard import Guard
    from nescio.models import Classifier
    from nescio.progress import cheaper
    from nescio.specs.saved_models import remember
    from nescio.types import InputError, ModelError

    need("safetensors.torch", "files")
    folder = _checked_folder(args)
    at = model_at(args)
    source = at.open()
    if not isinstance(source.model, Classifier):
        raise ModelError(f"--model: expected a network to guard, got {source.about}; name the network itself")
    rows = data_at(args, args.reference).open(source)
    tell_opened(source, rows)
    rows = fair_labels(args, source, rows)
    cheaper("a GPU (--device cuda) is faster, and --nuisances none takes half the time")
    guard = Guard(source.model, doubt=args.doubt)
    try:
        guard.fit(rows, nuisances=args.nuisances, chunk=args.batch_size)
    except InputError as error:
        raise InputError(f"--reference: {error}{left_out(rows)}") from error
    tell_problems(rows)
    guard.save(folder)
    settings = {name: getattr(at, name) for name in ("output", "size", "crop", "mean", "std")}
    remember(folder, args.model, args.weights, class_names=_absolute(args.class_names), **settings)
    _tell(args, guard, at)
    return 0


def _checked_folder(args: argparse.Namespace) -> Path:
    """The folder for the guard; raises now where it cannot be written, or holds something else."""
    from nescio.data import check_writable
    from nescio.guard.saving import BUNDLE
    from nescio.specs.saved_models import MODEL
    from nescio.types import InputError

    folder = Path(args.out)
    for option, path in {"--reference": args.reference, "--weights": args.weights, "--model": args.model}.items():
        apart({option: path, "--out": args.out})
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: expected a folder, but {args.out} is a file; name another place")
    own = re.compile(rf"{re.escape(BUNDLE.record)}|{re.escape(MODEL)}|state-[0-9a-f]{{64}}\.safetensors|\..*\.part")
    inside = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if strange := [name for name in inside if not own.fullmatch(name)]:
        raise InputError(f"--out: expected an empty folder or one with a guard, but {args.out} holds {strange[0]}")
    if BUNDLE.record in inside and not args.overwrite:
        raise InputError(f"--out: {args.out} holds a guard already; name another folder, or say --overwrite")
    check_writable(folder / BUNDLE.record if folder.exists() else folder)
    return folder


def _tell(args: argparse.Namespace, guard: Guard, at: ModelAt) -> None:
    """What there is now, what it can promise, and the command that uses it."""
    from nescio.guard.promise import ENOUGH
    from nescio.specs.saved_models import names_code

    found = guard.fitted
    names = ", ".join(witness.name for witness in found.witnesses)
    copies = f" and {found.copies} changed copies of them" if found.copies else ""
    print(f"Wrote {args.out}: a guard fitted to {found.count} inputs{copies}; its witnesses: {names}")
    least = ENOUGH / found.ranks
    print(f"It compares a new input with {found.ranks} of them, so it can flag at a level of {least:.2g} or more.")
    again = ["nescio", "check", "--guard", args.out]
    if names_code(at.spec):
        again += ["--model", at.spec]
    if at.spec.endswith(".pt2"):
        again += ["--trust-pickle"]
    if least > 0.05:
        again += ["--level", f"{least:.2g}"]
    print(f"Next: {shlex.join([*again, '--data', 'NEW', '--out', 'verdicts.csv'])}")


def _nuisances(text: str) -> str | list[str] | None:
    from nescio.guard.changes import CHANGES

    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    names = text.split(",")
    if strange := [name for name in names if name not in CHANGES]:
        raise argparse.ArgumentTypeError(f"expected auto, none or some of {','.join(CHANGES)}, got '{strange[0]}'")
    return names


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).resolve())
