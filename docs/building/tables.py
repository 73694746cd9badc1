"""What the pages show and nobody types: the methods from their registry, and the commands from their own help."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import nescio
from nescio import cli
from nescio.attribution import METHODS as MAPS

ROOT = Path(__file__).resolve().parents[2]
NEEDS: Mapping[str, str] = {
    "forward": "One forward pass",
    "gradients": "Gradients by the parameters",
    "draws": "Several predictions of one network",
    "posterior": "A distribution in the place of a network",
}
"""The families of the registry in words; a family that is not here is an error."""


def methods() -> str:
    """Every score, one table for what it needs."""
    rows = nescio.methods()
    lines = []
    for kind in dict.fromkeys(
        row.requires for row in sorted(rows, key=lambda row: list(NEEDS).index(row.requires))
    ):
        lines += [
            f"### {NEEDS[kind]}",
            "",
            "| method | what it is | training data | cost | paper |",
            "|---|---|---|---|---|",
        ]
        for row in rows:
            if row.requires == kind:
                data = "yes" if row.needs_training_data else "–"
                cells = (f"`{row.name}`", row.summary, data, row.cost, row.paper)
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join([*lines, nescio.methods().NOTE])


def settings() -> str:
    """Every score with its settings and their defaults."""
    lines = ["| method | settings | refinements |", "|---|---|---|"]
    for row in nescio.methods():
        listed = ", ".join(f"`{name}={value!r}`" for name, value in row.settings.items())
        lines.append(f"| `{row.name}` | {listed or '–'} | {', '.join(row.composes) or '–'} |")
    return "\n".join(lines)


def maps() -> str:
    """Every method of attribution with its settings."""
    lines = ["| method | settings |", "|---|---|"]
    for name, method in MAPS.items():
        listed = ", ".join(f"`{key}`" for key in method.__dataclass_fields__)
        lines.append(f"| `{name}` | {listed or '–'} |")
    return "\n".join(lines)


def commands() -> dict[str, str]:
    """The help of every command, as it prints itself."""
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}):
        whole = cli.parser()
        (found,) = (
            action for action in whole._actions if isinstance(action, argparse._SubParsersAction)
        )
        return {
            "": whole.format_help(),
            **{name: one.format_help() for name, one in found.choices.items()},
        }


def command_line() -> str:
    """The page of the command line."""
    helps = commands()
    lines = [
        "# The command line",
        "",
        "Made from the program's own `--help`.",
        "",
        "```text",
        helps.pop(""),
        "```",
        "",
    ]
    for name, text in helps.items():
        lines += [f"## nescio {name}", "", "```text", text.rstrip(), "```", ""]
    return "\n".join(lines)


def results(name: str) -> Callable[[], str]:
    """A table of committed results, as the README has it."""

    def made() -> str:
        spec: Any = importlib.util.spec_from_file_location(
            "readme", ROOT / "benchmarks" / "readme.py"
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return str(getattr(module, name)())

    return made


TABLES: dict[str, Callable[[], str]] = {
    "methods": methods,
    "settings": settings,
    "maps": maps,
    **{name: results(name) for name in ("truth", "kinds", "speed")},
}
"""What stands in a page as <!-- table: NAME -->."""
