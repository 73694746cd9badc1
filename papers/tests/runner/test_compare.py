import pytest

from nescio_papers.runner.compare import Value, table
from nescio_papers.runner.study import METRICS

COLUMNS = [{"key": k, "label": k.upper()} for k in ("a→b", "a→lsun", "a→scenes")]


def row(label, paper=None, choice="", ranked=True):
    return {"label": label, "method": "m", "paper": paper, "choice": choice, "ranked": ranked, "note": ""}


def cells(label, **values):
    keys = {"b": "a→b", "lsun": "a→lsun", "scenes": "a→scenes"}
    found = []
    for name, numbers in values.items():
        for seed, number in enumerate(numbers):
            entry = {"row": label, "column": keys[name], "seed": seed}
            more = {"reason": number} if isinstance(number, str) else {"metrics": {"auroc": number, "aupr": number}}
            found.append(entry | more)
    return found


def part(rows, found, averages="joint", metrics=("auroc", "aupr"), paper=None):
    return {
        "title": "T", "task": "ood", "metrics": list(metrics), "averages": averages, "line": "", "reference": "",
        "columns": COLUMNS, "rows": rows, "cells": found, "paper": PAPER if paper is None else paper,
    }  # fmt: skip


PAPER = {
    "REGrad*": {"a→b": [[90.0, 1.0], [80.0, 1.0]], "a→lsun": [[99.0, 1.0], [99.0, 1.0]], "avg": [[92.0, None]]},
    "Base": {"a→b": [[85.0, 0.5], [70.0, 0.5]], "a→lsun": [[50.0, 1.0], [50.0, 1.0]], "avg": [[63.75, None]]},
}
ROWS = [row("R", "REGrad*"), row("B1", "Base", "Base"), row("B2", "Base", "Base"), row("New")]
LSUN = ["not run (data not at hand): none"]
CELLS = [
    *cells("R", b=[0.91, 0.89], lsun=LSUN, scenes=[0.5]),
    *cells("B1", b=[0.84, 0.86], lsun=LSUN, scenes=[0.99]),
    *cells("B2", b=[0.80, 0.80], lsun=LSUN, scenes=[0.99]),
    *cells("New", b=[0.95, 0.95], lsun=LSUN, scenes=[0.1]),
]


def test_means_differences_and_what_lies_inside():
    found = table(part(ROWS, CELLS), "quick")
    value = found.lines[0].values["a→b", "auroc"]
    assert value.mean == pytest.approx(90.0) and value.sd == pytest.approx(2**0.5) and value.seeds == 2
    assert value.difference == pytest.approx(0.0) and value.inside is True
    assert found.lines[0].values["a→b", "aupr"].difference == pytest.approx(10.0)
    assert found.lines[0].values["a→b", "aupr"].inside is False
    assert found.lines[0].inside == (1, 2)
    missing = found.lines[0].values["a→lsun", "auroc"]
    assert missing.mean is None and missing.paper == 99.0 and missing.reason == LSUN[0] and missing.inside is None
    assert found.lines[0].values["a→scenes", "auroc"].paper is None


def test_averages_are_over_what_both_have():
    found = table(part(ROWS, CELLS), "quick")
    assert found.common == ["a→b"]
    assert found.printed == "Over all of its columns the paper prints an average of 92 for REGrad*."
    average = found.lines[0].averages[""]
    assert average.mean == pytest.approx(90.0) and average.paper == pytest.approx(85.0)
    holes = [c for c in CELLS if not (c["row"] == "R" and c["column"] == "a→b")]
    line = table(part(ROWS, holes), "quick").lines[0]
    assert line.averages[""].mean is None and line.rank is None and not line.stands


def test_the_better_of_a_choice_stands_and_ranks_follow():
    found = table(part(ROWS, CELLS), "quick")
    assert [line.stands for line in found.lines] == [True, True, False, False]
    assert [line.rank for line in found.lines] == [2, 3, 4, 1]
    assert [line.rank_among for line in found.lines] == [1, 2, None, None]
    assert [line.paper_rank for line in found.lines] == [1, 2, None, None]
    worse = [c | {"metrics": {"auroc": 0.1, "aupr": 0.1}} if c["row"] == "B1" and "metrics" in c else c for c in CELLS]
    assert [line.stands for line in table(part(ROWS, worse), "quick").lines] == [True, False, True, False]


def test_equal_choices_stand_once():
    twice = [*CELLS[:5], *(c | {"row": "B1"} for c in CELLS if c["row"] == "B2"), *CELLS]
    rows = [row("B1", "Base", "Base"), row("B2", "Base", "Base")]
    same = [c for c in twice if c["row"] == "B2"] + [c | {"row": "B1"} for c in CELLS if c["row"] == "B2"]
    assert [line.stands for line in table(part(rows, same), "quick").lines] == [True, False]


def test_lower_is_better_for_seconds():
    found = [{"row": r, "column": "a→b", "seed": 0, "metrics": {"seconds": s}} for r, s in (("R", 5.0), ("New", 1.0))]
    paper = {"REGrad*": {"a→b": [[75.0, None]]}}
    lines = table(part([row("R", "REGrad*"), row("New")], found, None, ("seconds",), paper), "quick").lines
    assert [line.rank for line in lines] == [2, 1] and lines[0].averages == {}
    assert lines[0].values["a→b", "seconds"].difference == pytest.approx(-70.0)


def test_the_summary_is_computed_from_the_numbers():
    words = table(part(ROWS, CELLS), "quick").summary
    assert "R is 1st of the 2 methods of the paper that were run (1st in the paper)" in words
    assert "with an average of 90.00 against the paper's 85.00 for the same 1 column." in words
    assert "2 of 4 compared numbers lie within the paper's ±." in words
    assert "Of all 4 rows New comes out first, with 95.00 on average." in words
    nothing = table(part(ROWS, []), "quick").summary
    assert nothing == "Nothing of this table could be run, or no row has all of its columns."


def test_smoke_compares_nothing():
    found = table(part(ROWS, CELLS), "smoke")
    assert not found.compared and found.lines[0].values["a→b", "auroc"].paper is None
    assert "the numbers say nothing about the methods" in found.summary and "paper's" not in found.summary
    assert found.common == ["a→b", "a→scenes"]


def test_inside_is_judged_as_printed():
    metric = METRICS["auroc"]
    assert Value(metric, 98.2149, paper=98.19, paper_sd=0.02).inside
    assert not Value(metric, 98.2151, paper=98.19, paper_sd=0.02).inside
    assert Value(metric, 98.19, paper=98.19).inside is None


def test_a_metric_that_the_paper_does_not_have_comes_last():
    part = {
        "title": "", "task": "ood", "columns": [{"key": "a→b", "label": "A→B"}], "metrics": ["auroc", "fpr95"],
        "rows": [{"label": "Ours", "paper": "Ours", "ranked": True, "choice": "", "note": ""}],
        "paper": {"Ours": {"a→b": [[90.0, 1.0]]}}, "averages": "each",
        "cells": [{"row": "Ours", "column": "a→b", "seed": 0, "metrics": {"auroc": 0.9, "fpr95": 0.2}}],
    }  # fmt: skip
    (line,) = table(part, "quick").lines
    assert line.values["a→b", "auroc"].paper == 90.0 and line.values["a→b", "fpr95"].paper is None
    assert line.averages["auroc"].paper == 90.0 and line.averages["fpr95"].paper is None
