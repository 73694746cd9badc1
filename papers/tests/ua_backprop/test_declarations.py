"""What the studies declare."""

from pathlib import Path
from statistics import fmean

import pytest

from nescio_papers import reproduce
from nescio_papers.runner.study import METRICS
from nescio_papers.ua_backprop import figures, sweep, table1, table2


@pytest.mark.parametrize(
    ("part", "last"), [(*table1.PARTS[:1], 1e-3), (*table1.PARTS[1:2], 1e-3), (*table2.PARTS[:1], None)]
)
def test_the_papers_averages_come_out_of_the_copied_numbers(part, last):
    """A slip in copying a number would show here: the paper prints the averages beside them."""
    assert set(part.paper) == {row.paper for row in part.rows if row.paper}
    for label, line in part.paper.items():
        values = [cell for column, cell in line.items() if column != "avg"]
        assert len(values) == 4
        groups = [[n for cell in values for n in cell]] if part.averages == "joint" else zip(*values, strict=True)
        for at, (group, (printed, _)) in enumerate(zip(groups, line["avg"], strict=True)):
            step = last or (0.01, 0.001)[at]
            assert fmean(mean for mean, _ in group) == pytest.approx(printed, abs=0.51 * step), label


@pytest.mark.parametrize("study", [table1, table2, sweep, figures])
def test_declarations_hold_together(study):
    for part in study.STUDY.parts:
        assert set(part.metrics) <= set(METRICS) and part.task == "program"
        assert len({row.label for row in part.rows}) == len(part.rows)
    assert reproduce.studies()[study.STUDY.name] is study.STUDY
    assert f"ua-{Path(study.__file__).stem}" == study.STUDY.name
