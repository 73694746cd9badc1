"""What the commands that run a user's own model share: its arguments, and how model and data are made ready."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nescio.batch.jobs import DataAt, ModelAt
    from nescio.data.sources import Rows
    from nescio.models.sources import Source

SPEC = "torchvision:NAME, timm:NAME, hf:PATH-OR-ID, FILE.pt2, PACKAGE.MODULE:FACTORY or a folder that nescio has kept"
DATA = "a folder of pictures, a .txt list of them, .npz, .parquet, .csv, or a data set of Hugging Face on disk"


def add_model(command: argparse.ArgumentParser, required: bool = True) -> None:
    """Where the model comes from."""
    command.add_argument("--model", required=required, metavar="MODEL", help=SPEC)
    command.add_argument(
        "--weights", metavar="FILE",
        help="its weights: .safetensors, or a file of torch.save; or published ones to fetch: DEFAULT for torchvision, "
        "pretrained for timm",
    )  # fmt: skip
    add_class_names(command)


def add_class_names(command: argparse.ArgumentParser) -> None:
    """How its classes are called."""
    command.add_argument(
        "--class-names", metavar="FILE",
        help="the names of its classes: a text file, one on a line, or JSON, a list or index to name",
    )  # fmt: skip


def class_names(args: argparse.Namespace) -> tuple[str, ...] | None:
    """Those of --class-names."""
    from nescio.data import read_class_names

    file = getattr(args, "class_names", None)
    return None if file is None else read_class_names(file)


def add_data(command: argparse.ArgumentParser, required: bool = True, option: str = "--data") -> None:
    """Where the data come from, and how a row is made ready for the model."""
    command.add_argument(option, required=required, metavar="PATH", help=DATA)
    command.add_argument(
        "--x", "--key", dest="x", metavar="NAME",
        help="the array or column of inputs; several columns of numbers with commas (default: by usual names)",
    )  # fmt: skip
    command.add_argument(
        "--label", default="auto", metavar="NAME", help="the array or column of labels, or none (default: usual names)"
    )
    command.add_argument(
        "--name", default="auto", metavar="NAME", help="the column that names rows, or none (default: usual names)"
    )
    command.add_argument(
        "--on-error", choices=("stop", "skip"), default="stop",
        help="at rows that cannot be used: stop, or skip them and say which (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--base", metavar="MODEL", help="the model under a saved posterior, where its folder names none or a function"
    )
    command.add_argument(
        "--size", type=_size, metavar="N", help="resize pictures to a side of N, or HxW; 0: not (default: the model's)"
    )
    command.add_argument("--crop", type=_size, metavar="N", help="then cut this out of the middle; 0: not")
    command.add_argument(
        "--mean", type=_channels, metavar="A,B,C", help="normalise with this mean of each channel in [0, 1], or none"
    )
    command.add_argument("--std", type=_channels, metavar="A,B,C", help="and this standard deviation, or none")


def add_running(command: argparse.ArgumentParser, batch: str = "default: %(default)s") -> None:
    """How it is run; batch: how many rows at a time where nobody says it, in words."""
    command.add_argument(
        "--output", choices=("logits", "probabilities", "binary"), help="what the model returns (default: logits)"
    )
    command.add_argument("--batch-size", type=positive, default=256, metavar="N", help=batch)
    command.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 … (default: where the factory puts it)")
    add_trust(command)


def add_trust(command: argparse.ArgumentParser) -> None:
    """Leave to run what files bring along."""
    command.add_argument(
        "--trust-pickle", action="store_true",
        help="open what may run code: pickled weights, a .pt2, a folder that names a function; only if you trust it",
    )  # fmt: skip


def model_at(args: argparse.Namespace) -> ModelAt:
    """The model of --model, --weights, --base and the pre-processing flags, on the device of --device."""
    from nescio.batch.jobs import ModelAt

    own = {name: getattr(args, name, None) for name in ("base", "output", "size", "crop", "mean", "std", "device")}
    return ModelAt(args.model, args.weights, trust_pickle=args.trust_pickle, classes=class_names(args), **own)


def data_at(args: argparse.Namespace, path: str) -> DataAt:
    """Data at a path, read as the flags say."""
    from nescio.batch.jobs import DataAt

    x = tuple(args.x.split(",")) if args.x is not None and "," in args.x else args.x
    return DataAt(path, x, _or_none(args.label), _or_none(args.name), args.on_error)


def opened_model(args: argparse.Namespace) -> Source:
    """That model, opened."""
    return model_at(args).open()


def opened_data(args: argparse.Namespace, source: Source, path: str | None = None) -> Rows:
    """The rows of --data, or of another path, for that model."""
    return data_at(args, args.data if path is None else path).open(source)


def tell_opened(source: Source, rows: Rows) -> None:
    """On standard error what was opened and what is done to each row; nothing for arrays of numbers as they are."""
    from nescio.data.sources.arrays import ArrayRows

    if source.preprocess is not None or not isinstance(rows.store, ArrayRows):
        print(f"model: {source.about}", file=sys.stderr)
        print(f"data: {rows.about}", file=sys.stderr)
        print(f"pre-processing: {rows.preprocess}", file=sys.stderr)
    if strange := other_classes(source, rows):
        print(f"nescio: warning: {strange}: labels and answers cannot be compared by their indices", file=sys.stderr)


def other_classes(source: Source, rows: Rows) -> str | None:
    """In words that the labels are not of the model's classes; None where they are, or nothing is known of them."""
    if rows.labels is None or source.classes is None or rows.classes in (None, source.classes):
        return None
    theirs, ours = (", ".join((names or ())[:3]) for names in (rows.classes, source.classes))
    return f"the classes of the data ({theirs} …) are not those of the model ({ours} …)"


