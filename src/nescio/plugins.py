"""What other packages add to nescio, by entry points (https://packaging.python.org/specifications/entry-points):

group              name                      value
nescio.commands    a command of the CLI      a module or object with `add(commands, common)`, as those in `nescio.cli`
nescio.folders     a file that marks a       a function `open(folder, weights, trust_pickle)` that gives a
                   folder of a kept model    `nescio.models.sources.base.Found`
nescio.names       a module of nescio        a module whose names it offers as well (`lent_names`)

Nothing is imported before it is needed, and a plug-in that cannot be imported stops only what needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

PAPERS = "pip install ./papers, in nescio's repository"
"""How the package with `nescio reproduce`, `nescio train` and the networks and data sets of the papers is installed."""


class PluginError(ImportError):
    """A plug-in that cannot be imported; the message names it, its error, and how to remove it."""


def plugins(group: str) -> dict[str, EntryPoint]:
    """Return the plug-ins of a group by name; of several with one name, the first on the path counts."""
    by_name: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        by_name.setdefault(entry.name, entry)
    return by_name


def load(entry: EntryPoint) -> Any:
    """Import what an entry point names.

    Raises:
        PluginError: if that fails, for whatever reason.
    """
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise unusable(entry, error) from error


def unusable(entry: EntryPoint, error: BaseException) -> PluginError:
    """Return the error that names a plug-in which failed, the last line of why, and how to remove it."""
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
    return PluginError(
        f"the plug-in {entry.name!r} of {package(entry)} cannot be used ({reason}); mend it, or remove it: "
        f"pip uninstall {package(entry)}"
    )


def package(entry: EntryPoint) -> str:
    """Return the name of the distribution that an entry point belongs to."""
    return entry.dist.name if entry.dist is not None else entry.value.partition(":")[0].partition(".")[0]


def lent(module: str) -> Any:
    """Import the module that stands in for, or adds to, a module of nescio (group `nescio.names`).

    Raises:
        AttributeError: if no package brings one.
    """
    entry = plugins("nescio.names").get(module)
    if entry is None:
        raise AttributeError(f"this part of {module} comes with the package nescio_papers; install it: {PAPERS}")
    return load(entry)


def lent_names(module: str, names: Iterable[str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that has these names where another package brings them."""
    known = frozenset(names)

    def __getattr__(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(lent(module), name)

    return __getattr__
