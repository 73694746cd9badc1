"""`nescio demo`: train, compare every method, print the table, write the page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

EXAMPLES = """examples:
  nescio demo                                   about a minute on two cores
  nescio demo --inputs 60 --epochs 10           a quick look
  nescio demo --seed 1 --out second-run.html    another network, other pictures

Nothing is downloaded. The page opens in any browser, also offline."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "demo",
        help="compare every method on digits and things that are not digits",
        description="Trains a small network on digits, scores held-out digits against as many pictures that are no "
        "digits with every method, prints a table and writes a page with curves and pictures.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
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
    """Do it."""
    from nescio.data import check_writable
    from nescio.report import text_table
    from nescio.study.demo import demo, write_page
    from nescio.types import InputError

    if Path(args.out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"expected a file name that ends in .html, but got '{args.out}'")
    check_writable(args.out)
    print(
        f"Training on digits, then scoring {args.inputs} held-out digits and {args.inputs} other pictures.", flush=True
    )
    comparison = demo(seed=args.seed, inputs=args.inputs, epochs=args.epochs)
    print(f"The network reads {100 * comparison.accuracy:.1f} % of the held-out digits correctly.\n")
    print(text_table(comparison))
    print("\nIn percent; not-digits are what should be caught. The page explains the columns and the methods.")
    write_page(comparison, args.out)
    print(f"Wrote {args.out}")
    return 0
