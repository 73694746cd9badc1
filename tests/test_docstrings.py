"""Docstrings of the public names are complete, and the examples in all docstrings give what they show.

Examples may use `nescio`, `np` and `torch` without importing them.
"""

import doctest
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import nescio

PACKAGE = Path(nescio.__file__).parent
MODULES = sorted(
    ".".join(("nescio", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for file in PACKAGE.rglob("*.py")
    if any(">>> " in line and "+SKIP" not in line for line in file.read_text(encoding="utf-8").splitlines())
)
COMPLETE = (
    "app",
    "attribution",
    "batch.columns",
    "batch.example_job",
    "batch.explained_rows",
    "batch.fitted_temperature",
    "batch.interrupted",
    "batch.jobs",
    "batch.stage_costs",
    "batch.pacing",
    "batch.job_plan",
    "batch.plan_advice",
    "batch.run_job",
    "batch.map_files",
    "batch.position_files",
    "batch.ray_cluster",
    "batch.ray_parquet",
    "batch.ray_pool",
    "batch.ray_stream",
    "batch.ray_worker",
    "batch.streaming",
    "batch.verdict_columns",
    "data",
    "data.sources",
    "decide",
    "demo",
    "dense",
    "doors.estimator_base",
    "doors.estimator_saving",
    "doors.guarded_classifier",
    "doors.lightning_callback",
    "doors.openood",
    "doors.pytorch_ood",
    "doors.transformers_pipeline",
    "doors.uncertainty_scorer",
    "doors.validation",
    "evaluate",
    "findings",
    "guard",
    "guard.witnesses",
    "inputs",
    "limits",
    "mitigate",
    "models",
    "models.sources",
    "modes",
    "notebook",
    "plots",
    "plugins",
    "posteriors",
    "progress",
    "quantities",
    "report",
    "scores",
    "scoring",
    "serve",
    "specs",
    "trace",
    "trace.norms",
    "training",
    "types",
    "zoo",
)
"""The rooms whose public names all have a summary, the sections Args and Returns, and an example; methods need none.

What `__all__` names is public; without one, the functions and classes of a file whose names have no underscore before
them.
"""


INNER = {"_common", "cli", "lightning", "sklearn"}
"""The floor, the commands, and two short names of doors; everything else directly below nescio is for users."""


def test_no_public_room_is_left_out() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    faces = set()
    for room in rooms - INNER - {"__init__", "__main__"}:
        files = [file.stem for file in (PACKAGE / room).glob("*.py") if file.stem != "__init__"]
        whole = not files or hasattr(import_module(f"nescio.{room}"), "__all__")
        faces |= {room} if whole else {f"{room}.{file}" for file in files}
    assert faces <= set(COMPLETE)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_give_what_they_show(module: str) -> None:
    if module.startswith("nescio.doors."):
        pytest.importorskip(module, reason="needs the library that the door leads to", exc_type=ImportError)
    result = doctest.testmod(
        import_module(module),
        extraglobs={"nescio": nescio, "np": np, "torch": torch},
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert result.attempted > 0
    assert result.failed == 0


def missing(value: Any) -> Iterator[str]:
    """Gives what the docstring of a function or a class lacks; of a class its parameters are described there too."""
    text = inspect.getdoc(value) or ""
    if isinstance(value, type) and value.__doc__ is None:
        text = ""  # `getdoc` takes that of the base
    summary = text.partition("\n")[0]
    if not (summary[:1].isupper() and summary.endswith(".")):
        yield "a summary of one line"
    sections = {line.removesuffix(":") for line in text.splitlines() if line.endswith(":") and line[:1].isupper()}
    if ">>> " not in text:
        yield "an example"
    try:
        signature = inspect.signature(value)
    except ValueError:
        return
    if set(signature.parameters) - {"args", "kwargs"} and not sections & {"Args", "Attributes"}:
        yield "Args"
    if not isinstance(value, type) and signature.return_annotation not in ("None", None) and "Returns" not in sections:
        yield "Returns"


def public(module: ModuleType) -> dict[str, Any]:
    """Return the public functions and classes of a module by name."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    values = {name: getattr(module, name) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, type) or inspect.isroutine(value)}


def methods(value: type) -> dict[str, Any]:
    """Return the public methods that a class adds to those of its bases, by name."""
    known = {name for base in value.__mro__[1:] for name in vars(base)}
    own = {name: getattr(each, "__func__", each) for name, each in vars(value).items()}
    return {
        f"{value.__name__}.{name}": each
        for name, each in own.items()
        if inspect.isfunction(each) and each.__name__ == name and not name.startswith("_") and name not in known
    }


def missing_in_method(value: Any) -> Iterator[str]:
    """Gives what the docstring of a method lacks: a summary, and of one with arguments Args, and Returns."""
    text, signature = inspect.getdoc(value) or "", inspect.signature(value)
    summary = text.partition("\n")[0]
    if not summary.endswith("."):
        yield "a summary of one line"
    if set(signature.parameters) - {"self", "cls"}:
        if "Args:" not in text:
            yield "Args"
        if signature.return_annotation not in ("None", None) and "Returns:" not in text:
            yield "Returns"


@pytest.mark.parametrize("room", COMPLETE)
def test_public_names_say_what_they_do_take_and_give(room: str) -> None:
    if room.startswith("doors."):
        pytest.importorskip(f"nescio.{room}", reason="needs the library that the door leads to", exc_type=ImportError)
    described = public(import_module(f"nescio.{room}"))
    lacks = {name: absent for name, value in described.items() if (absent := list(missing(value)))}
    for value in described.values():
        if isinstance(value, type):
            lacks |= {name: absent for name, one in methods(value).items() if (absent := list(missing_in_method(one)))}
    assert described and not lacks


def test_an_incomplete_docstring_is_found() -> None:
    def bare(x: int) -> int: ...

    def complete(x: int) -> int:
        """Double a number.

        Args:
            x: The number.

        Returns:
            Twice as much.

        Example:
            >>> 2 * 1
            2
        """

    class Silent:
        def say(self, word: str) -> str: ...

        def quiet(self) -> None:
            """Do nothing."""

    assert list(missing(bare)) == ["a summary of one line", "an example", "Args", "Returns"]
    described = {name: list(missing_in_method(one)) for name, one in methods(Silent).items()}
    assert described == {"Silent.say": ["a summary of one line", "Args", "Returns"], "Silent.quiet": []}
    assert list(missing(complete)) == []
