"""`nescio train`: a network of the zoo by its plan, trained once and kept in a folder."""

from __future__ import annotations

import argparse
from typing import Any

from nescio.cli.interrupting import Interrupted

EXAMPLES = """examples:
  nescio train digits                                      bundled data, a quarter of a minute
  nescio train mnist --data ~/datasets --device cuda       the paper's CNN by the paper's schedule
  nescio train cifar10-fast --seed 1 --device cuda         about a minute on a large GPU
  nescio train --list                                      every plan, in words

A run that was killed goes on when the same command is given again; a network that is there is not trained again. Other
programs load it with nescio_papers.zoo.trained(PLAN, SEED, FOLDER), other commands with --model FOLDER/PLAN-SEED. Data
that are not there are named; with NESCIO_DOWNLOAD=1 in the environment they are fetched."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "train",
        help="train a network of the zoo by its plan",
        description="Trains a network by a named plan (data, architecture, schedule) and keeps its weights.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    command.add_argument("plan", nargs="?", metavar="PLAN", help="a name that --list shows")
    command.add_argument("--list", action="store_true", help="list the plans")
    command.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    command.add_argument("--out", default="models", metavar="FOLDER", help="where networks are kept (%(default)s)")
    command.add_argument("--data", metavar="FOLDER", help="where the data lies (default: $NESCIO_DATA)")
    command.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1 … (default: %(default)s)")
    command.add_argument("--epochs", type=int, metavar="N", help="other than the plan's, to try things out")
    command.add_argument("--limit", type=int, metavar="N", help="use N training pictures, to try things out")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train a network, or list the plans."""
    from nescio.progress import cheaper
    from nescio.types import InputError
    from nescio_papers import zoo

    if args.list:
        for plan in zoo.RECIPES.values():
            print(f"{plan.name:18} {plan.about}")
        return 0
    if args.plan is None:
        raise InputError(f"expected the name of a plan, got none; known: {', '.join(zoo.RECIPES)}")
    for name in ("epochs", "limit"):
        value = getattr(args, name)
        if value is not None and value < (1 if name == "epochs" else 2):
            raise InputError(f"--{name}: expected a larger number, got {value}")
    cheaper("--epochs N and --limit N take less, a GPU (--device cuda) is faster; a run that is cut off can go on")
    try:
        done = zoo.trained(
            args.plan, args.seed, args.out, root=args.data, device=args.device, limit=args.limit, epochs=args.epochs
        )
    except KeyboardInterrupt:
        raise Interrupted(f"the same command goes on from what lies in {args.out}", goes_on=True) from None
    epochs = len(done.history)
    print(
        f"{done.plan}, seed {done.seed}: {100 * done.accuracy:.2f} % of the test pictures right, {epochs} epochs, ",
        end="",
    )
    print(f"{done.seconds:.0f} s. Kept in {args.out}.")
    return 0
