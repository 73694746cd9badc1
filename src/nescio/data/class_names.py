"""The names of classes from a file: text with a name on each line, or JSON, a list or a mapping from index to name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio.types import InputError

LARGEST = 1 << 24
"""Bytes: far more than the names of any classes take."""


def read_class_names(path: str | Path) -> tuple[str, ...]:
    """Read the names of classes from a file, in the order of their indices.

    Args:
        path: A text file with a name on each line, or a ``.json`` file. The JSON is a list, ``["cat", "dog"]``, or a
            mapping from index to name, ``{"0": "cat", "1": "dog"}``. In place of a name there may be a list that ends
            with it, as in ImageNet's usual file.

    Returns:
        One name for each class.

    Raises:
        InputError: If the file cannot be read, or a class has no name.

    Examples:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "names.txt")
        >>> with open(path, "w") as file:
        ...     print("cat", file=file)
        ...     print("dog", file=file)
        >>> nescio.data.read_class_names(path)
        ('cat', 'dog')
    """
    file = Path(path)
    try:
        if file.is_file() and file.stat().st_size > LARGEST:
            raise InputError(
                f"expected names of classes in {path}, but it is too large for that: {file.stat().st_size} bytes"
            )
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expected a file with a name on each line, but cannot read {path}: {error}") from error
    names = _json(text, path) if file.suffix.lower() == ".json" else text.rstrip().splitlines()
    plain = tuple(" ".join(name.split()) for name in names)
    if not plain:
        raise InputError(f"expected the name of a class on each line of {path}, but it has none")
    if "" in plain:
        raise InputError(f"expected a name for every class, but that of class {plain.index('')} is empty in {path}")
    return plain


def names_of(indices: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """Return the name of each class.

    Args:
        indices: Whole numbers ``[N]``.
        names: The names of all classes, as `read_class_names` gives them.

    Returns:
        An array of objects ``[N]``.

    Examples:
        >>> names_of(np.array([1, 0]), ["cat", "dog"]).tolist()
        ['dog', 'cat']
    """
    if indices.dtype.kind not in "iu":
        raise InputError(f"expected indices of classes to give names to, got {indices.dtype}")
    if len(indices) and not 0 <= indices.min() <= indices.max() < len(names):
        odd = int(indices.max() if indices.max() >= len(names) else indices.min())
        raise InputError(f"expected a name for every class, but there are {len(names)} names, and none for class {odd}")
    return np.array([names[index] for index in indices.tolist()], dtype=object)


def _json(text: str, path: str | Path) -> list[str]:
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected the names of classes as JSON, but {path} is not JSON: {error}") from error
    if isinstance(content, dict):
        by_index = {str(key): value for key, value in content.items()}
        content = [by_index.get(str(index)) for index in range(len(by_index))]
        content = [one[-1] if isinstance(one, list) and one else one for one in content]
    if not isinstance(content, list) or not all(isinstance(one, str) for one in content):
        raise InputError(
            f'expected a list of names, or a mapping like {{"0": "cat", "1": "dog"}} with every index, in {path}, '
            "but it holds something else"
        )
    return content
