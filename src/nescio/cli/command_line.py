"""The command that gives the same result again, for pages and messages."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Mapping


def command_line(command: str, options: Mapping[str, object], together: Collection[str] = ()) -> str:
    """Return a command with these options, as a user would type it.

    Args:
        command: The name of the command, such as "report".
        options: Values by the names of their options, as argparse gives them (``vars(args)``). None, False and empty
            lists are left out.
        together: Options whose list follows them as a whole; others are repeated for each item.

    Examples:
        >>> command_line("score", {"model": "m:f", "size": (8, 16), "method": ["gen", "entropy"], "fresh": True})
        'nescio score --model m:f --size 8x16 --method gen --method entropy --fresh'
    """
    words = ["nescio", command]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if name in ("run", "debug") or value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, list) and name in together:
            words += [flag, *map(str, value)] if value else []
        elif isinstance(value, list):
            words += [word for one in value for word in (flag, str(one))]
        elif isinstance(value, tuple):
            joint = "x" if name in ("size", "crop") else ","
            words += [flag, joint.join(map(str, value)) or "none"]
        else:
            words += [flag, str(value)]
    return shlex.join(words)


def check_command(guard: str, args: argparse.Namespace) -> str:
    """Return the command that judges new inputs by a guard of the model that these arguments name.

    Args:
        guard: The folder of the guard. It does not run a function of the user's by itself, so that is named again.
        args: What a command was given: ``model``, and where there are such ``x``, ``trust_pickle`` and ``level``.
    """
    from nescio.specs import names_code

    model = args.model if args.model is not None and names_code(args.model) else None
    again = {"guard": guard, "model": model, "x": getattr(args, "x", None)}
    again["level"] = None if (level := getattr(args, "level", 0.05)) == 0.05 else level
    again["trust_pickle"] = getattr(args, "trust_pickle", False) and str(args.model).endswith(".pt2")
    return command_line("check", {**again, "data": "NEW", "out": "verdicts.csv"})
