"""The scores that commands are asked for: --method and --set, and what they come to."""

from __future__ import annotations

import argparse
import ast
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nescio.scores import Method

SETTING = "a setting of the methods that have it, or with METHOD.KEY=VALUE of one alone; may be repeated"


def add_methods(command: argparse.ArgumentParser, words: str) -> None:
    """Which scores, said in these words, and their settings."""
    command.add_argument("--method", action="append", type=method, metavar="NAME", help=words)
    command.add_argument("--set", action="append", default=[], type=setting, metavar="KEY=VALUE", help=SETTING)


def chosen(names: list[str] | None) -> list[str]:
    """The names of --method, or that of the default."""
    from nescio.scores import default_method

    return [default_method().name] if names is None else names


def tell_chosen(names: list[str] | None) -> None:
    """On standard error which score is taken where --method names none, and why."""
    from nescio.scores import default_method

    if names is None:
        name, why = default_method()
        print(f"nescio: the score is {name}, {why}", file=sys.stderr)


def configured(names: list[str], settings: list[tuple[str | None, str, Any]]) -> list[Method]:
    """The methods with their settings; a setting that no chosen method has is an error."""
    from nescio import scores
    from nescio.types import InputError

    own = {name: set(info.settings) for name, info in _infos(names).items()}
    given: dict[str, dict[str, Any]] = {name: {} for name in own}
    for only, key, value in settings:
        takers = [name for name in own if key in own[name] and only in (None, name)]
        if not takers:
            whom = f"'{only}'" if only is not None else "any of the chosen methods"
            listed = "; ".join(f"{name}: {', '.join(sorted(keys)) or 'none'}" for name, keys in own.items())
            raise InputError(f"--set: expected a setting of {whom}, but got '{key}'; there are {listed}")
        for name in takers:
            given[name][key] = value
    return [scores.get(name, **given[name]) for name in own]


def _infos(names: list[str]) -> dict[str, Any]:
    from nescio.scores import methods

    table = {info.name: info for info in methods()}
    return {name: table[name] for name in names}  # a name that is given twice counts once


def method(name: str) -> str:
    """The name, if there is such a score."""
    from nescio.scores import get
    from nescio.types import InputError

    try:
        get(name)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def setting(text: str) -> tuple[str | None, str, Any]:
    """`sigma=0.1` or `regrad.sigma=0.1`; a value that is no Python literal is a word."""
    path, equals, value = text.partition("=")
    method, dot, key = path.strip().rpartition(".")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE or METHOD.KEY=VALUE, got '{text}'")
    try:
        parsed = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        parsed = value.strip()
    return (method if dot else None), key, parsed
