"""In how many digits a GPU multiplies float32: torch's settings for products and for convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


@contextmanager
def full_products() -> Iterator[None]:
    """Compute matrix products and convolutions of float32 with all their digits, not in TF32.

    Returns:
        A context manager. The settings are put back at its end.

    Examples:
        >>> with full_products():
        ...     tf32_products()
        False
    """
    with ExitStack() as stack:
        for read, write, full in _precisions():
            before = read()
            if before != full:
                stack.callback(write, before)
                write(full)
        yield


def tf32() -> tuple[object, ...]:
    """Return the settings by which products and convolutions of float32 are computed.

    Returns:
        The settings, to be compared with those of another time.

    Examples:
        >>> tf32() == tf32()
        True
    """
    return tuple(read() for read, _, _ in _precisions())


def tf32_products() -> bool:
    """Return whether matrix products of float32 on a GPU are in TF32.

    Returns:
        True where they are.

    Examples:
        >>> with full_products():
        ...     tf32_products()
        False
    """
    read, _, full = _precisions()[0]
    result: bool = read() != full
    return result


def _precisions() -> list[tuple[Callable[[], Any], Callable[[Any], None], object]]:
    """For products and for convolutions: how to read the setting, how to write it, and the one that loses nothing.

    PyTorch has an older and a newer way to say it, and where one was used the other refuses to answer.
    """

    def attribute(place: Any, name: str, full: object) -> Any:
        return (lambda: getattr(place, name), lambda value: setattr(place, name, value), full)

    matmul: Any = (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")
    convolution = attribute(torch.backends.cudnn, "allow_tf32", False)
    newer: list[Any] = [torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)]
    ways = []
    for way, place in zip((matmul, convolution), newer, strict=True):
        try:
            way[0]()
        except RuntimeError:
            way = attribute(place, "fp32_precision", "ieee")
        ways.append(way)
    return ways
