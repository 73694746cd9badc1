"""What a command says when it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def refusal(capsys: pytest.CaptureFixture[str], run: Callable[[], int], status: int = 2) -> str:
    """The one line on standard error of a command that ends with this status, without a traceback."""
    capsys.readouterr()
    try:
        assert run() == status
    except SystemExit as stop:
        assert stop.code == status
    error = capsys.readouterr().err
    assert error.startswith("nescio")
    assert error.count("\n") == 1, error
    return error
