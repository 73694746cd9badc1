"""Whichever policy a file holds."""

from __future__ import annotations

import json
from pathlib import Path

from nescio.decide.conformal import FORM, ConformalPolicy
from nescio.decide.policy import Policy


def load(path: str | Path) -> Policy | ConformalPolicy:
    """The policy that was saved at `path`, of either kind."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        record = None  # what is wrong is said below
    if isinstance(record, dict) and record.get("format") == FORM:
        return ConformalPolicy.load(path)
    return Policy.load(path)
