"""What commands tell people on standard error, beside their results."""

from __future__ import annotations

import sys
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


def other_classes(source: Source, rows: Rows) -> str | None:
    """Return in words that the labels are not of the model's classes; None where they are, or nothing is known."""
    if rows.labels is None or source.classes is None or rows.classes in (None, source.classes):
        return None
    theirs, ours = (", ".join((names or ())[:3]) for names in (rows.classes, source.classes))
    return f"the classes of the data ({theirs} …) are not those of the model ({ours} …)"


def tell_problems(rows: Rows, most: int = 5) -> None:
    """Say how many rows could not be used, and which are the first of them."""
    from nescio.batch.run_job import problem_lines

    for line in problem_lines(rows.problems, len(rows), most):
        say(line)


def tell_method(names: list[str] | None) -> None:
    """Say which score is taken where --method names none, and why."""
    from nescio.scores import default_method

    if names is None:
        name, why = default_method()
        say(f"nescio: the score is {name}, {why}")
