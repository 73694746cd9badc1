"""`nescio calibrate`: a model and held-out labelled data in; a fitted temperature and a reliability diagram out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio.cli.own_model import (
    add_data,
    add_model,
    add_running,
    opened_data,
    opened_model,
    other_classes,
    tell_opened,
    tell_problems,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from nescio.data.sources import Rows
    from nescio.inputs import Inputs
    from nescio.models.sources import Source
    from nescio.posteriors import Temperature

PICTURE = "reliability.png"
EXAMPLES = """examples:
  nescio calibrate --model mymodels:build --weights w.safetensors --data held-out.npz --out calibrated
  nescio calibrate --model mymodels:build --data held-out.npz --test test.npz --out calibrated
  nescio calibrate --model timm:resnet18 --weights w.safetensors --data photos --kind platt --seed 1 --out calibrated

The data are labelled inputs that the model was not trained on: pictures in a folder for each class, a table with a
column of labels, or numpy.savez("held-out.npz", x=array, y=labels), with class indices from 0. One half, drawn at
random, serves for the fit, and the figures are of the other half; with --test all serve for the fit, and the figures
are of the test data. The folder gets posterior.json and its tensors, which nescio.posteriors.load(FOLDER, model) reads,
and reliability.png; other commands take it as --model FOLDER."""


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
    add_data(command)
    command.add_argument("--test", metavar="PATH", help="other labelled data, for the figures")
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
    from nescio._common.lazy_imports import need
    from nescio.data import replacing
    from nescio.evaluate import nll, reliability
    from nescio.models import Classifier
    from nescio.posteriors import Deterministic, Temperature
    from nescio.progress import cheaper
    from nescio.specs.saved_models import names_code, remember
    from nescio.types import InputError

    folder = _checked_folder(args.out)
    need("matplotlib.figure", "demo")
    need("safetensors.torch", "files")
    source = opened_model(args)
    classifier = source.model
    if not isinstance(classifier, Classifier):
        raise InputError(f"--model: expected one network to calibrate, but {args.model} holds a distribution of them")
    fit, test = _parts(args, source)

    cheaper("fewer rows or a GPU (--device cuda) take less")
    before = Deterministic(classifier).predict(test)[0]
    labels = test.labels()
    reliable = {"before": reliability(before, labels)}  # labels that do not fit are found before the fit
    posterior = Temperature(classifier, args.kind).fit(fit)
    after = posterior.predict(test)[0]
    reliable["after"] = reliability(after, labels)

    for rows in {id(part.rows): part.rows for part in (fit, test)}.values():
        tell_problems(rows)
    print(_fitted(posterior, len(fit.labels())))
    print(f"{_whose(args, fit, test)}:\n")
    table = {"ECE": [f"{100 * r.ece:.2f} %" for r in reliable.values()]}
    table["NLL"] = [f"{nll(p, labels):.4g}" for p in (before, after)]
    table["accuracy"] = [f"{100 * r.mean_accuracy:.2f} %" for r in reliable.values()]
    print(f"{'':10}{'before':>10}{'after':>10}")
    for name, (was, now) in table.items():
        print(f"{name:10}{was:>10}{now:>10}")

    figure = plots.reliability(reliable)
    posterior.save(folder)
    kept = {name: getattr(args, name) for name in ("output", "size", "crop", "mean", "std")}
    remember(folder, args.model, args.weights, **kept)
    with replacing(folder / PICTURE) as part:
        figure.savefig(part, format="png", dpi=150)
    print(f"\nWrote {folder}: posterior.json with its tensors, and {PICTURE}")
    base = f" --base {args.model}" if names_code(args.model) else ""
    print(f"Other commands take it as --model {folder}{base}")
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


class Part:
    """Some rows of labelled data, read in batches as often as it is gone through."""

    def __init__(self, rows: Rows, places: list[int], size: int) -> None:
        self.rows, self.places, self.size = rows, places, size
        self.total = len(places)

    def __iter__(self) -> Iterator[tuple[Inputs, Tensor | None]]:
        for start in range(0, len(self.places), self.size):
            places = self.places[start : start + self.size]
            batch = self.rows.assemble(places, map(self.rows.attempt, places))
            if batch is not None:
                yield batch.inputs, batch.labels

    def labels(self) -> Tensor:
        """Those of the rows that could be used, once they were gone through."""
        assert self.rows.labels is not None
        bad = {problem.index for problem in self.rows.problems}
        return self.rows.labels[[place for place in self.places if place not in bad]]


def _parts(args: argparse.Namespace, source: Source) -> tuple[Part, Part]:
    """The rows for the fit, and those for the figures."""
    import torch

    from nescio.types import InputError

    rows = _labelled(args, source, args.data)
    tell_opened(source, rows)
    if args.test is not None:
        test = _labelled(args, source, args.test)
        return Part(rows, list(range(len(rows))), args.batch_size), Part(test, list(range(len(test))), args.batch_size)
    if len(rows) < 2:
        raise InputError(f"--data: expected at least 2 inputs, one for each half, but {args.data} has {len(rows)}")
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(args.seed))
    fit, rest = (half.sort().values.tolist() for half in (order[: len(rows) // 2], order[len(rows) // 2 :]))
    return Part(rows, fit, args.batch_size), Part(rows, rest, args.batch_size)


def _labelled(args: argparse.Namespace, source: Source, path: str) -> Rows:
    from nescio.types import InputError

    rows = opened_data(args, source, path)
    if not len(rows):
        raise InputError(f"expected at least one input in {path}, but got none")
    if rows.labels is None:
        raise InputError(f"expected labelled data, but {path} has no labels (--label names them)")
    if strange := other_classes(source, rows):
        raise InputError(f"expected labels among the model's classes in {path}, but {strange}; give them its names")
    return rows


def _whose(args: argparse.Namespace, fit: Part, test: Part) -> str:
    """In words what the figures are about."""
    count = len(test.labels())
    if args.test is None:
        return f"On the other {count} inputs of {args.data}"
    if fit.rows.identity == test.rows.identity:
        return f"On the same {count} inputs that it was fitted to, so rather too good"
    return f"On the {count} inputs of {args.test}"


def _fitted(posterior: Temperature, count: int) -> str:
    if posterior.temperature is None:
        return f"Fitted a scale and a shift for each class to {count} inputs."
    t = posterior.temperature
    word = "too sure" if t > 1 else "not sure enough"
    return f"Fitted to {count} inputs: T = {t:.4g}" + (f" (the model was {word})." if f"{t:.4g}" != "1" else ".")
