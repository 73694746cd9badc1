"""Functions of the reference that have the name of their file: `nescio.plots.roc` is the function, not the module."""

from __future__ import annotations

import importlib
import importlib.util
import re
from types import ModuleType


def functions(page: str) -> str:
    """The page with such functions under their own place, and with the name that a user calls them by as heading."""

    def placed(found: re.Match[str]) -> str:
        name = found[1]
        room, _, last = name.rpartition(".")
        if not _is_file(name) or isinstance(
            getattr(importlib.import_module(room), last), ModuleType
        ):
            return found[0]
        return f"::: {name}.{last}\n    options:\n      heading: {name}\n      toc_label: {last}"

    return re.sub(r"^::: (\S+)$", placed, page, flags=re.MULTILINE)


def _is_file(name: str) -> bool:
    """Whether it is a file of a folder; a file that needs an extra is not imported to find out what it holds."""
    try:
        room = importlib.util.find_spec(name.rpartition(".")[0])
        if room is None or room.submodule_search_locations is None:
            return False
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False
