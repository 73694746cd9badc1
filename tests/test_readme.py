"""The README says what is true now: its tables come from the registry and from committed results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_up_to_date(readme: ModuleType) -> None:
    text = (ROOT / "README.md").read_text()
    assert readme.render(text) == text, "run: python benchmarks/readme.py"
    assert "| regrad |" in text.replace("`", "")
    assert "ResNet18" in readme.speed()


def test_a_stale_table_is_found(readme: ModuleType) -> None:
    text = (ROOT / "README.md").read_text()
    assert readme.render(text.replace("entropy", "entrpy")) != text.replace("entropy", "entrpy")


def test_the_two_commands_are_shown() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text and "make test" in text
