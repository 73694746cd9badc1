"""The options that several commands share: model, data, how they are run, methods, guard. `specs` reads them."""

from __future__ import annotations

import argparse
import ast
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from nescio._common.argument_checks import argument_type, integer

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

MODEL = (
    "torchvision:NAME, timm:NAME, hf:PATH-OR-ID, FILE.onnx, FILE.pt2, PACKAGE.MODULE:FACTORY, or a folder that nescio "
    "wrote"
)
DATA = (
    "a folder of pictures, a .txt list of pictures, a .npz, .parquet or .csv file, or a Hugging Face data set on disk"
)
positive = argument_type(integer, at_least=1)
"""Reads a whole number of at least 1."""


class Setting(NamedTuple):
    """A setting of a score: ``--set regrad.sigma=0.1``; method None means every score that has it."""

    method: str | None
    key: str
    value: Any

    def __str__(self) -> str:
        return f"{f'{self.method}.' if self.method else ''}{self.key}={self.value}"


def add_command(
    commands: Commands, common: argparse.ArgumentParser, name: str, *, help: str, description: str, examples: str
) -> argparse.ArgumentParser:
    """Add a sub-command.

    Args:
        commands: The commands of `nescio`.
        common: The options of all of them.
        name: What the command is called.
        help: One line for the list of commands.
        description: What it does, in a sentence or two.
        examples: What else has to be known, and then commands to copy.

    Returns:
        The parser of the command, to which its own options are added.
    """
    return commands.add_parser(
        name, help=help, description=description, epilog=examples, parents=[common],
        formatter_class=HelpFormatter,
    )  # fmt: skip


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wrap paragraphs to the width of the terminal; what is indented, and examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = [
            block if "\n  " in f"\n{block}" else textwrap.fill(block, min(max(width, 40), 118), break_on_hyphens=False)
            for block in text.split("\n\n")
        ]
        return textwrap.indent("\n\n".join(blocks), indent)


def add_model(command: argparse.ArgumentParser, required: bool = True, bundled: bool = False) -> None:
    """Add the options that name a model; bundled: digits that come with nescio stand in where none is named."""
    default = " (default: bundled digits)" if bundled else ""
    command.add_argument("--model", required=required, metavar="MODEL", help=MODEL + default)
    command.add_argument(
        "--weights", metavar="FILE",
        help="the weights: a .safetensors file, or a file of torch.save; or published weights to download: DEFAULT "
        "(torchvision), pretrained (timm)",
    )  # fmt: skip
    command.add_argument(
        "--task", metavar="TASK",
        help="what a model hf:… is for, where its folder does not say it: image-classification, text-classification, "
        "token-classification, text-generation or image-segmentation",
    )  # fmt: skip
    add_class_names(command)


def add_class_names(command: argparse.ArgumentParser) -> None:
    """Add the option that names the classes."""
    command.add_argument(
        "--class-names", metavar="FILE",
        help="a file with the names of the classes: text with a name on each line, or JSON (a list, or index to name)",
    )  # fmt: skip


def add_data(command: argparse.ArgumentParser, required: bool = True, option: str = "--data") -> None:
    """Add the options that say where the data are, and how a row is made ready for the model."""
    command.add_argument(option, required=required, metavar="PATH", help=DATA)
    command.add_argument(
        "--x", "--key", dest="x", metavar="NAME",
        help="the array or column of inputs; several with commas (default: found by usual names)",
    )  # fmt: skip
    command.add_argument(
        "--label",
        default="auto",
        metavar="NAME",
        help="the array or column of labels, or none (default: found by usual names)",
    )
    command.add_argument(
        "--name",
        default="auto",
        metavar="NAME",
        help="the column with the name of each row, or none (default: found by usual names)",
    )
    command.add_argument(
        "--on-error", choices=("stop", "skip"), default="stop",
        help="what to do with a row that cannot be used: stop, or skip it and say so (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--base",
        metavar="MODEL",
        help="the model of a saved posterior, if its folder names no model, or names a function",
    )
    add_preprocessing(command)


def add_preprocessing(command: argparse.ArgumentParser) -> None:
    """Add the options that say how pictures are made ready, in the place of the model's own way."""
    command.add_argument(
        "--size",
        type=size,
        metavar="N",
        help="resize pictures to a side of N, or to HxW; 0: do not (default: the model's)",
    )
    command.add_argument("--crop", type=size, metavar="N", help="then crop the middle to this size; 0: do not")
    command.add_argument(
        "--mean", type=channels, metavar="A,B,C", help="normalise with this mean of each channel, in [0, 1]; or none"
    )
    command.add_argument(
        "--std", type=channels, metavar="A,B,C", help="normalise with this standard deviation of each channel; or none"
    )


