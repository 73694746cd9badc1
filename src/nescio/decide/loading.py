"""Whichever policy a file holds."""

from __future__ import annotations

import json
from pathlib import Path

from nescio.decide.conformal import ConformalPolicy
from nescio.decide.policy import Policy


def load(path: str | Path) -> Policy | ConformalPolicy:
    """Read a policy that was saved, of either kind.

    Args:
        path: The file that `Policy.save` or `ConformalPolicy.save` wrote.

    Returns:
        The policy.

    Raises:
        InputError: If there is no such file, or it is damaged.

    Examples:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "policy.json")
        >>> nescio.decide.quantile(torch.arange(100.0)).save(path)
        >>> nescio.decide.load(path).threshold
        95.0
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        record = None  # what is wrong is said below
    if isinstance(record, dict) and record.get("format") == ConformalPolicy._form:
        return ConformalPolicy.load(path)
    return Policy.load(path)
