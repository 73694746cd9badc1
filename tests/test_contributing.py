"""What CONTRIBUTING.md shows is so: its Python runs from top to bottom, and the files that it names are there."""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nescio.guard.witnesses import base as witnesses
from nescio.scores import registry
from nescio.trace import rules

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
IMAGINED = {"src/nescio/x/y.py", "tests/x/test_y.py", "tests/scores/test_runner_up.py"}
BLOCKS = re.findall(r"^```python(?: title=\"(.+?)\")?\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def registries() -> Iterator[None]:
    """What the page registers is known to this test alone."""
    every: list[dict[Any, Any]] = [registry._methods, witnesses.WITNESSES, rules._REGISTRY]
    before = [dict(one) for one in every]
    yield
    for one, kept in zip(every, before, strict=True):
        one.clear()
        one.update(kept)


@pytest.mark.usefixtures("registries")
def test_the_code_runs_from_top_to_bottom() -> None:
    names: dict[str, Any] = {"__name__": "contributing"}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as printed:
        for title, code in BLOCKS:
            exec(compile(code, title or "CONTRIBUTING.md", "exec"), names)
    assert len(BLOCKS) >= 10
    assert int(printed.getvalue()) > 5  # the command of the page counts methods


def test_the_rule_of_the_page_is_not_there_yet() -> None:
    assert rules.find("DivBackward0", 1) is None, "take another operation for the page: this one has a rule now"


def test_the_files_and_the_targets_that_it_names_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", TEXT)) <= targets
    for path in re.findall(r"`((?:src|tests|docs|papers)/[\w./-]+)`", TEXT):
        assert (ROOT / path).exists() or path in IMAGINED, path
    for title, _ in BLOCKS:
        assert not title or (ROOT / title).parent.is_dir(), title
