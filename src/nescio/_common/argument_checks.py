"""Check arguments with one wording: what was expected, what came, and what to do.

    expected samples to be a whole number of at least 1, got 0
    expected risk to be a share above 0 and below 1, got 5; give a fraction, such as 0.05 for 5 %

Every check takes the argument's name first and its value second, and returns the value in its plain type. Bounds are
inclusive where they are called ``at_least`` and ``at_most``, exclusive where they are called ``above`` and ``below``.
The command line loads this file with each command, so it loads no other package.
"""

from __future__ import annotations

import argparse
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from nescio.types import InputError

T = TypeVar("T")


def integer(name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None, hint: str = "") -> int:
    """Return an argument as an int.

    Args:
        name: The argument's name, for the message.
        value: Any whole number (int, NumPy, one element of an integer tensor), but no bool.
        at_least: The smallest value that is allowed; None for no bound.
        at_most: The largest value that is allowed; None for no bound.
        hint: What the user should do, as the end of the message.

    Returns:
        The value.

    Raises:
        InputError: If the value is no whole number or outside of its bounds.

    Examples:
        >>> integer("samples", 3, at_least=1)
        3
        >>> integer("samples", 0, at_least=1)
        Traceback (most recent call last):
        nescio.types.InputError: expected samples to be a whole number of at least 1, got 0
    """
    try:
        plain = None if _is_bool(value) else operator.index(value)
    except (TypeError, ValueError):
        plain = None
    if plain is None or not (at_least is None or plain >= at_least) or not (at_most is None or plain <= at_most):
        raise _refused(name, f"a whole number{_bounds(at_least, at_most, None, None)}", repr(value), hint)
    return plain


def number(
    name: str,
    value: object,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    hint: str = "",
) -> float:
    """Return an argument as a finite float.

    Args:
        name: The argument's name, for the message.
        value: Anything that `float` converts, but no bool and no text.
        at_least: The smallest value that is allowed; None for no bound.
        at_most: The largest value that is allowed; None for no bound.
        above: A bound that the value must exceed; None for no bound.
        below: A bound that the value must stay under; None for no bound.
        hint: What the user should do, as the end of the message.

    Returns:
        The value.

    Raises:
        InputError: If the value is no finite number or outside of its bounds.

    Examples:
        >>> number("momentum", 0, at_least=0, below=1)
        0.0
        >>> number("momentum", 1, at_least=0, below=1)
        Traceback (most recent call last):
        nescio.types.InputError: expected momentum to be a finite number of at least 0 and below 1, got 1
    """
    plain = _as_float(value)
    if not math.isfinite(plain) or not _within(plain, at_least, at_most, above, below):
        raise _refused(name, f"a finite number{_bounds(at_least, at_most, above, below)}", repr(value), hint)
    return plain


def probability(name: str, value: object) -> float:
    """Return an argument that must be a share above 0 and below 1, as a float.

    Args:
        name: The argument's name, for the message.
        value: Anything that `float` converts, but no bool and no text.

    Returns:
        The value.

    Raises:
        InputError: If the value is no number, or not between 0 and 1. Both ends are left out.

    Examples:
        >>> probability("risk", 0.05)
        0.05
        >>> probability("risk", 5)
        Traceback (most recent call last):
        nescio.types.InputError: expected risk to be a share above 0 and below 1, got 5; give a fraction, such as ...
    """
    plain = _as_float(value)
    if not 0.0 < plain < 1.0:
        raise _refused(name, "a share above 0 and below 1", repr(value), "give a fraction, such as 0.05 for 5 %")
    return plain


def choice(name: str, value: object, options: Iterable[T], *, hint: str = "") -> T:
    """Return an argument that must be one of some options.

    Args:
        name: The argument's name, for the message.
        value: What the user gave.
        options: The values that are allowed; 1 is not taken for True.
        hint: What the user should do, as the end of the message.

    Returns:
        The option.

    Raises:
        InputError: If the value is none of the options.

    Examples:
        >>> choice("norm", 2, (1, 2))
        2
        >>> choice("where", "middle", ("features", "input"))
        Traceback (most recent call last):
        nescio.types.InputError: expected where to be 'features' or 'input', got 'middle'
    """
    allowed = list(options)
    if not getattr(value, "ndim", 0):
        for option in allowed:
            if _is_bool(option) == _is_bool(value) and option == value:
                return option
    *others, last = (repr(option) for option in allowed)
    raise _refused(name, f"{', '.join(others)} or {last}" if others else last, repr(value), hint)


def shape(name: str, value: Any, expected: Sequence[int | str], *, hint: str = "") -> tuple[int, ...]:
    """Check the shape of a tensor or an array.

    Args:
        name: The argument's name, for the message.
        value: A tensor or an array.
        expected: For each dimension its size, or a letter that may be any size of at least 1: ``("N", 3, "H", "W")``.
        hint: What the user should do, as the end of the message.

    Returns:
        The shape.

    Raises:
        InputError: If there is another number of dimensions, or a dimension has another size.

    Examples:
        >>> shape("x", torch.zeros(5, 3), ("N", 3))
        (5, 3)
        >>> shape("x", torch.zeros(5), ("N", 3))
        Traceback (most recent call last):
        nescio.types.InputError: expected x to be of shape [N, 3], got shape [5]
    """
    sizes = tuple(value.shape)
    if len(sizes) != len(expected) or not all(
        size >= 1 if isinstance(wanted, str) else size == wanted for size, wanted in zip(sizes, expected, strict=True)
    ):
        raise _refused(name, f"of shape [{', '.join(map(str, expected))}]", f"shape {list(sizes)}", hint)
    return sizes


def argument_type(check: Callable[..., T], **bounds: Any) -> Callable[[str], T]:
    """Return a function for argparse's ``type=`` that reads a number and checks it.

    Args:
        check: `integer`, `number` or `probability`.
        **bounds: Passed on to the check.

    Returns:
        A function from the text of an argument to the number. It raises `argparse.ArgumentTypeError`, to which
        argparse adds the name of the option.

    Examples:
        >>> argument_type(integer, at_least=1)("3")
        3
        >>> argument_type(integer, at_least=1)("0")
        Traceback (most recent call last):
        argparse.ArgumentTypeError: expected a whole number of at least 1, got 0
    """

    def parse(text: str) -> T:
        try:
            value: Any = int(text) if check is integer else float(text)
        except ValueError:
            value = text
        try:
            return check("", value, **bounds)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def _is_bool(value: object) -> bool:
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def _as_float(value: Any) -> float:
    if _is_bool(value) or isinstance(value, str | bytes | bytearray):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def _within(
    value: float, at_least: float | None, at_most: float | None, above: float | None, below: float | None
) -> bool:
    return (
        (at_least is None or value >= at_least)
        and (at_most is None or value <= at_most)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def _bounds(at_least: float | None, at_most: float | None, above: float | None, below: float | None) -> str:
    if at_least is not None and at_most is not None:
        return f" from {_bound_in_words(at_least)} to {_bound_in_words(at_most)}"
    bounds = {"of at least": at_least, "above": above, "of at most": at_most, "below": below}
    words = [f"{word} {_bound_in_words(bound)}" for word, bound in bounds.items() if bound is not None]
    return f" {' and '.join(words).replace('and of', 'and')}" if words else ""


def _bound_in_words(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _refused(name: str, expected: str, given: str, hint: str) -> InputError:
    from nescio.types import InputError  # it loads torch, which the command line does without

    who = f"{name} to be " if name else ""
    return InputError(f"expected {who}{expected}, got {given[:200]}{'; ' + hint if hint else ''}")
