"""`nescio decide`: scores of held-out inputs, and whether their answers are right, in; a policy with a promise out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio.cli.messages import say
from nescio.cli.options import add_class_names, add_command
from nescio.cli.paths import check_apart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nescio.cli.options import Commands

WRITTEN = "label"
"""The column in which `nescio score` writes labels, whatever they were called in the data."""
PICTURES = (".png", ".svg", ".pdf")
EXAMPLES = """\
The scores are those of inputs that the model was not trained on, as `nescio score` writes them. An answer is right if
the column 'predicted' has the true class. The true classes are in the column 'label', where `nescio score` puts them.
They can also be in another column (--label) or in a file (--labels). Or a column says whether each answer is right
(--correct), with True and False, or 1 and 0.

The policy makes a promise about new inputs like these: of the answers that it accepts, at most the share --risk is
wrong, with this --confidence. If no threshold can promise that, the policy says so and accepts nothing. That is no
error: the exit status is 0.

examples:
  nescio decide --scores scores.csv --out policy.json
  nescio decide --scores scores.csv --column regrad --risk 0.02 --confidence 0.95 --out policy.json
  nescio decide --scores scores.csv --column regrad --labels held-out.npz --out policy.json --plot errors.png
  nescio decide --scores scores.csv --column regrad --keep 0.95 --out policy.json        (without labels)"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "decide",
        help="find from which score on an answer should not be used, with a promise",
        description="Finds up to which score an answer can be accepted, from held-out inputs whose true classes are "
        "known. Keeps that rule, the policy, for `nescio apply`, `nescio serve` and `nescio app`.",
        examples=EXAMPLES,
    )
    command.add_argument(
        "--scores", required=True, metavar="FILE", help="a table of `nescio score`: .parquet, .csv or .json"
    )
    command.add_argument(
        "--column", metavar="METHOD",
        help="the column of the score to decide by, higher = less sure (default: the one that `nescio score` wrote)",
    )  # fmt: skip
    truth = command.add_mutually_exclusive_group()
    truth.add_argument(
        "--label", metavar="COLUMN",
        help="the column with the true classes (default: label, where `nescio score` writes them)",
    )  # fmt: skip
    truth.add_argument("--labels", metavar="FILE.npz", help="or a file with the true classes, in its array y")
    truth.add_argument("--correct", metavar="COLUMN", help="or a column that says whether each answer is right")
    truth.add_argument(
        "--keep", type=float, metavar="SHARE", help="or without labels: accept this share of such inputs"
    )
    command.add_argument(
        "--labels-key", metavar="NAME", help="the array of the .npz file with the true classes (default: y)"
    )
    command.add_argument(
        "--risk", type=float, metavar="SHARE",
        help="the share of the accepted answers that may be wrong (default: 0.05)",
    )  # fmt: skip
    command.add_argument(
        "--confidence", type=float, metavar="SHARE", help="how sure the promise should be (default: 0.9)"
    )
    command.add_argument("--out", required=True, metavar="FILE", help="where to write the policy, as JSON")
    command.add_argument(
        "--plot", metavar="FILE", help="draw how errors grow with the share of accepted answers: .png, .svg or .pdf"
    )
    add_class_names(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, decide, write."""
    from nescio import decide, evaluate, plots
    from nescio._common.lazy_imports import need
    from nescio.data import check_writable, replacing
    from nescio.data.tables import check_columns, read_table

    _check(args)
    check_apart({"--scores": args.scores, "--labels": args.labels, "--out": args.out, "--plot": args.plot})
    check_writable(args.out)
    if args.plot is not None:
        check_writable(args.plot)
        need("matplotlib.figure", "demo")
    table = read_table(args.scores)
    column = _score_column(args, table)
    label = _label_column(args, table)
    predicted = "predicted" if label or args.labels else None
    needed = (column, label, args.correct, predicted)
    check_columns(table, [name for name in needed if name is not None], args.scores)
    scores, about = numbers(table, column, args.scores), {"score": column}
    if args.keep is not None:
        policy = decide.quantile(scores, args.keep, about=about)
    else:
        correct = _correct(args, table, label)
        promised = {"risk": args.risk, "confidence": args.confidence}
        given = {name: value for name, value in promised.items() if value is not None}
        policy = decide.threshold(scores, correct, **given, about=about)
        if args.plot is not None:
            figure = plots.risk_coverage({column: evaluate.risk_coverage(scores, correct)}, policy)
            with replacing(args.plot) as part:
                figure.savefig(part, format=Path(args.plot).suffix.lower()[1:], dpi=150)
    policy.save(args.out)
    print(policy)
    print(f"Wrote {args.out}" + (f" and {args.plot}" if args.plot is not None else ""))
    return 0


def _score_column(args: argparse.Namespace, table: Mapping[str, NDArray[Any]]) -> str:
    """The column of the score: as it was said, or the only one that is called after a method."""
    from nescio import scores
    from nescio.types import InputError

    if args.column is not None:
        return str(args.column)
    written = [name for name in table if name in scores.names()]
    if len(written) == 1:
        return written[0]
    several = f"several scores: {', '.join(written)}" if written else f"no score among its columns: {', '.join(table)}"
    raise InputError(f"expected --column with the score to decide by, since {args.scores} has {several}")


def _label_column(args: argparse.Namespace, table: Mapping[str, NDArray[Any]]) -> str | None:
    """The column of the true classes: as it was said, or the one that `nescio score` writes."""
    from nescio.types import InputError

    if args.label is None and all(one is None for one in (args.labels, args.correct, args.keep)):
        if WRITTEN not in table:
            raise InputError(
                f"expected the true classes, but {args.scores} has no column '{WRITTEN}'; give --labels FILE.npz, "
                "--label COLUMN or --correct COLUMN, or without labels --keep SHARE"
            )
        return WRITTEN
    if args.label is not None and args.label not in table and WRITTEN in table:
        say(
            f"nescio: {args.scores} has no column '{args.label}'; the labels are taken from '{WRITTEN}', where nescio "
            "score writes them"
        )
        return WRITTEN
    return None if args.label is None else str(args.label)


def numbers(table: Mapping[str, NDArray[Any]], column: str, path: str) -> NDArray[Any]:
    """A column of the table that holds numbers."""
    from nescio.types import InputError

    values = table[column]
    if values.dtype.kind not in "fiub":
        row, odd = next((at, value) for at, value in enumerate(values.tolist()) if not _is_number(value))
        raise InputError(f"expected numbers in the column {column!r} of {path}, but it holds {odd!r} (row {row})")
    return values


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _check(args: argparse.Namespace) -> None:
    """Options that do not go together."""
    from nescio.types import InputError

    if args.keep is not None:
        for option in ("risk", "confidence", "plot"):
            if getattr(args, option) is not None:
                raise InputError(f"--{option}: expected labels with it, but --keep makes a policy without them")
    if args.labels_key is not None and args.labels is None:
        raise InputError("--labels-key: expected --labels FILE.npz with it")
    if args.plot is not None and Path(args.plot).suffix.lower() not in PICTURES:
        raise InputError(f"--plot: expected a file name that ends in {', '.join(PICTURES)}, but got '{args.plot}'")


def _correct(args: argparse.Namespace, table: Mapping[str, NDArray[Any]], label: str | None) -> NDArray[Any]:
    """Whether each answer is right; `label` is the column of the true classes, where there is one."""
    import numpy as np

    from nescio.data import read_class_names
    from nescio.data.class_names import names_of
    from nescio.types import InputError

    if args.correct is not None:
        return numbers(table, args.correct, args.scores)
    predicted = table["predicted"]
    if args.labels is not None:
        truth, name = _labels(args, table, len(predicted)), f"the labels of {args.labels}"
    else:
        assert label is not None  # one of the four is given: `_label_column`
        truth, name = table[label], f"the column {label!r}"
        if label == WRITTEN:
            _check_named_alike(table, args.scores)
    for values, what in ((predicted, "the column 'predicted'"), (truth, name)):
        text = values.dtype.kind == "O"
        empty = any(value is None or value == "" for value in values) if text else np.isnan(values).any()
        if empty:
            raise InputError(f"expected a class for each input, but {what} has empty cells; leave these rows out")
    names = None if args.class_names is None else read_class_names(args.class_names)
    if names is not None and (predicted.dtype.kind == "O") != (truth.dtype.kind == "O"):
        predicted, truth = (
            classes if classes.dtype.kind == "O" else names_of(classes, names) for classes in (predicted, truth)
        )
    if (predicted.dtype.kind == "O") != (truth.dtype.kind == "O"):
        raise InputError(
            f"expected classes of one kind, but {name} holds {truth[0]!r} and the column 'predicted' {predicted[0]!r}; "
            "give both as indices or both as names, or the names of all classes (--class-names)"
        )
    return np.asarray(predicted == truth)


def _check_named_alike(table: Mapping[str, NDArray[Any]], file: str) -> None:
    """Refuse labels that `nescio score` numbered otherwise than the model's classes: folders that name no classes."""
    from nescio.types import InputError

    if not {"predicted_class", "label_class"} <= table.keys():
        return
    called = dict(zip(table["predicted"].tolist(), table["predicted_class"].tolist(), strict=True))
    for at, name in zip(table[WRITTEN].tolist(), table["label_class"].tolist(), strict=True):
        if called.get(at, name) != name:
            raise InputError(
                f"expected labels of the model's classes, but in {file} class {at} is {called[at]!r} to the "
                f"model and {name!r} in the labels; give others (--labels, --label), or --keep SHARE without labels"
            )


def _labels(args: argparse.Namespace, table: Mapping[str, NDArray[Any]], count: int) -> NDArray[Any]:
    """The labels of the .npz file, one for each row: by the column 'index' where rows were left out or moved."""
    import numpy as np

    from nescio.data import read_npz
    from nescio.types import InputError

    if Path(args.labels).is_dir():
        hint = f"leave --labels out: {args.scores} has them in its column {WRITTEN!r}"
        other = "give the folder to `nescio score`, which writes the class of each picture"
        raise InputError(
            f"--labels: expected a .npz file, but {args.labels} is a folder; {hint if WRITTEN in table else other}"
        )
    labels = read_npz(args.labels, args.labels_key or "y")
    if labels.ndim != 1:
        raise InputError(f"expected one label for each input in {args.labels}, but its shape is {list(labels.shape)}")
    index = table.get("index", np.arange(count))
    if index.dtype.kind not in "iu" or np.unique(index).size != count:
        raise InputError(f"expected each row number once in the column 'index' of {args.scores}, but some are not")
    moved = not np.array_equal(index, np.arange(count))
    if (index.max() >= labels.size or index.min() < 0) if moved else (labels.size != count):
        what = f"{index.max() + 1} at least, for the column 'index'" if moved else f"{count}, one for each row"
        raise InputError(f"expected as many labels in {args.labels} as {args.scores} needs ({what}), got {labels.size}")
    result: NDArray[Any] = labels[index]
    return result
