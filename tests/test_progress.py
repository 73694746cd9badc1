"""The bar shows itself when asked, or in a terminal after a while, and is never in the way."""

import io
import os
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
def test_a_command_says_that_it_gets_ready(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for soon, said in ((0.05, True), (60.0, False)):
        own = stream()
        monkeypatch.setattr(sys, "stderr", own)
        monkeypatch.setattr(progress, "SOON", soon)
        with progress.speaking():
            time.sleep(0.3)
        assert own.getvalue().count("getting ready") == said
    own = stream()
    monkeypatch.setattr(sys, "stderr", own)
    monkeypatch.setattr(progress, "SOON", 0.2)
    with progress.speaking(), bar(4):
        time.sleep(0.4)
    assert "getting ready" not in own.getvalue()


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_command_is_not_silent_for_long_after_a_bar(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = stream()
    monkeypatch.setattr(sys, "stderr", own)
    monkeypatch.setattr(progress, "SOON", 0.1)
    monkeypatch.setattr(progress, "OFTEN", 0.1)
    with progress.speaking():
        with bar(4, description="scoring") as shown:
            shown.update(4)
        time.sleep(1.0)
    assert own.getvalue().count("nescio: still at work after") in (2, 3, 4)  # ever more seldom
    assert "(done: scoring)" in own.getvalue()


def test_a_command_that_waits_for_others_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "SOON", 0.05)
    with progress.speaking():
        progress.waiting()
        time.sleep(0.3)
    assert stream.getvalue() == ""
    progress.waiting()  # in a library it has no meaning


def test_where_nobody_sees_a_bar_a_command_says_in_lines_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "clock", lambda: now[0])
    monkeypatch.setattr(progress, "SOON", 0.2)
    monkeypatch.setattr(progress, "BRIEF", 0.2)
    for total, before, after in (
        (300, "0 of 300 inputs after 0 s", "60 of 300 inputs after 12 s, 200 ms each, about 48 s left"),
        (None, "0 inputs after 0 s", "60 inputs after 12 s, 200 ms each"),
    ):
        for done, words in ((0, before), (60, after)):
            now[0], written = 0.0, len(stream.getvalue())
            with progress.speaking(), bar(total, description="scoring") as shown:
                if done:
                    now[0] = 12.0
                    shown.update(done)
                time.sleep(0.5)
            assert stream.getvalue()[written:] == f"nescio: scoring: {words}\n"
    with bar(300, description="scoring"):  # a library says nothing
        time.sleep(0.5)
    with progress.speaking(), bar(300, show=False), bar(300, show=False):
        time.sleep(0.1)
    assert stream.getvalue().count("\n") == 4


def test_a_bar_is_drawn_where_the_terminal_does_not_tell_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under programs that start others in a terminal of their own: tqdm alone would draw nothing there."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()  # of 0 columns and lines
    with os.fdopen(theirs, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        with bar(4, show=True, description="scoring") as shown:
            shown.update(1)
        stream.flush()
        assert b"scoring" in os.read(ours, 10_000)
    os.close(ours)


def test_a_first_step_that_takes_long_names_a_cheaper_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "UNKNOWN", 0.1)
    for steps, said in ((0, True), (1, False)):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.speaking():
            progress.cheaper("--top takes less")
            with bar(4, description="explaining") as shown:
                shown.update(steps)
                time.sleep(0.4)
        assert stream.getvalue() == ("nescio: this takes long (explaining); --top takes less\n" if said else "")


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
        assert stream.getvalue() == ("nescio: this takes long (walking rays); --measured takes less\n" if said else "")
