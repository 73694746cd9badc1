"""`nescio score`: a model, its weights and a file of inputs in; a table with one row for each input out."""

from __future__ import annotations

import argparse
import ast
from typing import TYPE_CHECKING, Any

from nescio.cli.own_model import add_model, add_running, move, tensor

if TYPE_CHECKING:
    from torch import Tensor

    from nescio.models import Classifier
    from nescio.types import Method, Scored

EXAMPLES = """examples:
  nescio score --model torchvision.models:resnet18 --weights resnet18.safetensors --data x.npz --out scores.parquet
  nescio score --model mymodels:build --data x.npz --method regrad --method entropy --out scores.csv
  nescio score --model mymodels:build --data x.npz --set layer_decay=0.2 --set samples=0 --out scores.json
  nescio score --model mymodels:build --data x.npz --method regrad --method exgrad --set regrad.power=1 --out s.csv
  nescio score --model mymodels:build --data x.npz --method mahalanobis --fit train.npz --out scores.csv

The model comes from a function without arguments, found from the current folder too. The data file is written with
numpy.savez("x.npz", x=array): one row for each input, in the form that the model takes. Training data have the class
indices beside it: numpy.savez("train.npz", x=array, y=labels). The table has the columns index, one for each method
(higher = more uncertain), predicted (class) and probability (of that class)."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "score",
        help="score the inputs of a file with your own model",
        description="Scores every input of a .npz file with a model of your own and writes a table.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    add_model(command)
    command.add_argument("--data", required=True, metavar="FILE.npz", help="the inputs: the array x, or the only array")
    command.add_argument("--key", metavar="NAME", help="another array of the data file")
    command.add_argument("--out", required=True, metavar="FILE", help="the table: .parquet, .csv or .json")
    command.add_argument(
        "--method", action="append", type=_method, metavar="NAME",
        help="a name that `nescio methods` lists; may be repeated (default: regrad)",
    )  # fmt: skip
    command.add_argument(
        "--set", action="append", default=[], type=_setting, metavar="KEY=VALUE",
        help="a setting of the methods that have it, or with METHOD.KEY=VALUE of one alone; may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--fit", metavar="FILE.npz", help="training data, arrays x and y, for the methods that need them"
    )
    add_running(command)
    command.set_defaults(run=run)
    plain = command.format_help  # the names are looked up when help is asked for, since that imports torch
    command.format_help = lambda: f"{plain()}\nmethods: {_names()}\n"


def run(args: argparse.Namespace) -> int:
    """Load, score, write."""
    import numpy as np

    from nescio import models
    from nescio.data import check_ending, check_writable, read_npz, write_table
    from nescio.study.scoring import score

    check_ending(args.out)
    check_writable(args.out)
    chosen = _configured(args.method or ["regrad"], args.set)
    x = tensor(read_npz(args.data, args.key))
    training = None if args.fit is None else _training(args.fit, args.batch_size)
    model = models.load(args.model, args.weights, trust_pickle=args.trust_pickle)
    classifier = models.Classifier.of(model, output=args.output)
    if args.device is not None:
        move(classifier, args.device)
    batches = list(x.split(args.batch_size))
    output: Any = classifier.output
    found = score(classifier, batches, chosen, fit=training, output=output, report=True)
    predicted, probability = _predicted(classifier, batches)
    columns = {"index": np.arange(len(x)), **{name: scored.scores.numpy() for name, scored in found.items()}}
    write_table(args.out, columns | {"predicted": predicted.numpy(), "probability": probability.numpy()})
    print(f"Wrote {len(x)} rows to {args.out}: {', '.join(found)}")
    for name, scored in found.items():
        if scored.error is not None and len(scored.error):
            print(f"{name}: {_error(scored)}")
    return 0


def _training(path: str, batch_size: int) -> list[tuple[Tensor, Tensor]]:
    """The training data in batches."""
    from nescio.data import read_npz
    from nescio.types import InputError

    x, y = (tensor(read_npz(path, key)) for key in ("x", "y"))
    if len(x) != len(y):
        raise InputError(f"--fit: expected as many labels y as inputs x in {path}, but got {len(y)} and {len(x)}")
    return list(zip(x.split(batch_size), y.split(batch_size), strict=True))


def _error(scored: Scored) -> str:
    """What is known of the error of scores that were estimated."""
    assert scored.error is not None
    middle, largest = scored.error.median(), scored.error.max()
    text = f"estimated; standard error {middle:.1%} in the middle, {largest:.1%} at most"
    if scored.check is not None:
        inputs = "1 input" if scored.check.inputs == 1 else f"{scored.check.inputs} inputs"
        text += f"; {scored.check.worst:.1%} off at most for {inputs} computed exactly"
    return text


def _configured(names: list[str], settings: list[tuple[str | None, str, Any]]) -> list[Method]:
    """The methods with their settings; a setting that no chosen method has is an error."""
    from nescio import scores
    from nescio.types import InputError

    own = {name: set(info.settings) for name, info in _infos(names).items()}
    given: dict[str, dict[str, Any]] = {name: {} for name in own}
    for only, key, value in settings:
        takers = [name for name in own if key in own[name] and only in (None, name)]
        if not takers:
            whom = f"'{only}'" if only is not None else "any of the chosen methods"
            listed = "; ".join(f"{name}: {', '.join(sorted(keys)) or 'none'}" for name, keys in own.items())
            raise InputError(f"--set: expected a setting of {whom}, but got '{key}'; there are {listed}")
        for name in takers:
            given[name][key] = value
    return [scores.get(name, **given[name]) for name in own]


def _infos(names: list[str]) -> dict[str, Any]:
    from nescio.scores import methods

    table = {info.name: info for info in methods()}
    return {name: table[name] for name in names}  # a name that is given twice counts once


def _predicted(classifier: Classifier, batches: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The most probable class of each input, and its probability in float64."""
    import torch

    from nescio.modes import predicting, preserved

    best = []
    with preserved(classifier), predicting(classifier):
        for batch in batches:
            if len(batch):
                best.append(classifier.logits(classifier.prepare(batch)).double().softmax(dim=1).max(dim=1))
    empty = torch.empty(0, dtype=torch.float64)
    probability = torch.cat([empty, *(found.values.cpu() for found in best)])
    return torch.cat([empty.long(), *(found.indices.cpu() for found in best)]), probability


def _names() -> str:
    from nescio.scores import names

    return ", ".join(names())


def _method(name: str) -> str:
    from nescio.scores import get
    from nescio.types import InputError

    try:
        get(name)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def _setting(text: str) -> tuple[str | None, str, Any]:
    """`sigma=0.1` or `regrad.sigma=0.1`; a value that is no Python literal is a word."""
    path, equals, value = text.partition("=")
    method, dot, key = path.strip().rpartition(".")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE or METHOD.KEY=VALUE, got '{text}'")
    try:
        parsed = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        parsed = value.strip()
    return (method if dot else None), key, parsed
