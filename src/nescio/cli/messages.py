"""What commands tell people on standard error, beside their results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nescio.specs import Rows, Source


def say(line: str) -> None:
    """Print a line on standard error."""
    print(printable(line), file=sys.stderr)


def printable(text: str) -> str:
    """Return the text without what would steer a terminal: names of files can hold anything."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def tell_opened(source: Source, rows: Rows) -> None:
    """Say what was opened, and what is done to each row; nothing for arrays of numbers as they are."""
    from nescio.data.sources.array_rows import ArrayRows

    if source.preprocess is not None or not isinstance(rows.store, ArrayRows):
        say(f"model: {source.about}")
        say(f"data: {rows.about}")
        say(f"pre-processing: {rows.preprocess}")
    if strange := other_classes(source, rows):
        say(f"nescio: warning: {strange}: labels and answers cannot be compared by their indices")
    elif rows.labels is not None and source.classes is None and rows.classes is not None:
        say(f"nescio: how the model's classes are called is not known; they are taken to be {_numbered(rows.classes)}")
        say("  If that is not the order of the model's outputs, say how they are called: --class-names FILE")


def other_classes(source: Source, rows: Rows) -> str | None:
    """Return in words that the labels are not of the model's classes; None where they are, or nothing is known."""
    if rows.labels is None or source.classes is None or rows.classes in (None, source.classes):
        return None
    theirs, ours = (", ".join((names or ())[:3]) for names in (rows.classes, source.classes))
    return f"the classes of the data ({theirs} …) are not those of the model ({ours} …)"


def _numbered(classes: Sequence[str], most: int = 4) -> str:
    """'0 cat, 1 dog' …"""
    more = f" and {len(classes) - most} more" if len(classes) > most else ""
    return ", ".join(f"{place} {name}" for place, name in enumerate(classes[:most])) + more


def tell_problems(rows: Rows, most: int = 5) -> None:
    """Say how many rows could not be used, and which are the first of them."""
    from nescio.batch.run_job import problem_lines

    for line in problem_lines(rows.problems, len(rows), most):
        say(line)


def tell_cheaper(args: argparse.Namespace, *ways: str) -> None:
    """Have long work name what is faster: these ways, and a GPU and more processes where the command can, and has none.

    Args:
        args: What the command was given.
        ways: What else is faster, such as an option and what it does.
    """
    from nescio.progress import cheaper

    faster = [*ways]
    if (getattr(args, "device", None) or "cpu") == "cpu":
        faster.append("a GPU (--device cuda)")
    if getattr(args, "engine", None) == "local":
        faster.append("more processes (--engine ray --workers N)")
    if faster:
        cheaper(f"faster: {', or '.join(faster)}")


def tell_method(names: list[str] | None) -> None:
    """Say which score is taken where --method names none, and why."""
    from nescio.scores import default_method

    if names is None:
        name, why = default_method()
        say(f"nescio: the score is {name}, {why}")
