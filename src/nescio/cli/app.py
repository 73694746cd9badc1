"""`nescio app`: a web page over a model, until it is told to end."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio.cli.asked import method, tell_chosen
from nescio.cli.guarding import add_guard, given_guard, recall_model
from nescio.cli.own_model import (
    SPEC,
    add_class_names,
    add_data,
    add_trust,
    opened_data,
    opened_model,
    positive,
    tell_opened,
    tell_problems,
    until_told,
)
from nescio.cli.score import training_data

if TYPE_CHECKING:
    from nescio.app import Desk
    from nescio.models.sources import Source

EXAMPLES = """examples:
  nescio app                                              (bundled digits, and things that are no digits)
  nescio app --model torchvision:resnet18 --weights w.safetensors --reference photos/ --data new/
  nescio app --guard guard --data new/
  nescio app --model mymodels:build --weights w.safetensors --fit train.npz --reference held-out.npz --data new.npz
  nescio app --model hf:FOLDER --reference texts.csv --method regrad --method energy --port 8080

The reference is some hundred inputs of the kind that the model is meant for and was not trained on: beside them it is
told whether a new one is foreign. Without it there is no verdict. With labels, of the model's own classes, the page
also says how often such answers are wrong, and offers policies that promise a rate of errors. The data are examples to
click on; they must not be the reference. The page listens on this machine alone, unless --host says otherwise, loads
nothing from outside, and what is dropped on it is deleted when it ends."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "app",
        help="a web page: drop a picture or write a text; see the answer, its doubt, why, and what to do",
        description="Shows a web page over a model: whether an input is foreign and why, the answer, where in the "
        "input its doubt comes from, what to do under a policy, and methods side by side.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    command.add_argument("--model", metavar="MODEL", help=f"{SPEC} (default: bundled digits)")
    command.add_argument("--weights", metavar="FILE", help="its weights: .safetensors, or a file of torch.save")
    add_class_names(command)
    command.add_argument(
        "--posterior", metavar="FOLDER", help="a saved distribution over the model, for kinds of doubt"
    )
    command.add_argument("--fit", metavar="PATH", help="labelled training data, for a Laplace posterior of the model")
    add_data(command, required=False)
    add_guard(command)
    command.add_argument(
        "--known", type=positive, default=100, metavar="N",
        help="inputs of the reference whose scores are shown beside those of a new one (default: %(default)s)",
    )  # fmt: skip
    command.add_argument("--policy", metavar="FILE", help="which answers to accept: what `nescio decide` wrote")
    command.add_argument(
        "--method", action="append", type=method, metavar="NAME",
        help="a score of `nescio methods` to compare; may be repeated (default: gen, and several beside it)",
    )  # fmt: skip
    command.add_argument("--host", default="127.0.0.1", help="default: %(default)s, this machine alone")
    command.add_argument("--port", type=int, default=7860, help="0 for any free one (default: %(default)s)")
    command.add_argument("--output", choices=("logits", "probabilities", "binary"), help="what the model returns")
    command.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 … (default: where the factory puts it)")
    add_trust(command)
    command.set_defaults(run=run, on_error="skip", batch_size=64)


def run(args: argparse.Namespace) -> int:
    """Open, measure, show, end."""
    from nescio._common.lazy_imports import need

    for package in ("gradio", "PIL", "matplotlib"):
        need(package, "app")  # said before the model is opened, not after it
    from nescio import app

    settings = app.Settings(host=args.host, port=args.port)
    desk = _desk(args)
    tell_chosen(args.method)
    for note in desk.notes:
        print(note, file=sys.stderr)
    print(f"guard: {desk.engine.about_guard or 'none, so there is no verdict; give --reference'}", file=sys.stderr)
    with until_told("Ended; what was dropped on the page is deleted."):
        app.run(desk, settings)
    return 0


def _desk(args: argparse.Namespace) -> Desk:
    from nescio import app, decide
    from nescio.types import InputError

    if args.guard is not None:
        recall_model(args)
    policy = None if args.policy is None else (f"the policy of {Path(args.policy).name}", decide.load(args.policy))
    if args.model is None:
        given = ("weights", "posterior", "fit", "data", "reference", "base", "device", "class_names")
        if wrong := [name.replace("_", "-") for name in given if getattr(args, name) is not None]:
            raise InputError(f"--{wrong[0]}: expected --model with it, got none")
        print("Bundled digits: trained and measured once, which takes about a minute, then kept.", file=sys.stderr)
        return app.bundled(args.method, policy=policy)
    source = _source(args)
    rows = None if args.data is None else opened_data(args, source)
    if None not in (args.data, args.reference) and Path(args.data).resolve() == Path(args.reference).resolve():
        raise InputError(
            "--reference: expected other inputs than --data, got the same: what a guard is made of it would call known"
        )
    guard, known = given_guard(args, source)
    training = (
        None if args.fit is None else training_data(argparse.Namespace(**{**vars(args), "label": "auto"}), source)
    )
    if rows is not None:
        tell_opened(source, rows)
    desk = app.opened(source, rows, known, training, args.method, policy, guard, most=args.known)
    if rows is not None:
        tell_problems(rows)
    return desk


def _source(args: argparse.Namespace) -> Source:
    """The model, or the distribution over it that was saved."""
    from nescio.types import InputError

    if args.posterior is None:
        return opened_model(args)
    if args.fit is not None or args.base is not None:
        raise InputError("--posterior: expected it without --fit and --base: it is fitted already, over --model")
    return opened_model(argparse.Namespace(**{**vars(args), "model": args.posterior, "base": args.model}))
