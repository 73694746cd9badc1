"""What a command says of its progress depends on the machine: here it says none of it, unless a test asks."""

import pytest

from nescio import progress


@pytest.fixture(autouse=True)
def _no_words_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress._Speech, "look", lambda speech: None)
    monkeypatch.setattr(progress._Lines, "say", lambda lines: None)
