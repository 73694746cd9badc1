"""Numbers for people: shares in percent, numbers, counts and durations, each written in one way everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def percent(share: float, digits: int = 4, most_digits: int = 17) -> str:
    """Write a share in percent, with as many digits as it takes not to say 100 % of what is less.

    Args:
        share: The share, from 0 to 1.
        digits: How many significant digits to write.
        most_digits: How many to write at most, where fewer would round a share below 1 up to 100 %.

    Returns:
        The text, such as ``"5 %"``.

    Examples:
        >>> percent(0.05), percent(0.99999), percent(0.99999, most_digits=4), percent(1)
        ('5 %', '99.999 %', '100 %', '100 %')
    """
    texts = (f"{100 * share:.{many}g}" for many in range(digits, most_digits + 1))
    return next((text for text in texts if float(text) < 100), "100") + " %"


def percentage(share: float) -> str:
    """Write a share in percent for a column of a table: one digit after the point, without the sign.

    Args:
        share: The share, from 0 to 1.

    Returns:
        The text.

    Examples:
        >>> percentage(0.9731)
        '97.3'
    """
    return f"{100 * share:.1f}"


def chance(probability: float) -> str:
    """Write a probability in percent, without calling certain or impossible what is neither.

    Args:
        probability: The probability, from 0 to 1.

    Returns:
        The text, with one digit after the point.

    Examples:
        >>> chance(0.5), chance(0.99999), chance(1e-9), chance(1.0)
        ('50.0 %', 'over 99.9 %', 'under 0.1 %', '100.0 %')
    """
    text = percentage(probability)
    if text == "100.0" and probability < 1:
        return "over 99.9 %"
    return "under 0.1 %" if text == "0.0" and probability > 0 else f"{text} %"


def number(value: float) -> str:
    """Write a number with three significant digits, and a true minus sign.

    From a thousand to a million all digits before the point are written; outside of 0.0001 … 1,000,000 a power of ten.

    Args:
        value: The number.

    Returns:
        The text.

    Examples:
        >>> number(-0.01234), number(1234.7), number(1.5e-7), number(1e6)
        ('−0.0123', '1,235', '1.5·10⁻⁷', '10⁶')
    """
    rounded = abs(float(f"{value:.3g}"))
    if 1e3 <= rounded < 1e6:
        text = f"{value:,.0f}"
    elif rounded == 0 or 1e-4 <= rounded < 1e3 or not math.isfinite(value):
        text = f"{value:.3g}"
    else:
        mantissa, power = f"{value:.2e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        ten = "10" + str(int(power)).translate(_SUPERSCRIPTS)
        text = {"1": ten, "-1": f"-{ten}"}.get(mantissa, f"{mantissa}·{ten}")
    return text.replace("-", "−")


def count(many: int, singular: str, plural: str | None = None) -> str:
    """Write how many things there are, with the noun in the right form.

    Args:
        many: The number of things.
        singular: The noun for one of them.
        plural: The noun for several; None adds an "s", or "es" after "ch" and "s".

    Returns:
        The text; from a thousand on with a comma.

    Examples:
        >>> count(1, "input"), count(2000, "input"), count(2, "batch"), count(0, "class")
        ('1 input', '2,000 inputs', '2 batches', '0 classes')
    """
    if plural is None:
        plural = singular + ("es" if singular.endswith(("ch", "s")) else "s")
    return f"{many:,} {singular if many == 1 else plural}"


def class_name(index: int, names: Sequence[str] | None) -> str:
    """Write what a class is called, or its number where it has no name.

    Args:
        index: The index of the class.
        names: The names of the classes; None: they are not known.

    Returns:
        The text.

    Examples:
        >>> class_name(1, ["cat", "dog"]), class_name(7, ["cat", "dog"]), class_name(0, None)
        ('dog', 'class 7', 'class 0')
    """
    return names[index] if names is not None and 0 <= index < len(names) else f"class {index}"


def duration(seconds: float, digits: int = 3) -> str:
    """Write a measured time in seconds, milliseconds or microseconds, never with a power of ten.

    Args:
        seconds: The time.
        digits: How many significant digits to write.

    Returns:
        The text.

    Examples:
        >>> duration(2.5), duration(0.01234), duration(4.2e-5), duration(0.000604, digits=2)
        ('2.5 s', '12.3 ms', '42 µs', '600 µs')
        >>> duration(0.9999), duration(12_345), duration(1e-12)
        ('1 s', '12,300 s', 'under 0.001 µs')
    """
    if 0 < seconds < 1e-9:
        return "under 0.001 µs"
    rounded = float(f"{seconds:.{digits}g}")
    unit, size = next((known for known in (("s", 1.0), ("ms", 1e-3)) if rounded >= known[1]), ("µs", 1e-6))
    many = float(f"{rounded / size:.{digits}g}")
    return f"{many:,.15g} {unit}"  # so many digits that there is no exponent


def rough_duration(seconds: float) -> str:
    """Write an estimated time, in words that are no more precise than an estimate is.

    Args:
        seconds: The time.

    Returns:
        The text, in days, hours, minutes or seconds.

    Examples:
        >>> rough_duration(40), rough_duration(90), rough_duration(3 * 3600), rough_duration(86_400 * 12)
        ('40 s', '1.5 minutes', '3 hours', '12 days')
    """
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 1.95 * size or (unit == "minute" and seconds >= size):
            many = f"{seconds / size:.2g}" if seconds < 9.5 * size else f"{seconds / size:.0f}"
            return f"{many} {unit}" + ("" if many == "1" else "s")
    return f"{seconds:.0f} s"
