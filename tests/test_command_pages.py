"""What the pages of the commands show of what was printed does not depend on how fast a machine is."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from nescio import progress

BUILDING = Path(__file__).resolve().parents[1] / "docs" / "building"


@pytest.fixture
def commands() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BUILDING))
    yield import_module("commands")
    sys.path.remove(str(BUILDING))


def test_words_of_progress_are_left_out(commands: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    speech = progress._Speech()
    print("Wrote scores.csv")
    for total, done, left in (
        (None, 4, None),
        (1000, 0, None),
        (1000, 900, None),
        (1000, 900, lambda rest: 90.0 * rest),
    ):
        lines = progress._Lines(speech, total, "the first rows", "input", left)
        lines.update(done)
        lines.say()
    speech.next = 0.0
    speech.look()
    speech.last, speech.next = "scoring", 0.0
    speech.look()
    said_before = progress._speech.set(speech)
    progress.foretell(500.0, 3670, "scoring")
    speech.advice = "--method entropy takes one forward pass"
    progress._Watched(speech, progress._Silent(), None, "scoring", "input").advise()
    progress._speech.reset(said_before)
    said = capsys.readouterr()
    assert said.err.count("\n") == 8 and "3,670 inputs, 140 ms each" in said.err
    warning = "nescio: warning: the labels are not used\n"
    assert commands.tidy(said.err + warning + said.out) == warning + "Wrote scores.csv"
