"""What is named as faster is what was not chosen yet."""

import argparse
import io
import sys

import pytest

from nescio import progress
from nescio.cli.messages import tell_cheaper


@pytest.mark.parametrize(
    ("options", "ways", "said"),
    [
        (
            {"device": None, "engine": "local"},
            (),
            "a GPU (--device cuda), or more processes (--engine ray --workers N)",
        ),
        ({"device": "cpu"}, ("fewer rows",), "fewer rows, or a GPU (--device cuda)"),
        ({"device": "cuda:1"}, ("fewer rows",), "fewer rows"),
        ({"device": "cuda", "engine": "ray"}, (), ""),
    ],
)
def test_what_is_faster(
    options: dict[str, str | None], ways: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.speaking():
        tell_cheaper(argparse.Namespace(**options), *ways)
        progress.foretell(600.0, 100, "scoring")
    faster = f"; faster: {said}" if said else ""
    assert stream.getvalue() == f"nescio: scoring will take about 10 minutes more: 100 inputs, 6 s each{faster}\n"
