"""The argument parser of `nescio`: what is wrong is said in one line, with the word that was probably meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

CHOICE = re.compile(r"invalid choice: (?P<given>'[^']*'|\"[^\"]*\") \(choose from (?P<choices>.*)\)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one line."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: object = None) -> Any:
        """Parse; what a command does not know is named by the command itself."""
        self._given = [] if args is None else list(args)
        known, rest = super().parse_known_args(args, namespace)
        if " " in self.prog and rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return known, rest

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        said = self._suggesting(message)
        see = " See" if said.endswith("?") else "; see"
        self.exit(2, f"{self.prog}: {said}{see} {self.prog} --help\n")

    def _suggesting(self, message: str) -> str:
        """The message, or what was probably meant; a command that is not there without the list of all."""
        if match := CHOICE.search(message):
            given, choices = match["given"][1:-1], re.findall(r"[\w.:-]+", match["choices"])
            if message.startswith("argument COMMAND"):
                message = f"there is no command {given!r}"
            return message + _hint(given, choices)
        options = [name for name in self._option_string_actions if name.startswith("--")]
        words = [word.split("=")[0] for word in self._given if re.match(r"--\w", word)]
        for word in words:
            if not any(name.startswith(word) for name in options) and (hint := _hint(word, options)):
                return f"there is no option {word}{hint}"
        return message + self._repeated(message)

    def _repeated(self, message: str) -> str:
        """How an option is given several values, where one value too many stands behind an option that is repeated."""
        said, given = "unrecognized arguments: ", list(self._given)
        first = next(iter(message.removeprefix(said).split()), "")
        if not message.startswith(said) or first not in given:  # a word with a space in it is not found
            return ""
        before = given[: given.index(first)]
        last = next((word for word in reversed(before) if word.startswith("-")), "")
        action = self._option_string_actions.get(last)
        if not isinstance(action, argparse._AppendAction):
            return ""
        return f"; {last} takes one value and is repeated: {last} {before[-1]} {last} {message.removeprefix(said)}"


def _hint(given: str, choices: Iterable[str]) -> str:
    close = get_close_matches(given, list(choices), 1, 0.65)
    return f"; did you mean {close[0]}?" if close else ""
