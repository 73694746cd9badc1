"""`nescio calibrate`: a model and held-out labelled data in; a fitted temperature and a reliability diagram out."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from nescio._common.formatting import count
from nescio.cli.messages import other_classes, tell_cheaper, tell_opened, tell_problems
from nescio.cli.options import add_command, add_data, add_model, add_running
from nescio.cli.paths import output_folder
from nescio.cli.specs import data_spec, model_spec

if TYPE_CHECKING:
    from nescio.batch.fitted_temperature import Calibration, LabelledRows
    from nescio.cli.options import Commands
    from nescio.specs import DataSpec, Rows, Source

PICTURE = "reliability.png"
EXAMPLES = """\
The data are labelled inputs that the model was not trained on: pictures in a folder for each class, a table with a
column of labels, or numpy.savez("held-out.npz", x=array, y=labels), with class indices from 0. One half, drawn at
random, serves for the fit, and the figures are of the other half; with --test all serve for the fit, and the figures
are of the test data. The folder gets posterior.json and its tensors, which nescio.posteriors.load(FOLDER, model) reads,
and reliability.png; other commands take it as --model FOLDER.

examples:
  nescio calibrate --model mymodels:build --weights w.safetensors --data held-out.npz --out calibrated
  nescio calibrate --model mymodels:build --data held-out.npz --test test.npz --out calibrated
  nescio calibrate --model timm:resnet18 --weights w.safetensors --data photos --kind platt --seed 1 --out calibrated"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "calibrate",
        help="make the probabilities of your own model honest",
        description="Fits a temperature to held-out labelled data, so that probabilities mean what they say, and shows "
        "what it changes on data that were not used for it.",
        examples=EXAMPLES,
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
    from nescio._common.lazy_imports import need
    from nescio.batch.fitted_temperature import calibrate
    from nescio.specs import names_code, only_network, open_source, remember

    folder = output_folder(args.out, PICTURE)
    need("matplotlib.figure", "demo")
    need("safetensors.torch", "files")
    model = model_spec(args)
    source = open_source(model)
    network = only_network(source, "to calibrate")
    fit, test = _data(args, source)
    tell_cheaper(args, "fewer rows")
    calibration = calibrate(network, fit, test, args.kind)
    for rows in {id(part.rows): part.rows for part in (fit, test)}.values():
        tell_problems(rows)
    _tell(calibration, _whose(args, fit, test))
    calibration.posterior.save(folder)
    remember(folder, replace(model, class_names=None))
    calibration.draw(folder / PICTURE)
    print(f"\nWrote {folder}: posterior.json with its tensors, and {PICTURE}")
    base = f" --base {args.model}" if names_code(args.model) else ""
    print(f"Other commands take it as --model {folder}{base}")
    return 0


def _data(args: argparse.Namespace, source: Source) -> tuple[LabelledRows, LabelledRows]:
    """Return the rows for the fit, and those for the figures."""
    from nescio.batch.fitted_temperature import LabelledRows, halves
    from nescio.types import InputError

    rows = _labelled(data_spec(args), source)
    tell_opened(source, rows)
    if args.test is not None:
        test = _labelled(data_spec(args, args.test), source)
        whole = (LabelledRows(one, range(len(one)), args.batch_size) for one in (rows, test))
        return next(whole), next(whole)
    if len(rows) < 2:
        raise InputError(f"--data: expected at least 2 inputs, one for each half, but {args.data} has {len(rows)}")
    return halves(rows, args.seed, args.batch_size)


def _labelled(data: DataSpec, source: Source) -> Rows:
    from nescio.specs import open_rows
    from nescio.types import InputError

    rows = open_rows(data, source)
    if not len(rows):
        raise InputError(f"expected at least one input in {data.path}, but got none")
    if rows.labels is None:
        raise InputError(f"expected labelled data, but {data.path} has no labels (--label names them)")
    if strange := other_classes(source, rows):
        raise InputError(
            f"expected labels among the model's classes in {data.path}, but {strange}; give them its names"
        )
    return rows


def _whose(args: argparse.Namespace, fit: LabelledRows, test: LabelledRows) -> str:
    """Return in words what the figures are about."""
    tested = count(len(test.labels()), "input")
    if args.test is None:
        return f"On the other {tested} of {args.data}"
    if fit.rows.identity == test.rows.identity:
        return f"On the same {tested} that it was fitted to, so rather too good"
    return f"On the {tested} of {args.test}"


def _tell(calibration: Calibration, whose: str) -> None:
    """Print what was fitted, and the figures before and after it."""
    t = calibration.posterior.temperature
    if t is None:
        print(f"Fitted a scale and a shift for each class to {count(calibration.fitted, 'input')}.")
    else:
        word = f" (the model was {'too sure' if t > 1 else 'not sure enough'})" if f"{t:.4g}" != "1" else ""
        print(f"Fitted to {count(calibration.fitted, 'input')}: T = {t:.4g}{word}.")
    print(f"{whose}:\n")
    table = {
        "ECE": [f"{100 * one.ece:.2f} %" for one in calibration.reliability.values()],
        "NLL": [f"{value:.4g}" for value in calibration.nll.values()],
        "accuracy": [f"{100 * one.mean_accuracy:.2f} %" for one in calibration.reliability.values()],
    }
    print(f"{'':10}{'before':>10}{'after':>10}")
    for name, (before, after) in table.items():
        print(f"{name:10}{before:>10}{after:>10}")
