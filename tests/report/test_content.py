import math

import pytest

from nescio.report.content import Cell, ascending, descending, share_cell


@pytest.mark.parametrize("value", [None, math.inf])
def test_what_is_not_known_or_endless_is_sorted_last(value):
    assert Cell("–", value).key == "Infinity"


def test_a_bar_stays_within_its_cell():
    assert [Cell("", 0, bar).width for bar in (-0.1, 0.25, 1.7, None)] == ["0.0", "25.0", "100.0", None]


def test_a_share_has_a_bar_of_its_length_and_a_dash_where_it_is_not_known():
    assert share_cell(0.9731) == Cell("97.3", 0.9731, 0.9731)
    assert share_cell(None) == Cell("–", None)


def test_columns_say_which_end_comes_first():
    columns = [*ascending("method"), *descending("AUROC", "AUPR")]
    assert [(one.name, one.first) for one in columns] == [
        ("method", "ascending"),
        ("AUROC", "descending"),
        ("AUPR", "descending"),
    ]
