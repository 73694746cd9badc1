"""The command `nescio`: it reads arguments, calls the rooms that do the work, and says in words what went wrong.

Exit status: 0 all went well; 1 something unforeseen; 2 the arguments or the data cannot be used; 130 interrupted, 143
by SIGTERM. An error is one sentence on standard error; `--debug` shows where it came from. Torch is imported only when
a command needs it, so that `nescio --help` is quick; and the commands themselves only by `parser`, so that Ctrl-C finds
a sentence too while they are imported.
Other packages add commands too (`nescio.cli.plugged`).
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TextIO

from nescio import __version__, progress
from nescio._common.without_torch import WITHOUT_TORCH
from nescio.cli import interrupting, plugged
from nescio.cli.argument_parser import Parser
from nescio.plugins import PluginError

FULL_MEMORY = (
    "memory ran out; end other programs that use it, give a smaller --batch-size where the command has one, or, for a "
    "GPU that others use too, take another device (--device cpu is slower and may have more)"
)
COMMANDS = (
    "demo",
    "methods",
    "guard",
    "check",
    "score",
    "plan",
    "explain",
    "calibrate",
    "decide",
    "apply",
    "audit",
    "report",
    "app",
    "serve",
)
"""In the order of the help: each is a module beside this one."""
DESCRIPTION = (
    """Uncertainty for any pre-trained PyTorch classifier: one number for each input, higher = more uncertain."""
)
EXAMPLES = """examples:
  nescio demo                            train a small network, compare every method, write nescio-demo.html
  nescio methods                         what there is, what each needs and what it costs
  nescio guard --model timm:resnet18 --weights w.safetensors --reference photos --out guard
  nescio check --guard guard --data new --out verdicts.parquet
  nescio score --model timm:resnet18 --weights w.safetensors --data photos --out scores.parquet
  nescio plan --model timm:resnet18 --weights w.safetensors --data photos --rows 1e9 --gpus 64 --device cuda
  nescio explain --model torchvision:resnet18 --weights w.safetensors --data photo.jpg --out maps
  nescio calibrate --model mymodels:build --weights w.safetensors --data held-out.npz --out calibrated
  nescio decide --scores scores.csv --column regrad --labels held-out.npz --risk 0.05 --out policy.json
  nescio apply --policy policy.json --scores new.csv --out decisions.csv
  nescio audit --model mymodels:build --weights w.safetensors --data x.npz --out audit.html
  nescio report --model mymodels:build --weights w.safetensors --data held-out.npz --ood other.npz --out report.html
  nescio app                             a web page: drop a picture, see the answer, its doubt, why, and what to do
  nescio serve                           answers, doubt, maps and decisions over HTTP; with bundled digits to try it

`nescio COMMAND --help` says more about a command."""


def main(arguments: Sequence[str] | None = None, extra: Mapping[str, Any] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The words after `nescio`; None takes those of the process.
        extra: Commands beside the built-in and the installed ones, by name.

    Returns:
        The exit status.
    """
    debug = False
    try:
        with progress.speaking():  # some arguments cannot be read without torch, which may take long to load
            args = parser(sys.argv[1:] if arguments is None else arguments, extra).parse_args(arguments)
            debug = getattr(args, "debug", False)
            with _plain_warnings(), interrupting.terminable():
                status: int = args.run(args)
                sys.stdout.flush()  # a closed pipe shows itself here, and not when Python ends
                return status
    except KeyboardInterrupt as error:
        if debug:
            raise
        print(interrupting.message(error, sys.argv[1:] if arguments is None else arguments), file=sys.stderr)
        return interrupting.status(error)
    except BrokenPipeError:  # whoever read our output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        if isinstance(error, PluginError):
            print(f"nescio: {error}", file=sys.stderr)
            return 2
        if isinstance(error, ImportError) and (error.name == "torch" or not _has_torch()):
            print(f"nescio: {WITHOUT_TORCH}", file=sys.stderr)
            return 2
        from nescio.types import NescioError

        if isinstance(error, NescioError):
            print(f"nescio: {_one_line(error)}", file=sys.stderr)
            return 2
        from nescio._common.memory import exhausted

        if exhausted(error):
            print(f"nescio: {FULL_MEMORY}. It said: {_one_line(error)[:200]}", file=sys.stderr)
            return 1
        where = f"{type(error).__name__}: {_one_line(error)}"
        print(f"nescio: unforeseen {where}; run again with --debug to see where", file=sys.stderr)
        return 1


def _has_torch() -> bool:
    try:
        return find_spec("torch") is not None
    except ModuleNotFoundError:
        return False


def parser(arguments: Sequence[str] = ("--help",), extra: Mapping[str, Any] | None = None) -> argparse.ArgumentParser:
    """Return the parser of these arguments: with every built-in command, and the plug-ins that the arguments ask for.

    Args:
        arguments: The words after `nescio`. Words that name no command ask for every plug-in.
        extra: Commands beside the built-in and the installed ones, by name.
    """
    common = Parser(add_help=False)
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    whole = Parser(
        prog="nescio",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    whole.add_argument("--version", action="version", version=f"nescio {__version__}")
    commands = whole.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name in COMMANDS:
        import_module(f"nescio.cli.{name}").add(commands, common)
    plugged.add(commands, common, arguments, COMMANDS, extra or {})
    return whole


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as one line on standard error, without the place in our source that gave them."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        print(f"nescio: warning: {_one_line(message)}", file=file or sys.stderr)

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


def _one_line(message: object) -> str:
    from nescio.cli.messages import printable

    return printable(" ".join(str(message).split())) or "no message"
