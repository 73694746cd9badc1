"""What the pages show and nobody types: the methods with their settings, from their registry."""

from __future__ import annotations

from collections.abc import Callable

import nescio
from nescio.attribution import METHODS as MAPS


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


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "maps": maps,
}
"""What stands in a page as <!-- table: NAME -->."""
