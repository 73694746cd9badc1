"""The bar shows itself when asked, or in a terminal after a while, and is never in the way."""

import io
import sys
import threading
import time
from typing import Any

import pytest

from nescio import progress
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

        def refresh(self) -> None:
            pass

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


def spoken(monkeypatch: pytest.MonkeyPatch, seconds: float, steps: int, show: bool | None = None) -> str:
    """What is said of a hundred steps after some of them, by a clock that is moved by hand."""
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "clock", lambda: now[0])
    with progress.speaking():
        progress.cheaper("--method gen takes less")
        for _ in range(2):  # of each kind of work it is said once
            with bar(100, show=show, description="scoring") as moved:
                for _ in range(steps):
                    now[0] += seconds
                    moved.update(1)
    return stream.getvalue()


def test_a_command_that_will_take_more_than_a_minute_says_so_once_with_a_cheaper_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "nescio: scoring will take about 61 minutes more: 99 inputs, 37 s each; --method gen takes less\n"
    assert spoken(monkeypatch, 37.0, 3) == words
    assert spoken(monkeypatch, 1.0, 3) == (
        "nescio: scoring will take about 1.6 minutes more: 98 inputs, 1 s each; --method gen takes less\n"
    )  # after two seconds, of which the first steps tell
    assert spoken(monkeypatch, 0.5, 20) == ""
    assert spoken(monkeypatch, 37.0, 3, show=False) == ""


def test_a_first_step_that_sets_things_up_does_not_tell_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "clock", lambda: now[0])
    with progress.speaking(), bar(100, description="scoring") as moved:
        for seconds in (4.0, *[0.1] * 99):
            now[0] += seconds
            moved.update(1)
    assert stream.getvalue() == ""


def test_a_library_does_not_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    progress.cheaper("nobody hears it")
    progress.foretell(1e6, 10, "scoring")
    assert stream.getvalue() == ""


def test_in_a_notebook_it_is_left_to_itself_too_and_is_the_bar_that_suits(monkeypatch: pytest.MonkeyPatch) -> None:
    import tqdm.auto

    made: dict[str, Any] = {}

    class Widget:
        def __init__(self, **settings: Any) -> None:
            made.update(settings)

        def __enter__(self) -> "Widget":
            return self

        def __exit__(self, *_: object) -> None:
            made["closed"] = True

        def update(self, n: int) -> None:
            made["done"] = made.get("done", 0) + n

    monkeypatch.setattr(tqdm.auto, "tqdm", Widget)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    shown(monkeypatch, io.StringIO(), None)
    assert made["delay"] == 2.0 and made["done"] == 4 and made["closed"] and made["leave"] is False
    made.clear()
    shown(monkeypatch, io.StringIO(), False)
    assert not made


def test_in_a_terminal_it_is_drawn_before_the_first_step_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "SOON", 0.05)
    monkeypatch.setattr(progress, "TICK", 0.05)
    with bar(4, description="scoring"):
        time.sleep(0.5)
        before = stream.getvalue().count("0/4")
    assert before > 2  # again and again: the time goes on
    time.sleep(0.2)
    assert stream.getvalue().count("0/4") <= before + 1  # nothing is drawn after its end
    assert not any("run" in thread.name for thread in threading.enumerate())


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_command_in_a_terminal_says_that_it_gets_ready(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = stream is Terminal
    for soon, said in ((0.05, watched), (60.0, False)):
        own = stream()
        monkeypatch.setattr(sys, "stderr", own)
        monkeypatch.setattr(progress, "SOON", soon)
        with progress.speaking():
            time.sleep(0.3)
        assert ("getting ready" in own.getvalue()) == said
    own = stream()
    monkeypatch.setattr(sys, "stderr", own)
    monkeypatch.setattr(progress, "SOON", 0.2)
    with progress.speaking(), bar(4):
        time.sleep(0.4)
    assert "getting ready" not in own.getvalue()


def test_a_command_that_was_slow_to_begin_shows_its_bar_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    import tqdm

    delays, now = [], [0.0]
    own = tqdm.tqdm
    monkeypatch.setattr(tqdm, "tqdm", lambda **settings: delays.append(settings["delay"]) or own(**settings))
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "clock", lambda: now[0])
    with progress.speaking():
        for later in (0.0, 1.0, 9.0):
            now[0] = later
            with bar(4):
                pass
    assert delays == [2.0, 1.0, progress.BRIEF]


def test_work_of_unknown_length_names_a_cheaper_way_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for unknown, said in ((0.05, True), (60.0, False)):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress, "UNKNOWN", unknown)
        with progress.speaking():
            progress.cheaper("--measured takes less")
            with bar(None, description="walking rays"):
                time.sleep(0.3)
        assert stream.getvalue() == ("nescio: walking rays takes long; --measured takes less\n" if said else "")
