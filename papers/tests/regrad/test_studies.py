"""Every study runs from its declaration to its page: those beyond the tables with all rows, tables with a few."""

import html
from dataclasses import replace

import pytest

from nescio_papers import reproduce
from nescio_papers.regrad import acquisition, polarity, propositions
from nescio_papers.runner.study import Row


@pytest.mark.parametrize("name", ["acquisition", "polarity", "propositions", "readings", "schedules", "hundred"])
def test_the_smoke_scale_runs_and_has_a_page(name, tmp_path, models, monkeypatch):
    monkeypatch.setattr(acquisition, "ROWS", (Row("Entropy", "entropy"), Row("Random", "random")))
    monkeypatch.setattr(polarity, "PICTURES", 10)
    monkeypatch.setattr(propositions, "NETWORKS", {"mnist": "omniglot"})
    seeds = (0, 1) if name == "hundred" else (0,)  # its ensemble has a network of each seed
    results = reproduce.run(name, "smoke", work=tmp_path, models=models, device="cpu", seeds=seeds)
    cells = [cell for part in results["parts"] for cell in part["cells"]]
    assert results["complete"] and cells and all("metrics" in cell for cell in cells)
    page = html.unescape(reproduce.render(results))
    assert results["title"] in page and all(figure["title"] in page for figure in results["figures"])


TABLES = [
    name
    for name, study in reproduce.studies().items()
    if study.program is None and name not in ("readings", "schedules", "hundred")
]
"""Studies that are nothing but a declaration; those with a program have tests of their own."""


@pytest.mark.parametrize("name", TABLES)
def test_a_table_runs_with_its_first_and_last_rows(name, tmp_path, models, tiny):
    study = reproduce.studies()[name]
    few = tuple(replace(part, rows=(part.rows[0], *part.rows[1:][-1:])) for part in study.parts)
    results = reproduce.run(
        replace(study, parts=few), "smoke", work=tmp_path, models=models, device="cpu", seeds=(0, 1)
    )
    cells = [cell for part in results["parts"] for cell in part["cells"]]
    assert results["complete"] and cells
    assert all("metrics" in cell or cell["reason"].startswith("not run") for cell in cells)
    assert all(any("metrics" in cell for cell in part["cells"]) for part in results["parts"])
    assert results["title"] in html.unescape(reproduce.render(results))
