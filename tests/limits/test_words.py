"""An audit in words: rounding, trends and order, from rows made by hand."""

import math
from dataclasses import replace

import pytest

from nescio.limits import words
from nescio.limits.audit_table import AuditRow

ROW = AuditRow("out", "entropy", 0.5, 0.25, 4.0, False, True, 0.9999, 1.0, 1, 3.0, (0.5, 0.25))


@pytest.mark.parametrize(
    ("start", "limit", "trend"),
    [(1.0, 1.009, "stays"), (1.0, 1.02, "rises"), (1.0, 0.98, "falls"), (-1.0, -1.005, "stays"), (0.0, 0.0, "stays")],
)
def test_a_change_of_less_than_a_hundredth_is_none(start: float, limit: float, trend: str) -> None:
    assert words.trend(replace(ROW, start=start, limit=limit)) == trend


def test_the_most_certain_come_first_then_the_soonest_then_the_surest() -> None:
    rows = [
        replace(ROW, direction="unsure", certain=0.0, sure_from=math.inf, answer=-1, confidence=0.6),
        replace(ROW, direction="surer", certain=0.0, sure_from=math.inf, answer=-1, confidence=0.8),
        replace(ROW, direction="half", certain=0.5, sure_from=1.0),
        replace(ROW, direction="late", sure_from=5.0),
        replace(ROW, direction="soon", sure_from=2.0),
    ]
    found = words.sentences(rows, 2, True)
    assert list(found) == ["soon", "late", "half", "surer", "unsure"]
    assert (
        found["soon"] == "99.99 % sure of class 1 from 2 spreads on (proven); entropy falls from 0.5 to 0.25 (proven)."
    )
    assert found["half"].startswith("from 1 of 2 starting points sure of class 1, from 1 spreads on")
    assert found["surer"].startswith("not certain: its confidence tends to 80 %")
    summary = words.summary(rows, 2, 64.0, "")
    assert "certain along 3 of 5 directions" in summary[0] and "99 % from at least half of 2" in summary[0]
    assert summary[1].startswith("entropy (proven): ends lower than at the data along 5 of 5 directions, still rises")
