"""Every study beyond the tables runs from its declaration to its page."""

import html

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
