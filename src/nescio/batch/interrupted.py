"""`Interrupted`: Ctrl-C came while work was done, some of which is kept."""

from __future__ import annotations


class Interrupted(KeyboardInterrupt):
    """Report that work was cut off.

    Args:
        words: What is kept, for people.
        goes_on: Whether the same command goes on from there.

    Examples:
        >>> Interrupted("3 of 8 inputs are done").words
        '3 of 8 inputs are done'
    """

    def __init__(self, words: str, goes_on: bool = False) -> None:
        super().__init__(words)
        self.words, self.goes_on = words, goes_on
