"""The examples in docstrings give what they show. They may use `nescio`, `np` and `torch` without importing them."""

import doctest
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import nescio

PACKAGE = Path(nescio.__file__).parent
MODULES = sorted(
    ".".join(("nescio", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for file in PACKAGE.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8") and file.name not in ("guard.py", "verdict.py")
)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_give_what_they_show(module: str) -> None:
    result = doctest.testmod(
        import_module(module),
        extraglobs={"nescio": nescio, "np": np, "torch": torch},
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert result.attempted > 0
    assert result.failed == 0
