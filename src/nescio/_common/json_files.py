"""JSON that nescio or another library wrote, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nescio.types import InputError


def json_object(file: Path, expected: str, remedy: str) -> dict[str, Any]:
    """Read a JSON object from a file.

    Args:
        file: The file.
        expected: What it should hold, for the message, such as "a record".
        remedy: What to do about a file that cannot be read, for the message.

    Returns:
        The values by name.

    Raises:
        InputError: If the file cannot be read, or holds something else.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp()) / "model.json"
        >>> file.write_text('{"model": "resnet18"}')
        21
        >>> json_object(file, "the name of a model", "save it again")
        {'model': 'resnet18'}
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {file}: {error}; {remedy}") from error
    if not isinstance(content, dict):
        raise InputError(f"expected {expected} in {file}, got another file")
    return content
