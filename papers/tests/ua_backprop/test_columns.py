"""A table column by column."""

from dataclasses import replace

from nescio_papers.ua_backprop import table2
from nescio_papers.ua_backprop.columns import by_column


def test_a_set_that_fails_in_any_way_leaves_the_others(job, small):
    first, second = table2.STUDY.parts[0].columns[:2]

    def run(column):
        if column is first:
            raise RuntimeError("out of\nmemory")
        return [[{"row": "a", "column": column.key, "seed": 0, "metrics": {}}]]

    part = replace(table2.PARTS[0], rows=table2.ROWS[:2])
    (cells,) = by_column(job, [part], [first, second], run)
    assert [cell.get("reason") for cell in cells] == ["failed: RuntimeError: out of memory"] * 2 + [None]
