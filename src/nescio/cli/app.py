"""`nescio app`: a web page over a model, until it is told to end."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nescio.cli.interrupting import until_ended
from nescio.cli.messages import say, tell_method, tell_opened, tell_problems
from nescio.cli.options import (
    add_address,
    add_command,
    add_data,
    add_guard,
    add_model,
    add_posterior,
    add_running,
    method,
    positive,
)
from nescio.cli.specs import check_bundled, check_unfitted, data_spec, given_guard, model_spec, training_pairs

if TYPE_CHECKING:
    from nescio.app import Backend
    from nescio.cli.options import Commands

EXAMPLES = """\
The reference is some hundred inputs that the model is meant for and was not trained on. The page compares a new input
with them, and says whether it is foreign. Without a reference there is no verdict. If the reference has labels, of the
model's own classes, the page also says how often such answers are wrong, and offers policies that promise a rate of
errors.

The data are examples to click on; they must not be the reference. The page loads nothing from outside. Only this
machine can reach it, unless --host says otherwise. What is dropped on it is deleted when it ends.

examples:
  nescio app                                              (bundled digits, and things that are no digits)
  nescio app --model torchvision:resnet18 --weights w.safetensors --reference photos/ --data new/
  nescio app --guard guard --data new/
  nescio app --model mymodels:build --weights w.safetensors --fit train.npz --reference held-out.npz --data new.npz
  nescio app --model hf:FOLDER --reference texts.csv --method regrad --method energy --port 8080"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "app",
        help="a web page: drop a picture or write a text; see the answer, its doubt, why, and what to do",
        description="Opens a web page for a model. Give it an input and see whether it is foreign and why, the answer, "
        "where in the input its doubt comes from, what to do under a policy, and methods side by side.",
        examples=EXAMPLES,
    )
    add_model(command, required=False, bundled=True)
    add_posterior(command)
    command.add_argument("--fit", metavar="PATH", help="labelled training data, for a Laplace posterior of the model")
    add_data(command, required=False)
    add_guard(command)
    command.add_argument(
        "--known", type=positive, default=100, metavar="N",
        help="how many inputs of the reference show what scores are usual (default: %(default)s)",
    )  # fmt: skip
    command.add_argument("--policy", metavar="FILE", help="which answers to accept; `nescio decide` writes it")
    command.add_argument(
        "--method", action="append", type=method, metavar="NAME",
        help="a score of `nescio methods` to show; may be repeated (default: gen and several others)",
    )  # fmt: skip
    add_address(command, 7860)
    add_running(command, None)
    command.set_defaults(run=run, on_error="skip", batch_size=64)


def run(args: argparse.Namespace) -> int:
    """Open, measure, show, end."""
    from nescio._common.lazy_imports import need

    for package in ("gradio", "PIL", "matplotlib"):
        need(package, "app")  # said before the model is opened, not after it
    from nescio import app

    settings = app.Settings(host=args.host, port=args.port)
    backend = _backend(args)
    tell_method(args.method)
    for note in backend.notes:
        say(note)
    say(f"guard: {backend.engine.about_guard or 'none, so there is no verdict; give --reference'}")
    with until_ended("Ended; what was dropped on the page is deleted."):
        app.run(backend, settings)
    return 0


def _backend(args: argparse.Namespace) -> Backend:
    from nescio import app, decide
    from nescio.serve.networks import guarded
    from nescio.specs import open_rows, open_source
    from nescio.types import InputError

    policy = None if args.policy is None else (f"the policy of {Path(args.policy).name}", decide.load(args.policy))
    if args.model is None and args.guard is None:
        check_bundled(args, ("weights", "posterior", "fit", "data", "reference", "base", "device", "class_names"))
        say("Bundled digits: trained and measured once, which takes about a minute, then kept.")
        return app.bundled(args.method, policy=policy)
    check_unfitted(args)
    source = open_source(model_spec(args))
    rows = None if args.data is None else open_rows(data_spec(args), source)
    reference = None if args.reference is None else data_spec(args, args.reference)
    if rows is not None and reference is not None and Path(args.data).resolve() == Path(args.reference).resolve():
        raise InputError(
            "--reference: expected other inputs than --data, got the same; a guard knows what it was fitted to"
        )
    guard, known = given_guard(args.guard, reference, source, lambda: guarded(source))
    training = None
    if args.fit is not None:
        training = training_pairs(replace(data_spec(args, args.fit), label="auto"), source, args.batch_size)
    if rows is not None:
        tell_opened(source, rows)
    backend = app.opened(source, rows, known, training, args.method, policy, guard, most=args.known)
    if rows is not None:
        tell_problems(rows)
    return backend
