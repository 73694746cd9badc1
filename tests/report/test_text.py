import dataclasses

import pytest

from nescio.report import text_table
from nescio.report.text import chance, duration, number, percent


def test_every_method_has_a_line_best_first_and_numbers_end_in_one_column(comparison):
    head, rule, *rows = text_table(comparison).splitlines()
    assert [row.split()[0] for row in rows] == ["entropy", "regrad", "wrong"]
    assert head.split()[0] == "method"
    assert set(rule) == {"─", " "}
    assert len({len(row) for row in rows}) == 1  # right-aligned: all lines end together
    end = head.index("AUROC ↑") + len("AUROC ↑")
    assert all(row[:end].split()[-1] == percent(m.result.auroc) for row, m in zip(rows, comparison.ranked, strict=True))


def test_the_numbers_are_those_of_the_comparison(comparison):
    row = text_table(comparison).splitlines()[3].split()
    regrad = comparison.methods[0]
    result = regrad.result
    shares = [result.auroc, result.aupr, result.fpr95, *(regrad.result_of(kind).auroc for kind in regrad.foreign)]
    assert row == ["regrad", *map(percent, shares), "12.3", "ms"]


def test_a_score_that_points_the_wrong_way_is_shown_as_it_is(comparison):
    assert text_table(comparison).splitlines()[-1].split()[:2] == ["wrong", "0.0"]


def test_one_kind_needs_no_columns_of_its_own(comparison):
    methods = tuple(dataclasses.replace(m, foreign={"patches": m.foreign["patches"]}) for m in comparison.methods)
    one = dataclasses.replace(comparison, foreign=comparison.foreign[:1], methods=methods)
    assert text_table(one).splitlines()[0].split("  ")[-1].strip() == "time per input"
    assert "patches" not in text_table(one)


@pytest.mark.parametrize(
    ("seconds", "words"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.2e-5, "42 µs"), (1.0, "1 s"), (0.9994, "999 ms")]
)
def test_durations_are_in_the_unit_that_suits_them(seconds, words):
    assert duration(seconds) == words


def test_numbers_and_shares():
    assert number(-0.01234) == "−0.0123"
    assert number(-1234.7) == "−1,235"
    assert number(999.4) == "999"
    assert number(1234567.0) == "1.23e+06"
    assert percent(0.97349) == "97.3"


def test_chances_never_say_more_than_is_so():
    assert [chance(p) for p in (1.0, 0.99999, 0.5, 1e-9, 0.0)] == [
        *("100.0 %", "over 99.9 %", "50.0 %", "under 0.1 %", "0.0 %")
    ]
