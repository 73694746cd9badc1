"""`nescio guard`: a model and inputs of the kind that it is meant for in; a guard out, in a folder."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from nescio.cli.messages import tell_opened, tell_problems
from nescio.cli.options import add_command, add_data, add_model, add_running, method
from nescio.cli.paths import check_apart, output_folder
from nescio.cli.specs import data_spec, fair_rows, model_spec

if TYPE_CHECKING:
    from nescio.cli.options import Commands
    from nescio.guard import Guard
    from nescio.specs import ModelSpec

EXAMPLES = """\
The reference is some hundred inputs that the model is meant for and was not trained on: at least 20, 100 to flag at a
level of 0.05, and a few hundred to see well. They need no labels. If they have labels, of the model's own classes,
`nescio check` also says how likely an answer is wrong. The guard also learns from changed copies of pictures (saved
again, resized, slightly brighter), because such changes make no picture foreign; --nuisances none leaves that out.

The folder remembers the model and how its inputs are prepared, but holds no weights: `nescio check` reads them from
where they were. A function of your own is never run because a folder names it: then give --model again.

examples:
  nescio guard --model timm:resnet18 --weights resnet18.safetensors --reference photos --out guard
  nescio guard --model timm:resnet18 --weights w.safetensors --reference photos --on-error skip --out guard
  nescio guard --model mymodels:build --reference held-out.npz --out guard
  nescio guard --model hf:FOLDER --reference reviews.csv --x text --out guard
  nescio guard --model mymodels:build --reference x.npz --nuisances resize,jpeg --doubt entropy --out guard
  nescio check --guard guard --data new --out verdicts.parquet"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "guard",
        help="learn what known inputs look like, for `nescio check`",
        description="Fits a guard to inputs of the kind that a model is meant for, and keeps it in a folder.",
        examples=EXAMPLES,
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
    from nescio.progress import cheaper
    from nescio.specs import fit_guard, only_network, open_source, remember

    need("safetensors.torch", "files")
    folder = _guard_folder(args)
    model = model_spec(args)
    source = open_source(model)
    network = only_network(source)
    rows = fair_rows(data_spec(args, args.reference), source)
    tell_opened(source, rows)
    cheaper("a GPU (--device cuda) is faster, and --nuisances none takes half the time")
    guard = fit_guard(network, rows, doubt=args.doubt, nuisances=args.nuisances, chunk=args.batch_size)
    tell_problems(rows)
    guard.save(folder)
    remember(folder, model)
    _tell(args.out, guard, model)
    return 0


def _guard_folder(args: argparse.Namespace) -> Path:
    """Return the folder for the guard; raise now where it cannot be written, or holds something else."""
    from nescio.guard.saving import BUNDLE
    from nescio.specs.saved_models import MODEL
    from nescio.types import InputError

    for option in ("reference", "weights", "model"):
        check_apart({f"--{option}": getattr(args, option), "--out": args.out})
    folder = output_folder(args.out, BUNDLE.record)
    own = re.compile(rf"{re.escape(BUNDLE.record)}|{re.escape(MODEL)}|state-[0-9a-f]{{64}}\.safetensors|\..*\.part")
    inside = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if strange := [name for name in inside if not own.fullmatch(name)]:
        raise InputError(f"--out: expected an empty folder or one with a guard, but {args.out} holds {strange[0]}")
    if BUNDLE.record in inside and not args.overwrite:
        raise InputError(f"--out: {args.out} holds a guard already; name another folder, or say --overwrite")
    return folder


def _tell(folder: str, guard: Guard, model: ModelSpec) -> None:
    """Print what there is now, what it can promise, and the command that uses it."""
    from nescio.guard.promise import ENOUGH
    from nescio.specs import names_code

    fitted = guard.fitted
    names = ", ".join(witness.name for witness in fitted.witnesses)
    copies = f" and {fitted.copies} changed copies of them" if fitted.copies else ""
    print(f"Wrote {folder}: a guard fitted to {fitted.count} inputs{copies}; its witnesses: {names}")
    least = ENOUGH / fitted.ranks
    print(f"It compares a new input with {fitted.ranks} of them, so it can flag at a level of {least:.2g} or more.")
    again = ["nescio", "check", "--guard", folder]
    if names_code(model.name):
        again += ["--model", model.name]
    if model.name.endswith(".pt2"):
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
