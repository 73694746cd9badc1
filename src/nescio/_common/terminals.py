"""What is known of the terminal that standard error goes to, if it goes to one."""

from __future__ import annotations

import os
import sys


def in_terminal() -> bool:
    """Return whether standard error goes to a terminal.

    Returns:
        True or False.

    Examples:
        >>> in_terminal() in (True, False)
        True
    """
    return sys.stderr is not None and sys.stderr.isatty()


def assumed_size() -> os.terminal_size | None:
    """Return how large a terminal is taken to be that does not say it, as under programs that start others.

    Returns:
        Its columns and lines; None where the terminal tells itself, and where there is none.

    Examples:
        >>> assumed_size() in (None, (80, 24))
        True
    """
    try:
        told = os.get_terminal_size(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return None
    return None if all(told) else os.terminal_size((told.columns or 80, told.lines or 24))


def in_notebook() -> bool:
    """Return whether a kernel of Jupyter runs this.

    Returns:
        True or False.

    Examples:
        >>> in_notebook()
        False
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