def tell_problems(rows: Rows, most: int = 5) -> None:
    """On standard error how many rows could not be used, and the first of them by name."""
    found = rows.problems
    if not found:
        return
    print(f"nescio: {len(found)} of {len(rows)} rows could not be used and were left out:", file=sys.stderr)
    for problem in found[:most]:
        print(f"  {printable(str(problem))}", file=sys.stderr)
    if len(found) > most:
        print(f"  and {len(found) - most} more", file=sys.stderr)


def printable(text: str) -> str:
    """The text without what would steer a terminal: names of files can hold anything."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


@contextmanager
def until_told(words: str = "Ended.") -> Iterator[None]:
    """Run a server until Ctrl-C or SIGTERM, and then say so."""
    before = signal.signal(signal.SIGTERM, _end)  # uvicorn gives the signal back to us when all is done
    try:
        yield
    except KeyboardInterrupt:
        print(words, file=sys.stderr)
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got '{text}'")
    return int(text)


def _size(text: str) -> int | tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"expected a number of pixels or HEIGHTxWIDTH, got '{text}'")
    return int(parts[0]) if len(parts) == 1 else (int(parts[0]), int(parts[1]))


def _channels(text: str) -> tuple[float, ...]:
    if text == "none":
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected numbers with commas, or none, got '{text}'") from error


def _or_none(text: str) -> str | None:
    return None if text == "none" else text


def command_again(command: str, args: argparse.Namespace, together: Collection[str] = ()) -> str:
    """The command that gives the same again; a list follows its option as a whole where that is among `together`."""
    words = ["nescio", command]
    for name, value in vars(args).items():
        if name in ("run", "debug") or value is None or value is False or value == []:
            continue
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif name == "set":
            words += [w for whose, key, given in value for w in (flag, f"{f'{whose}.' if whose else ''}{key}={given}")]
        elif isinstance(value, list) and name in together:
            words += [flag, *map(str, value)]
        elif isinstance(value, list):
            words += [word for one in value for word in (flag, str(one))]
        elif isinstance(value, tuple):
            joint = "x" if name in ("size", "crop") else ","
            words += [flag, joint.join(map(str, value)) or "none"]
        else:
            words += [flag, str(value)]
    return shlex.join(words)
