"""`nescio methods`: the table of methods, from the registry."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from nescio.cli.options import add_command

if TYPE_CHECKING:
    from nescio.cli.options import Commands

EXAMPLES = """examples:
  nescio methods
  nescio methods --format markdown > METHODS.md
  nescio methods --format json | python -m json.tool"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "methods",
        help="list the methods: what each needs, its cost, its paper",
        description="Lists every method: what it needs, its cost in forward passes, the paper and the sign.",
        examples=EXAMPLES,
    )
    command.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="default: %(default)s")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from nescio.scores import methods

    table = methods()
    if args.format == "json":
        print(json.dumps(table.to_dicts(), indent=2, ensure_ascii=False))
    else:
        print(table.to_markdown() if args.format == "markdown" else table)
    return 0
