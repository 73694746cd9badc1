"""Commands of other packages, from the entry-point group `nescio.commands`.

An entry point names a module, or an object, with the function `add(commands, common)` that the modules beside this one
have. It is imported only when the help is asked for or its command is called. One that cannot be imported is then named
on standard error, with its error and how to remove it; every other command works as before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any

from nescio import plugins
from nescio.plugins import PluginError

GROUP = "nescio.commands"
OF_PAPERS = ("train", "reproduce")
"""Commands of `nescio_papers`, the plug-in in nescio's own repository."""


def add(
    commands: object,
    common: argparse.ArgumentParser,
    arguments: Sequence[str],
    built_in: Collection[str],
    extra: Mapping[str, Any],
) -> None:
    """Add the commands that the arguments ask for.

    Args:
        commands: The sub-parsers of `nescio`.
        common: The parser of the options that all commands share.
        arguments: The words after `nescio`.
        built_in: The names of nescio's own commands, which no plug-in replaces.
        extra: Commands that are not installed, by name; they go before installed ones.

    Raises:
        PluginError: if the command that is called cannot be imported or is not installed.
    """
    called = next((word for word in arguments if not word.startswith("-")), None)
    help_wanted = called is None and not {"-h", "--help"}.isdisjoint(arguments)
    for command in extra.values():
        command.add(commands, common)
    installed = {name: entry for name, entry in plugins.plugins(GROUP).items() if name not in extra}
    for name, entry in installed.items():
        if called != name and (called in built_in or called in installed or called in extra):
            continue
        try:
            if name in built_in:
                raise PluginError(
                    f"the command {name!r} of {plugins.package(entry)} is not used, because nescio has one of that "
                    f"name; to remove it: pip uninstall {plugins.package(entry)}"
                )
            _add(entry, commands, common)
        except PluginError as error:
            if called == name and name not in built_in:
                raise
            if called == name or help_wanted:
                print(f"nescio: {error}", file=sys.stderr)
    if called in OF_PAPERS and called not in installed and called not in extra:
        raise PluginError(
            f"the command {called!r} belongs to the package nescio_papers, which is not installed; install it: "
            f"{plugins.PAPERS}"
        )


def _add(entry: EntryPoint, commands: object, common: argparse.ArgumentParser) -> None:
    command = plugins.load(entry)
    try:
        command.add(commands, common)
    except Exception as error:
        raise plugins.unusable(entry, error) from error
