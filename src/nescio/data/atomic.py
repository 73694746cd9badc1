"""A file is there as a whole, or not at all.

What is written goes to a new file beside the wanted one, is forced to disk, and takes its place in one step
(`os.replace`). After a failure, an interrupt or a full disk an older file of that name is still what it was,
and nothing else is left behind.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nescio.types import InputError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write a file as a whole or not at all.

    Args:
        path: The file. An older one of that name stays as it is until the block ends well.

    Returns:
        A context manager. It gives a temporary path to write to, which becomes `path` at its end.

    Raises:
        InputError: If the file system refuses; the message names the file.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "note.txt")
        >>> with nescio.data.replacing(path) as part:
        ...     _ = part.write_text("done")
        >>> path.read_text()
        'done'
    """
    target = _target(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise _cannot(target, error) from error
    os.close(descriptor)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.chmod(_mode(target))
        os.replace(part, target)
    except OSError as error:
        raise _cannot(target, error) from error
    finally:
        with suppress(OSError):  # gone already when all went well
            part.unlink()


def check_writable(path: str | Path) -> None:
    """Raise before any work is done when a file cannot be written.

    Args:
        path: The file.

    Raises:
        InputError: If it cannot be written.

    Examples:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "note.txt")
        >>> nescio.data.check_writable(path)
        >>> os.path.exists(path)
        False
    """
    target = _target(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=".nescio.", suffix=".part", dir=target.parent)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise _cannot(target, error) from error


def _target(path: str | Path) -> Path:
    target = Path(os.path.realpath(path))  # a link stays a link: what it points to is replaced
    if target.is_dir():
        raise InputError(f"expected a file name to write to, but {path} is a folder; add a name, such as {path}/result")
    if target.exists() and not target.is_file():
        raise InputError(f"expected a file name to write to, but {path} is a device or a pipe")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {target.parent} does not exist; create it first")
    return target


def _mode(target: Path) -> int:
    """Rights of the file that is replaced, or those that a new file gets."""
    with suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _cannot(target: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {target}: {error.strerror or error}; nothing was left behind")
