"""`nescio guard`: a model and inputs of the kind that it is meant for in; a guard out, in a folder."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from nescio.cli.messages import say, tell_cheaper, tell_opened, tell_problems
from nescio.cli.options import add_command, add_data, add_model, add_running, method
from nescio.cli.paths import check_apart, output_folder
from nescio.cli.specs import data_spec, fair_rows, model_spec

if TYPE_CHECKING:
    from nescio.cli.options import Commands
    from nescio.specs import AnyGuard, ModelSpec

EXAMPLES = """\
The reference is some hundred inputs that the model is meant for and was not trained on: at least 20, 100 to flag at a
level of 0.05, and a few hundred to see well. They need no labels. If they have labels, of the model's own classes,
`nescio check` also says how likely an answer is wrong. The guard also learns from changed copies of pictures (saved
again, resized, slightly brighter), because such changes make no picture foreign; --nuisances none leaves that out.

Of a model that answers at every position, such as a segmentation network, the guard judges whole pictures and their
regions. It takes a reference of twice as many pictures for the same level, and makes no changed copies.

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
    from nescio.dense import RegionGuard
    from nescio.specs import fit_guard, only_network, open_source, remember

    need("safetensors.torch", "files")
    folder = _guard_folder(args)
    model = model_spec(args)
    source = open_source(model)
    network = only_network(source)
    rows = fair_rows(data_spec(args, args.reference), source)
    tell_opened(source, rows)
    tell_cheaper(args, *([] if args.nuisances is None else ["--nuisances none (no changed copies: half the time)"]))
    guard = fit_guard(network, rows, doubt=args.doubt, nuisances=args.nuisances, chunk=args.batch_size)
    tell_problems(rows)
    if isinstance(guard, RegionGuard) and (args.doubt != "gen" or args.nuisances != "auto"):
        say("nescio: the model answers at every position: --doubt and --nuisances have no effect on its guard")
    _clear(folder)
    guard.save(folder)
    remember(folder, model)
    _tell(args.out, guard, model)
    return 0


def _guard_folder(args: argparse.Namespace) -> Path:
    """Return the folder for the guard; raise now where it cannot be written, or holds something else."""
    from nescio.specs.saved_models import MODEL
    from nescio.types import InputError

    for option in ("reference", "weights", "model"):
        check_apart({f"--{option}": getattr(args, option), "--out": args.out})
    folder = output_folder(args.out, _records()[0])
    known = "|".join(re.escape(name) for name in (*_records(), MODEL))
    own = re.compile(rf"{known}|whole|state-[0-9a-f]{{64}}\.safetensors|\..*\.part")
    inside = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if strange := [name for name in inside if not own.fullmatch(name)]:
        raise InputError(f"--out: expected an empty folder or one with a guard, but {args.out} holds {strange[0]}")
    if not set(_records()).isdisjoint(inside) and not args.overwrite:
        raise InputError(f"--out: {args.out} holds a guard already; name another folder, or say --overwrite")
    return folder


def _records() -> tuple[str, str]:
    """Return the files that tell what a folder holds: a guard of whole inputs, or one of regions."""
    from nescio.dense import region_saving
    from nescio.guard import guard_saving

    return guard_saving.BUNDLE.record, region_saving.BUNDLE.record


def _clear(folder: Path) -> None:
    """Remove the records of an older guard, which may be of the other kind."""
    for name in _records():
        for place in (folder, folder / "whole"):
            (place / name).unlink(missing_ok=True)


def _tell(folder: str, guard: AnyGuard, model: ModelSpec) -> None:
    """Print what there is now, what it can promise, and the command that uses it."""
    from nescio.dense import RegionGuard
    from nescio.guard.fitting import Fitted
    from nescio.guard.promise import ENOUGH, usual_level
    from nescio.specs import names_code

    fitted = guard.fitted
    copies = f" and {fitted.copies} changed copies of them" if isinstance(fitted, Fitted) and fitted.copies else ""
    print(f"Wrote {folder}: a guard fitted to {fitted.count} inputs{copies}; its witnesses: {', '.join(fitted.names)}")
    least = ENOUGH / fitted.ranks
    print(f"It compares a new input with {fitted.ranks} of them, so it can flag at a level of {least:.2g} or more.")
    if isinstance(guard, RegionGuard):
        print("The model answers at every position: it also compares the regions of a picture (nescio check --maps).")
    again = ["nescio", "check", "--guard", folder]
    if names_code(model.name):
        again += ["--model", model.name]
    if model.name.endswith(".pt2"):
        again += ["--trust-pickle"]
    if least > 0.05:
        again += ["--level", f"{usual_level(fitted.ranks):.2g}"]
    print(f"Next: {shlex.join([*again, '--data', 'NEW', '--out', 'verdicts.csv'])}")


def _nuisances(text: str) -> str | list[str] | None:
    from nescio.guard.changes import CHANGES

    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    names = text.split(",")
    if strange := [name for name in names if name not in CHANGES]:
        raise argparse.ArgumentTypeError(f"expected auto, none or some of {','.join(CHANGES)}, got '{strange[0]}'")
    return names
