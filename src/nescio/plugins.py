"""What other packages add to nescio, by entry points (https://packaging.python.org/specifications/entry-points):

group              name                      value
nescio.commands    a command of the CLI      a module or object with `add(commands, common)`, as those in `nescio.cli`
nescio.folders     a file that marks a       a function `open(folder, weights, trust_pickle)` that gives a
                   folder of a kept model    `nescio.models.sources.base.Opened`
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
    """Report a plug-in that cannot be imported; the message names it, its error, and how to remove it.

    Examples:
        >>> issubclass(nescio.plugins.PluginError, ImportError)
        True
    """


def plugins(group: str) -> dict[str, EntryPoint]:
    """Return the plug-ins of a group by name; of several with one name, the first on the path counts.

    Args:
        group: The group of entry points, such as "nescio.commands".

    Returns:
        The entry points by name.

    Examples:
        >>> nescio.plugins.plugins("nescio.no_such_group")
        {}
    """
    by_name: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        by_name.setdefault(entry.name, entry)
    return by_name


def load(entry: EntryPoint) -> Any:
    """Import what an entry point names.

    Args:
        entry: The entry point.

    Returns:
        The object.

    Raises:
        PluginError: If that fails, for whatever reason.

    Examples:
        >>> from importlib.metadata import EntryPoint
        >>> nescio.plugins.load(EntryPoint("root", "math:sqrt", "nescio.commands"))(9)
        3.0
    """
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise unusable(entry, error) from error


def unusable(entry: EntryPoint, error: BaseException) -> PluginError:
    """Return the error that names a plug-in which failed, the last line of why, and how to remove it.

    Args:
        entry: The plug-in.
        error: What it failed with.

    Returns:
        The error, to be raised.

    Examples:
        >>> from importlib.metadata import EntryPoint
        >>> nescio.plugins.unusable(EntryPoint("root", "mine:add", "nescio.commands"), OSError("no disk"))
        PluginError("the plug-in 'root' of mine cannot be used (OSError: no disk); mend it, or remove it: ...
    """
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
    return PluginError(
        f"the plug-in {entry.name!r} of {package(entry)} cannot be used ({reason}); mend it, or remove it: "
        f"pip uninstall {package(entry)}"
    )


def package(entry: EntryPoint) -> str:
    """Return the name of the distribution that an entry point belongs to.

    Args:
        entry: The entry point.

    Returns:
        The name; the first part of the module's name where the distribution is not known.

    Examples:
        >>> from importlib.metadata import EntryPoint
        >>> nescio.plugins.package(EntryPoint("root", "mine.commands:add", "nescio.commands"))
        'mine'
    """
    return entry.dist.name if entry.dist is not None else entry.value.partition(":")[0].partition(".")[0]


def lent(module: str) -> Any:
    """Import the module that stands in for, or adds to, a module of nescio (group `nescio.names`).

    Args:
        module: The name of nescio's module.

    Returns:
        The other package's module.

    Raises:
        AttributeError: If no package brings one.

    Examples:
        >>> nescio.plugins.lent("nescio.no_such_module")
        Traceback (most recent call last):
        AttributeError: this part of nescio.no_such_module comes with the package nescio_papers; ...
    """
    entry = plugins("nescio.names").get(module)
    if entry is None:
        raise AttributeError(f"this part of {module} comes with the package nescio_papers; install it: {PAPERS}")
    return load(entry)


def lent_names(module: str, names: Iterable[str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that has these names where another package brings them.

    Args:
        module: The module's name.
        names: The names that another package may bring.

    Returns:
        The function.

    Examples:
        >>> nescio.plugins.lent_names("nescio.zoo", ["resnet18_cifar"])("no_such_name")
        Traceback (most recent call last):
        AttributeError: module 'nescio.zoo' has no attribute 'no_such_name'
    """
    known = frozenset(names)

    def __getattr__(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(lent(module), name)

    return __getattr__
