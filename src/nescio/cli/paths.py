"""Paths that commands read and write: whether they can, before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def check_apart(paths: Mapping[str, str | None]) -> None:
    """Raise an InputError where two options name the same file.

    Args:
        paths: Paths by their options; None for an option that is not given.
    """
    from nescio.types import InputError

    seen: dict[Path, str] = {}
    for option, path in paths.items():
        if path is not None:
            other = seen.setdefault(Path(path).resolve(), option)
            if other != option:
                raise InputError(f"{option}: expected another file than that of {other}, but got {path} for both")


def check_page(path: str) -> None:
    """Raise an InputError where a path is not one of a page that can be written."""
    from nescio.data import check_writable
    from nescio.types import InputError

    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out: expected a file name that ends in .html, but got '{path}'")
    check_writable(path)


def output_folder(path: str, file: str) -> Path:
    """Return the folder of --out; raise an InputError where it could not be made, or this file not written to it."""
    from nescio.data import check_writable
    from nescio.types import InputError

    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: expected a folder, but {path} is a file; name another place")
    check_writable(folder / file if folder.exists() else folder)
    return folder


def read_lines(path: str) -> list[str]:
    """Read a text file with a name on each line."""
    from nescio.types import InputError

    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expected a text file with a name on each line, but cannot read {path}: {error}") from error
