"""Inputs from a NumPy `.npz` file: the array named `x`, or the only array there is.

Files are read with `allow_pickle=False`: a data file can never run code.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio.types import InputError

REMEDY = "write it with numpy.savez(file, x=array)"


def read_npz(path: str | Path, key: str | None = None) -> NDArray[Any]:
    """Read an array from a NumPy `.npz` file.

    Args:
        path: The file. It is read without pickle, so it cannot run code.
        key: The name of the array; None for the array ``x``, or the only one there is.

    Returns:
        The array ``[N, ...]``.

    Raises:
        InputError: If there is no such file or array, or it does not hold numbers.

    Examples:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "data.npz")
        >>> np.savez(path, x=np.arange(3))
        >>> nescio.data.read_npz(path)
        array([0, 1, 2])
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"expected a data file at {path}, but there is none")
    if path.is_dir():
        raise InputError(f"expected a .npz file, but {path} is a folder")
    try:
        if not zipfile.is_zipfile(path):
            raise InputError(f"expected a .npz file, but {path} is not one, or was cut short; {REMEDY}")
        with np.load(path, allow_pickle=False) as archive:
            array = archive[array_name(archive.files, key, path)]
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file comes out of zlib, zipfile, ast or tokenize, each with its own
        raise InputError(f"cannot read an array of numbers from {path}: {error}; {REMEDY}") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"expected an array of real numbers in {path}, but its type is {array.dtype}")
    if array.ndim == 0:
        raise InputError(f"expected one row for each input in {path}, shape [N, ...], but got a single number")
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def array_name(keys: list[str], key: str | None, path: Path) -> str:
    """Return the name of the array that is meant: the given one, "x", or the only one."""
    if key is not None and key in keys:
        return key
    if key is None and "x" in keys:
        return "x"
    if key is None and len(keys) == 1:
        return keys[0]
    listed = ", ".join(keys) or "nothing"
    wanted = f"an array named {key!r}" if key is not None else "an array named 'x' or a single array"
    remedy = (
        REMEDY if key is None else f"write it with numpy.savez(file, ..., {key}=array), or name the array that is meant"
    )
    raise InputError(f"expected {wanted} in {path}, but it holds: {listed}; {remedy}")
