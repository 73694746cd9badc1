"""`nescio apply`: a policy and new scores in; the same table with a column `decision` out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nescio._common.formatting import count
from nescio.cli.decide import numbers
from nescio.cli.options import add_class_names, add_command
from nescio.cli.paths import check_apart

if TYPE_CHECKING:
    from nescio.cli.options import Commands

EXAMPLES = """\
The policy is one that `nescio decide` wrote, and it remembers which column of scores it was made for. The table that is
written has all columns of the other and `decision`: accept, or abstain, which means that a person should look; with
--class-names also `predicted_class`. With
--monitor the scores are counted in a file, run after run, and an alarm is given when more inputs are refused than the
policy lets expect: the inputs have changed. An alarm is no error; the exit status is 0.

examples:
  nescio apply --policy policy.json --scores new.csv --out decisions.csv
  nescio apply --policy policy.json --scores new.parquet --out decisions.parquet --monitor watch.json
  nescio apply --policy policy.json --scores new.csv --column regrad_v2 --out decisions.csv"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "apply",
        help="accept or abstain, input by input, by a policy of `nescio decide`",
        description="Adds a column `decision` to a table of scores, accept or abstain, as a policy says.",
        examples=EXAMPLES,
    )
    command.add_argument("--policy", required=True, metavar="FILE", help="what `nescio decide` wrote")
    command.add_argument("--scores", required=True, metavar="FILE", help="the table: .parquet, .csv or .json")
    command.add_argument("--column", metavar="METHOD", help="the scores (default: the column of the policy's own data)")
    command.add_argument("--out", required=True, metavar="FILE", help="the new table: .parquet, .csv or .json")
    add_class_names(command)
    command.add_argument("--monitor", metavar="FILE", help="counts of all runs, kept as JSON; made if not there")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, decide, write."""
    import numpy as np

    from nescio import decide
    from nescio.data import check_ending, check_writable, read_class_names, write_table
    from nescio.data.class_names import names_of
    from nescio.data.tables import read_table
    from nescio.types import InputError

    check_ending(args.out)
    check_apart({"--policy": args.policy, "--out": args.out, "--monitor": args.monitor})
    check_apart({"--policy": args.policy, "--scores": args.scores, "--monitor": args.monitor})
    check_writable(args.out)
    policy = decide.load(args.policy)
    if not isinstance(policy, decide.Policy):
        raise InputError(f"--policy: expected a rule of `nescio decide`, but {args.policy} makes sets of classes")
    made_for = policy.about.get("score")
    column = args.column or made_for
    if column is None:
        raise InputError(f"--column: expected the name of the column of scores, since {args.policy} does not say it")
    table = read_table(args.scores)
    if column not in table:
        hint = "" if args.column else f"; {args.policy} was made for it: name another with --column if it is the same"
        raise InputError(f"expected the column {column!r} in {args.scores}, but it has: {', '.join(table)}{hint}")
    if "decision" in table:
        raise InputError(f"expected no column 'decision' in {args.scores}, since it would be overwritten; rename it")
    names = None if args.class_names is None else read_class_names(args.class_names)
    if names is not None:
        if "predicted" not in table:
            raise InputError(f"--class-names: expected a column 'predicted' in {args.scores} with classes to name")
        table |= {"predicted_class": names_of(table["predicted"], names)}
    scores = numbers(table, column, args.scores)
    accepted = policy.accept(scores).numpy()
    watch = None if args.monitor is None else decide.monitor(policy, args.monitor)

    write_table(args.out, table | {"decision": np.where(accepted, "accept", "abstain")})
    if column != made_for and made_for is not None:
        print(f"The policy was made for the column {made_for!r} and is used for {column!r}, as --column asks.")
    refused = int((~accepted).sum())
    share = f" ({100 * refused / len(accepted):.1f} %)" if len(accepted) else ""
    print(f"Abstained from {refused:,} of {count(len(accepted), 'input')}{share}.")
    if policy.threshold is None:
        print(policy)
    print(f"Wrote {args.out}")
    if watch is not None:
        print(f"{args.monitor}: {watch.update(scores)}")
    return 0
