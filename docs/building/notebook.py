"""Tutorials as programs: a file of cells is run from top to bottom, and becomes a page and a notebook with outputs.

A file is a plain Python program in the percent format, which Jupyter tools read too:

    # %% [markdown]
    # A cell of text.

    # %% What the figure of this cell shows, for those who cannot see it
    the code

Cells share one namespace. What a cell prints and the value of its last expression are its output; a figure becomes a
picture, and the title of the cell is what stands in for it.
"""

from __future__ import annotations

import ast
import base64
import io
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "# %%"
DOTS, SHOWN = (
    200,
    96,
)  # an inch of a picture has so many pixels, and takes so many of a page: screens may be fine


@dataclass(frozen=True)
class Cell:
    """A piece of text, or of code; the title is the alternative text of the pictures of the cell."""

    text: str
    code: bool
    title: str = ""


@dataclass(frozen=True)
class Output:
    """What a cell gave: lines, and pictures in PNG."""

    text: str = ""
    pictures: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Executed:
    """A tutorial that has been run."""

    cells: tuple[Cell, ...]
    outputs: tuple[Output, ...]
    names: dict[str, Any] = field(repr=False)  # what the cells have defined, for tests

    def markdown(self, name: str) -> str:
        """The page; pictures are `name-1.png`, `name-2.png` …, in the order of `pictures`."""
        lines: list[str] = []
        number = 0
        for cell, output in zip(self.cells, self.outputs, strict=True):
            lines += ["```python", cell.text, "```", ""] if cell.code else [cell.text, ""]
            if output.text:
                lines += ["```text", output.text, "```", ""]
            for picture in output.pictures:
                number += 1
                width = (
                    int.from_bytes(picture[16:20], "big") * SHOWN // DOTS
                )  # the first number in a PNG's header
                lines += [f"![{cell.title}]({name}-{number}.png){{ width={width} }}", ""]
        return "\n".join(lines)

    @property
    def pictures(self) -> list[bytes]:
        """All of them, in order."""
        return [picture for output in self.outputs for picture in output.pictures]

    def notebook(self) -> dict[str, Any]:
        """The same for Jupyter (nbformat 4.5)."""
        inline = Cell("%matplotlib inline", code=True)
        pairs = [(inline, Output()), *zip(self.cells, self.outputs, strict=True)]
        return {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
            },
            "cells": [_json(f"cell-{at}", *pair) for at, pair in enumerate(pairs)],
        }


def read(path: Path) -> tuple[Cell, ...]:
    """The cells of a file."""
    found: list[Cell] = []
    head, *parts = ("\n" + path.read_text(encoding="utf-8")).split("\n" + MARK)
    if head.strip():
        raise ValueError(
            f"{path}: expected every line in a cell, but something stands before the first '{MARK}'"
        )
    for part in parts:
        title, _, body = part.partition("\n")
        if title.strip() == "[markdown]":
            found.append(
                Cell(
                    "\n".join(
                        line.removeprefix("#").removeprefix(" ") for line in body.split("\n")
                    ).strip(),
                    False,
                )
            )
        else:
            found.append(Cell(body.strip(), True, title.strip()))
    return tuple(found)


def run(path: Path) -> Executed:
    """The cells of a file, run in order; an exception in one of them is raised as it is."""
    cells = read(path)
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = [
        _run(cell, names, f"{path.name}, cell {at}") if cell.code else Output()
        for at, cell in enumerate(cells)
    ]
    return Executed(cells, tuple(outputs), names)


def _run(cell: Cell, names: dict[str, Any], where: str) -> Output:
    tree = ast.parse(cell.text, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    text, pictures = printed.getvalue(), ()
    if hasattr(value, "savefig"):
        if not cell.title:
            raise ValueError(
                f"{where}: expected a title that says what the figure shows: {MARK} What it shows"
            )
        pictures = (_png(value),)
    elif value is not None:
        text += repr(value)
    return Output(text.rstrip(), pictures)


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DOTS, metadata={"Software": None})
    return file.getvalue()


def _json(name: str, cell: Cell, output: Output) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "id": name,
        "metadata": {},
        "source": cell.text.splitlines(keepends=True),
    }
    if not cell.code:
        return {"cell_type": "markdown", **whole}
    outputs: list[dict[str, Any]] = []
    if output.text:
        outputs.append(
            {
                "output_type": "stream",
                "name": "stdout",
                "text": output.text.splitlines(keepends=True),
            }
        )
    for picture in output.pictures:
        data = {"image/png": base64.b64encode(picture).decode()}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    return {"cell_type": "code", "execution_count": None, "outputs": outputs, **whole}
