"""`nescio demo`: train, say which pictures not to trust, compare every method, write the page."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nescio.cli.options import add_command
from nescio.cli.paths import check_page

if TYPE_CHECKING:
    from nescio.cli.options import Commands

EXAMPLES = """\
Nothing is downloaded. The page opens in any browser, also offline.

examples:
  nescio demo                                   about a minute on two cores
  nescio demo --inputs 60 --epochs 10           a quick look
  nescio demo --seed 1 --out second-run.html    another network, other pictures"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "demo",
        help="see on digits, and things that are no digits, which answers not to trust",
        description="Trains a small network on digits, fits a guard to others, and writes a page that says which of "
        "some pictures not to trust, and why. Below it every method is compared.",
        examples=EXAMPLES,
    )
    command.add_argument("--out", default="nescio-demo.html", metavar="FILE", help="the page (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="of split, network and pictures (default: %(default)s)")
    command.add_argument(
        "--inputs",
        type=int,
        default=200,
        metavar="N",
        help="held-out digits, and not-digits (default: %(default)s each)",
    )
    command.add_argument("--epochs", type=int, default=30, metavar="N", help="of training (default: %(default)s)")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, judge, compare, write."""
    from nescio.demo import demo, write_page
    from nescio.report import text_table

    check_page(args.out)
    print(
        f"Training on digits, then judging {args.inputs} others and {args.inputs} pictures that are none.", flush=True
    )
    comparison = demo(seed=args.seed, inputs=args.inputs, epochs=args.epochs)
    print(text_table(comparison))
    print("In percent; not-digits are what should be caught. The page explains the columns and the methods.\n")
    print(f"The network reads {100 * comparison.accuracy:.1f} % of the held-out digits correctly.")
    print(comparison.front["lines"][0])
    write_page(comparison, args.out)
    print(f"Wrote {args.out}: open it in a browser to see which, and why.")
    return 0
