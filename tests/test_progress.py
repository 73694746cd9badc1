"""The bar shows itself when asked, or in a terminal after a while, and is never in the way."""

import io
import sys
from typing import Any

import pytest

from nescio.progress import bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: Any, show: bool | None) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with bar(4, show=show, description="scoring") as steps:
        steps.update(1)
        steps.update(3)
    return "" if stream is None else stream.getvalue()


def test_forced_and_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "scoring" in shown(monkeypatch, io.StringIO(), True)
    assert shown(monkeypatch, Terminal(), False) == ""


def test_left_to_itself_it_needs_a_terminal_and_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO(), None) == ""
    assert shown(monkeypatch, Terminal(), None) == ""
    assert shown(monkeypatch, None, None) == ""  # no standard error at all, as under pythonw
    import tqdm

    made: dict[str, Any] = {}

    class Fake:
        def __init__(self, **settings: Any) -> None:
            made.update(settings)

        def __enter__(self) -> "Fake":
            return self

        def __exit__(self, *_: object) -> None:
            made["closed"] = True

        def update(self, n: int) -> None:
            made["done"] = made.get("done", 0) + n

    monkeypatch.setattr(tqdm, "tqdm", Fake)
    shown(monkeypatch, Terminal(), None)
    assert made["delay"] == 2.0 and made["total"] == 4 and made["done"] == 4 and made["closed"]
    with pytest.raises(KeyError), bar(4, show=True):
        made.pop("closed")
        raise KeyError
    assert made["closed"] and made["delay"] == 0.0


def test_without_tqdm_the_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert shown(monkeypatch, Terminal(), True) == ""
