"""The command that a page prints is one that the program takes, and gives the same again."""

import shlex
from argparse import Namespace

import pytest

from nescio.cli import parser
from nescio.cli.command_line import command_line


@pytest.mark.parametrize(
    "given",
    [
        ["audit", "--model", "m:f", "--data", "x y.npz", "--size", "16x16", "--mean", "0.5,0.5,0.5", "--std", "none"],
        ["audit", "--model", "m:f", "--data", "x.npz", "--directions", "away", "random", "--score", "entropy", "gen"],
    ],
)
def test_arguments_come_back(given: list[str]) -> None:
    def parsed(words: list[str]) -> Namespace:
        return parser().parse_args(words)

    args = parsed(given)
    again = shlex.split(command_line("audit", vars(args), ("directions", "score")))
    assert again[0] == "nescio" and vars(parsed(again[1:])) == vars(args)
