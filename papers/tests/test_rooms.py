"""Which package of nescio_papers may import which: data and networks, then the runner, then studies, then commands."""

import ast
from pathlib import Path

import nescio_papers

PACKAGE = Path(nescio_papers.__file__).parent
BELOW = {
    "datasets": set(),
    "zoo": {"datasets"},
    "runner": {"datasets", "zoo"},
}
PAPERS = ("regrad", "ua_backprop", "know_your_limits", "guard", "dense")
BELOW |= {paper: {"datasets", "zoo", "runner"} for paper in PAPERS}
BELOW["reproduce"] = set(BELOW)
BELOW["commands"] = {"reproduce", "zoo"}
BELOW["__main__"] = {"commands"}
BELOW["__init__"] = set()


def imported(tree: ast.AST) -> set[str]:
    """Return the rooms of nescio_papers that a file imports, also inside of functions."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("nescio_papers.")}


def test_every_import_goes_down() -> None:
    against = []
    for file in PACKAGE.rglob("*.py"):
        path = file.relative_to(PACKAGE)
        room = path.parts[0].removesuffix(".py")
        rooms = imported(ast.parse(file.read_text(encoding="utf-8"))) - {room} - BELOW[room]
        against += [f"{path}: {room} may not import {other}" for other in rooms]
    assert against == []
