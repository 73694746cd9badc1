"""`nescio calibrate`: a model and held-out labelled data in; a fitted temperature and a reliability diagram out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio.cli.own_model import add_model, add_running, opened_model

if TYPE_CHECKING:
    from torch import Tensor

    from nescio.posteriors import Temperature

PICTURE = "reliability.png"
EXAMPLES = """examples:
  nescio calibrate --model mymodels:build --weights w.safetensors --data held-out.npz --out calibrated
  nescio calibrate --model mymodels:build --data held-out.npz --test test.npz --out calibrated
  nescio calibrate --model mymodels:build --data held-out.npz --kind platt --seed 1 --out calibrated

The data are labelled inputs that the model was not trained on: numpy.savez("held-out.npz", x=array, y=labels), with
class indices from 0. One half, drawn at random, serves for the fit, and the figures are of the other half; with --test
all serve for the fit, and the figures are of the test file. The folder gets posterior.json and its tensors, which
nescio.posteriors.load(FOLDER, model) reads, and reliability.png; other commands take it as --model FOLDER."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "calibrate",
        help="make the probabilities of your own model honest",
        description="Fits a temperature to held-out labelled data, so that probabilities mean what they say, and shows "
        "what it changes on data that were not used for it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    add_model(command)
    command.add_argument("--data", required=True, metavar="FILE.npz", help="held-out inputs and labels")
    command.add_argument("--test", metavar="FILE.npz", help="other inputs and labels, for the figures")
    command.add_argument("--key", metavar="NAME", help="the array of inputs (default: x)", default="x")
    command.add_argument("--labels-key", metavar="NAME", help="the array of labels (default: y)", default="y")
    command.add_argument("--out", required=True, metavar="FOLDER", help="where to write; made if it is not there")
    command.add_argument(
        "--kind", choices=("temperature", "platt"), default="temperature",
        help="one temperature, which leaves every answer as it is, or a scale and a shift for each class "
        "(default: %(default)s)",
    )  # fmt: skip
    command.add_argument("--seed", type=int, default=0, help="of the split into halves (default: %(default)s)")
    add_running(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fit, compare, write."""
    from nescio import plots
    from nescio.data import replacing
    from nescio.evaluate import nll, reliability
    from nescio.models import Classifier
    from nescio.posteriors import Deterministic, Temperature
    from nescio.study.opening import remember
    from nescio.types import InputError, need

    folder = _checked_folder(args.out)
    need("matplotlib.figure", "demo")
    need("safetensors.torch", "files")
    fit, test, whose = _parts(args)
    classifier = opened_model(args).model
    if not isinstance(classifier, Classifier):
        raise InputError(f"--model: expected one network to calibrate, but {args.model} holds a distribution of them")

    inputs, labels = test[0].split(args.batch_size), test[1]
    before = Deterministic(classifier).predict(inputs)[0]
    reliable = {"before": reliability(before, labels)}  # labels that do not fit are found before the fit
    batches = zip(*(part.split(args.batch_size) for part in fit), strict=True)
    posterior = Temperature(classifier, args.kind).fit(list(batches))
    after = posterior.predict(inputs)[0]
    reliable["after"] = reliability(after, labels)

    print(_fitted(posterior, len(fit[1])))
    print(f"{whose}:\n")
    rows = {"ECE": [f"{100 * r.ece:.2f} %" for r in reliable.values()]}
    rows["NLL"] = [f"{nll(p, labels):.4g}" for p in (before, after)]
    rows["accuracy"] = [f"{100 * r.mean_accuracy:.2f} %" for r in reliable.values()]
    print(f"{'':10}{'before':>10}{'after':>10}")
    for name, (was, now) in rows.items():
        print(f"{name:10}{was:>10}{now:>10}")

    figure = plots.reliability(reliable)
    posterior.save(folder)
    remember(folder, args.model, args.weights, output=args.output)
    with replacing(folder / PICTURE) as part:
        figure.savefig(part, format="png", dpi=150)
    print(f"\nWrote {folder}: posterior.json with its tensors, and {PICTURE}")
    return 0


def _checked_folder(path: str) -> Path:
    """The folder; raises now where it could not be made or written."""
    from nescio.data import check_writable
    from nescio.types import InputError

    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: expected a folder, but {path} is a file; name another place")
    check_writable(folder / PICTURE if folder.exists() else folder)
    return folder


def _parts(args: argparse.Namespace) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], str]:
    """Inputs and labels for the fit, those for the figures, and in words what the latter are."""
    import torch

    from nescio.types import InputError

    x, y = _labelled(args.data, args.key, args.labels_key)
    if args.test is not None:
        test = _labelled(args.test, args.key, args.labels_key)
        if torch.equal(x, test[0]):
            whose = f"On the same {len(y)} inputs that it was fitted to, so rather too good"
        else:
            whose = f"On the {len(test[1])} inputs of {args.test}"
        return (x, y), test, whose
    if len(y) < 2:
        raise InputError(f"--data: expected at least 2 inputs, one for each half, but {args.data} has {len(y)}")
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(args.seed))
    fit, rest = order[: len(y) // 2].sort().values, order[len(y) // 2 :].sort().values
    return (x[fit], y[fit]), (x[rest], y[rest]), f"On the other {len(rest)} inputs of {args.data}"


def _labelled(path: str, key: str, labels_key: str) -> tuple[Tensor, Tensor]:
    import numpy as np

    from nescio.data import read_npz
    from nescio.study.jobs import tensor
    from nescio.types import InputError

    x, y = read_npz(path, key), read_npz(path, labels_key)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise InputError(
            f"expected class indices, one whole number for each input, as {labels_key!r} in {path}, "
            f"but it has the type {y.dtype} and the shape {list(y.shape)}"
        )
    if len(x) != len(y):
        raise InputError(f"expected one label for each of the {len(x)} inputs in {path}, but got {len(y)}")
    if len(x) == 0:
        raise InputError(f"expected at least one input in {path}, but got none")
    return tensor(x), tensor(y.astype(np.int64))


def _fitted(posterior: Temperature, count: int) -> str:
    if posterior.temperature is None:
        return f"Fitted a scale and a shift for each class to {count} inputs."
    t = posterior.temperature
    word = "too sure" if t > 1 else "not sure enough"
    return f"Fitted to {count} inputs: T = {t:.4g}" + (f" (the model was {word})." if f"{t:.4g}" != "1" else ".")