def add_running(
    command: argparse.ArgumentParser,
    batch: str | None = "how many rows go to the model at a time (default: %(default)s)",
) -> None:
    """Add the options that say how the model is run; batch: the help of --batch-size, None for none."""
    command.add_argument(
        "--output", choices=("logits", "probabilities", "binary"), help="what the model returns (default: logits)"
    )
    if batch is not None:
        command.add_argument("--batch-size", type=positive, default=256, metavar="N", help=batch)
    command.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 … (default: where the model is made)")
    command.add_argument(
        "--trust-pickle", action="store_true",
        help="open files that can run code: pickled weights, a .pt2 file, a folder that names a function; only if you "
        "trust them",
    )  # fmt: skip


def add_parts(command: argparse.ArgumentParser) -> None:
    """Add the options of work that is kept in parts."""
    command.add_argument(
        "--out",
        required=True,
        metavar="PATH",
        help="where the table goes: a .parquet, .csv or .json file, or a folder for its parts",
    )
    command.add_argument("--fresh", action="store_true", help="delete what an earlier run has kept, and start again")
    command.add_argument("--overwrite", action="store_true", help="replace the file of --out if it exists")
    command.add_argument(
        "--part-rows", type=positive, metavar="N",
        help="how many rows a part has (default: chosen by their number and the time they take)",
    )  # fmt: skip
    command.add_argument(
        "--engine", choices=("local", "ray"), default="local",
        help="local: this process; ray: many processes, on many GPUs or machines (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--workers", type=positive, metavar="N",
        help="threads that read rows, or processes for a GPU (default: chosen by cores and kind of data); with ray: "
        "processes that each have a model",
    )  # fmt: skip
    command.add_argument("--address", metavar="HOST:PORT", help="with ray: the cluster (default: this machine alone)")
    add_running(
        command,
        "how many rows go to the model at a time (default: found by time, 1 to 256; a run that goes on takes the same)",
    )
    command.set_defaults(batch_size=None)


def add_methods(command: argparse.ArgumentParser, words: str) -> None:
    """Add the options that choose scores and their settings; words: the help of --method."""
    command.add_argument("--method", action="append", type=method, metavar="NAME", help=words)
    add_settings(command, "a setting of all chosen methods that have it, or with METHOD.KEY=VALUE of one method")


def add_settings(command: argparse.ArgumentParser, words: str) -> None:
    """Add the option that gives settings."""
    command.add_argument(
        "--set", action="append", default=[], type=setting, metavar="KEY=VALUE", help=f"{words}; may be repeated"
    )


def add_posterior(command: argparse.ArgumentParser) -> None:
    """Add the option of a saved distribution over the model."""
    command.add_argument(
        "--posterior", metavar="FOLDER", help="a saved distribution over the model, such as an ensemble"
    )


def add_guard(command: argparse.ArgumentParser) -> None:
    """Add the options of a guard, or of what one is made of."""
    command.add_argument(
        "--guard", metavar="FOLDER", help="the folder that `nescio guard` wrote; it says which inputs are foreign"
    )
    command.add_argument(
        "--reference", metavar="PATH",
        help="or fit a guard now, to some hundred inputs that the model is meant for and was not trained on",
    )  # fmt: skip


def add_address(command: argparse.ArgumentParser, port: int) -> None:
    """Add the options that say where a server listens."""
    command.add_argument("--host", default="127.0.0.1", help="default: %(default)s, this machine alone")
    command.add_argument("--port", type=int, default=port, help="0 for any free one (default: %(default)s)")


def size(text: str) -> int | tuple[int, int]:
    """Read a number of pixels, or HEIGHTxWIDTH."""
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() for side in sides):
        raise argparse.ArgumentTypeError(f"expected a number of pixels or HEIGHTxWIDTH, got '{text}'")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def channels(text: str) -> tuple[float, ...]:
    """Read numbers with commas between them; none is an empty tuple."""
    if text == "none":
        return ()
    try:
        return tuple(float(one) for one in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected numbers with commas, or none, got '{text}'") from error


def method(name: str) -> str:
    """Read the name of a score."""
    from nescio.scores import get
    from nescio.types import InputError

    try:
        get(name)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def setting(text: str) -> Setting:
    """Read `sigma=0.1` or `regrad.sigma=0.1`; a value that is no Python literal is a word."""
    path, equals, value = text.partition("=")
    name, dot, key = path.strip().rpartition(".")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE or METHOD.KEY=VALUE, got '{text}'")
    try:
        parsed = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        parsed = value.strip()
    return Setting(name if dot else None, key, parsed)
