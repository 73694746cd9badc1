import re
import sys

import pytest

from nescio_papers.reproduce import joined, markdown, render
from nescio_papers.runner.chart import chart
from papers.tests.runner.test_compare import CELLS, ROWS, part


def results(scale="quick", **more):
    return {
        "format": 1, "study": "table1", "title": "Out & in", "scale": scale, "about": "some pictures",
        "notes": ["a note"], "started": "2026-01-01T00:00:00+00:00", "seconds": 12.0,
        "settings": {"seeds": {"mnist": [0, 1]}}, "git": {"commit": "0123456789abcdef", "dirty": True},
        "machine": {"device": "cpu", "name": "a machine", "platform": "x"}, "versions": {"torch": "2"},
        "models": [{"plan": "mnist", "seed": 0, "accuracy": 0.991, "seconds": 3.0, "about": "a <CNN>"}],
        "sets": [{"name": "svhn test", "about": "the crops are reconstructed", "pictures": 7}], "complete": True,
        "parts": [part(ROWS, CELLS)],
    } | more  # fmt: skip


def test_the_page_sets_ours_beside_the_papers():
    page = render(results())
    assert "90.00 <small>±1.41</small><br><small>90.00 ±1.00</small><br><small>+0.00" in page
    assert page.count('<span class="inside">inside</span>') == 2
    assert 'title="not run (data not at hand): none"><small>not run</small><br><small>99.00</small>' in page
    assert '<tr class="stands"><th scope="row">R</th>' in page
    assert "99.10 % right on the test set" in page and "the crops are reconstructed" in page
    assert "commit 0123456789abcdef, changed since" in page
    assert "Out &amp; in" in page and "a &lt;CNN&gt;" in page
    assert "<b>Scale quick</b>" in page and 'class="smoke"' not in page


def test_the_page_asks_for_nothing_from_outside():
    page = render([results(), results("smoke")])
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page) and "http" not in page.replace("http-equiv", "")
    assert page.count("<!doctype html>") == 1 and 'class="smoke"' in page


def test_no_text_becomes_markup():
    hostile = "'\"><script>alert(1)</script>"
    rows = [row | {"label": row["label"] + hostile, "note": hostile} for row in ROWS]
    text = render(
        results(hostile, study=hostile, title=hostile, about=hostile, notes=[hostile], parts=[part(rows, [])])
    )
    assert text.count("<script>") == 1 and text.count("&lt;script&gt;") > 10
    drawn = chart({hostile: [(2, 1.0, hostile), (8, 3.0, hostile)]}, hostile, hostile)
    assert "<script" not in drawn and drawn.count("&lt;script&gt;") == 10


def test_a_run_that_was_ended_says_so():
    assert "The run was ended before all was done" in render(results(complete=False))
    assert "The run was ended before all was done" in markdown(results(complete=False))


def test_markdown_has_the_same_numbers():
    text = markdown(results(git=None))
    assert (
        "| **R** | 90.00 ±1.41 (90.00 ±1.00, +0.00 ✓) | 90.00 ±1.41 (80.00 ±1.00, +10.00) | not run (99.00) |" in text
    )
    assert "| 2 (1, paper 1) |" in text and "- a→lsun: not run (data not at hand): none" in text
    assert "| mnist | 0 | 99.10 % |" in text and "commit" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "**R**" in line]
    assert rows[0].count("|") == next(line for line in text.splitlines() if "| method |" in line).count("|")


def test_curves_are_drawn_for_questions_and_active_learning():
    found = part(ROWS[:2], [c | {"settings": {"method": "m", "samples": 4}} for c in CELLS[:8]])
    page = render(results(parts=[found | {"line": "copies", "metrics": ["auroc"]}]))
    assert page.count("<svg") == 1 and "noisy copies" in page
    curve = {"labels": [20, 40], "acc": [0.5, 0.75], "nll": [1.0, 0.5]}
    cell = {"row": "Entropy", "column": "a→b", "seed": 0, "metrics": {"auroc": 0.6, "aupr": 0.6}, "curve": curve}
    page = render(results(parts=[part(ROWS, [cell]) | {"task": "active"}]))
    assert "<title>Entropy: 40 labels, 75</title>" in page


def test_charts():
    assert chart({}, "x", "y") == "" and chart({"a": []}, "x", "y") == ""
    drawn = chart({"a": [(2, 1.0, "two"), (8, 3.0, "eight")], "b": [(4, 2.0, "<b>")]}, "x", "y", log=True)
    ticks = re.findall(r'text-anchor="middle">([^<]*)<', drawn)
    assert ticks == ["2", "4", "8", "x"] and "a: two, 1" in drawn and "&lt;b&gt;" in drawn
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawn)]
    assert heights[0] > heights[2] > heights[1]  # 1 lies lowest, then 2, then 3


@pytest.mark.parametrize("package", ["matplotlib", "tqdm", "safetensors", "pyarrow"])
def test_pages_need_no_further_package(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert render(results())


def test_runs_of_one_study_are_joined_and_the_latest_number_counts():
    def cell(row, column, seed, value=None):
        found = {"row": row, "column": column, "seed": seed}
        return found | ({"reason": "not run (data not at hand): none"} if value is None else {"metrics": value})

    def run(started, cells, **more):
        return results(started=started, parts=[part(ROWS, cells)], **more)

    row, column = ROWS[0]["label"], "a→b"
    low, high = {"auroc": 0.6, "aupr": 0.6}, {"auroc": 0.8, "aupr": 0.8}
    late = run("2026-01-03", [cell(row, column, 0, high), cell(row, "a→c", 0)], complete=False)
    early = run("2026-01-02", [cell(row, column, 0, low), cell(row, "a→c", 0, low), cell("gone", column, 0, low)])
    other = results("smoke", started="2026-01-01")
    one, two = joined([late, other, early])  # in the order in which they are named
    assert two is other and [found["started"] for found in one["earlier"]] == ["2026-01-02"]
    assert "came_with" not in one["earlier"][0]
    (again,) = joined([late, early | {"git": None, "came_with": "906b05d"}])
    assert again["earlier"][0]["came_with"] == "906b05d"
    assert {c["column"]: c["metrics"] for c in one["parts"][0]["cells"]} == {column: high, "a→c": low}
    assert one["complete"] and len(one["models"]) == 1
    assert "joined with runs of" in render([one]) and "joined with the run of 2026-01-02" in markdown([one])
    # of figures with one title the latest is shown; older results have none
    drawn = [[{"title": "a", "image": at}, {"title": at, "image": at}] for at in ("1", "2")]
    (both,) = joined([run("2", [], figures=drawn[1]), run("1", [], figures=drawn[0]), run("0", [])])
    assert {figure["title"]: figure["image"] for figure in both["figures"]} == {"a": "2", "1": "1", "2": "2"}
    # a reason stays only where no run has a number
    (left,) = joined([run("1", [cell(row, column, 0), cell(row, column, 1, low), cell(row, "a→c", 0)]), run("2", [])])
    assert [(c["column"], "reason" in c) for c in left["parts"][0]["cells"]] == [(column, False), ("a→c", True)]
