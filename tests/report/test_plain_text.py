import dataclasses

from nescio._common.formatting import percentage
from nescio.report import text_table


def test_every_method_has_a_line_best_first_and_numbers_end_in_one_column(comparison):
    head, rule, *rows = text_table(comparison).splitlines()
    assert [row.split()[0] for row in rows] == ["entropy", "regrad", "wrong"]
    assert head.split()[0] == "method"
    assert set(rule) == {"─", " "}
    assert len({len(row) for row in rows}) == 1  # right-aligned: all lines end together
    end = head.index("AUROC ↑") + len("AUROC ↑")
    assert all(
        row[:end].split()[-1] == percentage(m.result.auroc) for row, m in zip(rows, comparison.ranked, strict=True)
    )


def test_the_numbers_are_those_of_the_comparison(comparison):
    row = text_table(comparison).splitlines()[3].split()
    regrad = comparison.methods[0]
    result = regrad.result
    shares = [result.auroc, result.aupr, result.fpr95, *(regrad.result_of(kind).auroc for kind in regrad.foreign)]
    assert row == ["regrad", *map(percentage, shares), "12.3", "ms"]


def test_a_score_that_points_the_wrong_way_is_shown_as_it_is(comparison):
    assert text_table(comparison).splitlines()[-1].split()[:2] == ["wrong", "0.0"]


def test_one_kind_needs_no_columns_of_its_own(comparison):
    methods = tuple(dataclasses.replace(m, foreign={"patches": m.foreign["patches"]}) for m in comparison.methods)
    one = dataclasses.replace(comparison, foreign=comparison.foreign[:1], methods=methods)
    assert text_table(one).splitlines()[0].split("  ")[-1].strip() == "time per input"
    assert "patches" not in text_table(one)
