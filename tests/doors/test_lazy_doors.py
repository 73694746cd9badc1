"""A door is loaded when it is first used, and says which extra is missing."""

import sys
from importlib import import_module

import pytest

import nescio
from nescio.types import MissingExtra


def test_a_door_is_found_by_its_name() -> None:
    assert nescio.doors.validation.measure is import_module("nescio.doors.validation").measure
    with pytest.raises(AttributeError, match="no attribute 'windows'"):
        nescio.doors.windows


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_ood.api", None)
    monkeypatch.delitem(sys.modules, "nescio.doors.pytorch_ood", raising=False)
    with pytest.raises(MissingExtra, match=r"nescio\[ood\]"):
        import_module("nescio.doors.pytorch_ood")
