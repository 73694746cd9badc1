"""The programs take names from each other, and most are run by hand: what they import must be there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "benchmarks"
FILES = sorted(HERE.rglob("*.py"))


def defined(file: Path) -> set[str]:
    """The names at the top of a file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


def sibling(module: str) -> Path | None:
    """The file of a module that lies beside the programs."""
    path = HERE.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def missing(file: Path) -> list[str]:
    """What a program imports from another that does not have it."""
    lost = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and (other := sibling(node.module)) is not None:
            there = defined(other) | {path.stem for path in other.parent.glob("*.py") if other.name == "__init__.py"}
            lost += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in there]
    return lost


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_a_benchmark_imports_from_another_is_there(file: Path) -> None:
    assert missing(file) == []


def test_a_name_that_is_gone_is_seen(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from measure import save, no_such_name\nfrom torch import nn\n")
    assert missing(program) == ["measure.no_such_name"]
