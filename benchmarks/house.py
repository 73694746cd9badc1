"""Measure the source tree: lines, files, functions, docstrings, types, imports between rooms, repeated passages.

    python benchmarks/house.py                        print the numbers of this tree
    python benchmarks/house.py --before REVISION      print both and write results/house.json

A room is a folder or file directly below a package. An import counts wherever it stands: at the top of a file, in a
function or under TYPE_CHECKING.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = Path(__file__).parent / "results" / "house.json"
PACKAGES = {"nescio": "src/nescio", "nescio_papers": "papers/src/nescio_papers"}
FLOOR = {"types", "_common", "inputs", "progress", "modes", "plugins"}
PASSAGE = 6  # lines that make a repeated passage

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Numbers:
    """What is counted in one package, or in all."""

    files: int
    lines: int
    code_lines: int  # without blank lines, comments and docstrings
    median_file: int
    longest_file: int
    functions: int
    longest_function: int
    functions_over_60_lines: int
    public: int  # functions and classes whose name and whose file do not begin with an underscore
    public_with_args: int  # of those that take arguments
    public_with_arguments: int
    public_with_example: int
    functions_with_args_section: int
    parameters: int
    parameters_any: int
    cross_room_pairs: int
    pairs_above_the_floor: int  # without those rooms that every room stands on
    cross_room_imports: int
    cycles: int  # groups of rooms that import each other, directly or by way of others
    repeated_passages: int


def measure(files: dict[str, str]) -> Numbers:
    """Count everything in a set of files.

    Args:
        files: The text of every file by its path below the folder of packages, such as `nescio/types.py`.

    Returns:
        The counts.
    """
    trees = {path: ast.parse(text) for path, text in files.items()}
    lengths = [text.count("\n") for text in files.values()]
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, Function)]
    sizes = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    parameters = [p for node in functions for p in _parameters(node) if p.arg not in ("self", "cls")]
    public = [node for path, tree in trees.items() for node in _public(path, tree)]
    with_arguments = [node for node in public if isinstance(node, Function) and _parameters(node)]
    pairs = Counter(pair for path, tree in trees.items() for pair in _imports(path, tree, set(trees)))
    return Numbers(
        files=len(files),
        lines=sum(lengths),
        code_lines=sum(_code_lines(text, trees[path]) for path, text in files.items()),
        median_file=int(statistics.median(lengths)),
        longest_file=max(lengths),
        functions=len(functions),
        longest_function=max(sizes),
        functions_over_60_lines=sum(size > 60 for size in sizes),
        public=len(public),
        public_with_arguments=len(with_arguments),
        public_with_args=sum("Args:" in _docstring(node) for node in with_arguments),
        public_with_example=sum(">>>" in _docstring(node) for node in public),
        functions_with_args_section=sum("Args:" in _docstring(node) for node in functions),
        parameters=len(parameters),
        parameters_any=sum(_is_any(p.annotation) for p in parameters),
        cross_room_pairs=len(pairs),
        pairs_above_the_floor=sum(room.split(".")[-1] not in FLOOR for _, room in pairs),
        cross_room_imports=sum(pairs.values()),
        cycles=_cycles(set(pairs)),
        repeated_passages=_repeated(files),
    )


def _code_lines(text: str, tree: ast.Module) -> int:
    """Count the lines that are neither blank nor a comment nor a text that stands by itself."""
    texts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and at not in texts for at, line in lines)


def _docstring(node: ast.AST) -> str:
    return ast.get_docstring(node) or ""  # type: ignore[arg-type]


def _parameters(node: Function) -> list[ast.arg]:
    a = node.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]
    return [p for p in every if p.arg not in ("self", "cls")]


def _is_any(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def _public(path: str, tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    if any(part.startswith("_") and not part.startswith("__") for part in path.split("/")):
        return
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node


def _room(module: str) -> str:
    package, _, rest = module.partition(".")
    return f"{package}.{rest.split('.')[0]}" if rest else package


def _imports(path: str, tree: ast.Module, files: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (room, imported room) for every import that crosses rooms."""
    parts = path.removesuffix(".py").split("/")
    here = _room(".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts))
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                folder = parts[: len(parts) - node.level]
                base = ".".join([*folder, *([base] if base else [])])
            # `from nescio import data` imports a room, `from nescio.data import files` a name of one
            modules = [f"{base}.{alias.name}" for alias in node.names] if base in PACKAGES else [base]
        for module in modules:
            if module.split(".")[0] in PACKAGES and _room(module) != here and "." in module:
                yield here, _room(module)


def _cycles(pairs: set[tuple[str, str]]) -> int:
    after: dict[str, set[str]] = {}
    for start, end in pairs:
        after.setdefault(start, set()).add(end)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for room in after.get(todo.pop(), ()):
                if room not in seen:
                    seen.add(room)
                    todo.append(room)
        return seen

    reach = {room: reached(room) for room in after}
    groups = {frozenset(b for b in reach if b in reach[a] and a in reach[b]) for a in reach if a in reach[a]}
    return len(groups)


def _repeated(files: dict[str, str]) -> int:
    """Count the runs of six and more equal lines that stand in two places. Blank lines and imports do not count."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for path, text in files.items():
        lines = [line.strip() for line in text.splitlines()]
        lines = [line for line in lines if line and not line.startswith(("import ", "from ", "#"))]
        for at in range(len(lines) - PASSAGE + 1):
            window = tuple(lines[at : at + PASSAGE])
            if sum(len(line) > 3 for line in window) >= PASSAGE - 1:
                places.setdefault(window, []).append((path, at))
    # a run of seven equal lines has two windows of six: only the first of a run counts
    pairs = {(a, b) for found in places.values() for i, a in enumerate(found) for b in found[i + 1 :]}
    return sum(((a[0], a[1] - 1), (b[0], b[1] - 1)) not in pairs for a, b in pairs)


def working_tree() -> dict[str, str]:
    """Return the source files of this tree by their path below the packages' folders."""
    return {
        f"{name}/{file.relative_to(ROOT / folder).as_posix()}": file.read_text(encoding="utf-8")
        for name, folder in PACKAGES.items()
        for file in sorted((ROOT / folder).rglob("*.py"))
    }


def revision_tree(revision: str) -> dict[str, str]:
    """Return the source files of a revision, as `working_tree` does."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
        return {
            f"{name}/{file.relative_to(Path(folder) / inside).as_posix()}": file.read_text(encoding="utf-8")
            for name, inside in PACKAGES.items()
            for file in sorted((Path(folder) / inside).rglob("*.py"))
        }


def table(columns: dict[str, Numbers]) -> str:
    """Lay the numbers of several trees side by side."""
    rows = {
        name: [asdict(numbers)[name] for numbers in columns.values()] for name in asdict(next(iter(columns.values())))
    }
    head = " " * 30 + "".join(f"{name:>14}" for name in columns)
    return "\n".join([head, *(f"{name:<30}" + "".join(f"{value:>14,}" for value in row) for name, row in rows.items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="REVISION", help="a revision to compare with; the result is written")
    args = parser.parse_args()
    now = working_tree()
    columns = {"now": measure(now)}
    for name in PACKAGES:
        files = {path: text for path, text in now.items() if path.startswith(f"{name}/")}
        if files:
            columns[name] = measure(files)
    if args.before:
        columns = {"before": measure(revision_tree(args.before)), **columns}
    print(table(columns))
    if args.before:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
        content = {
            "program": f"benchmarks/house.py --before {args.before}",
            "commit": commit.stdout.strip(),
            **{name: asdict(numbers) for name, numbers in columns.items()},
        }
        RESULT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
