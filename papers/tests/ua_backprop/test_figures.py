"""The figures."""

from nescio_papers import reproduce
from nescio_papers.ua_backprop import case as cases
from nescio_papers.ua_backprop import figures
from papers.tests.ua_backprop.conftest import went


def test_figures_are_drawn_from_what_was_made_before(small, tmp_path, models, monkeypatch):
    real, made = cases.explain, []
    monkeypatch.setattr(cases, "explain", lambda *args, **more: made.append(more["of"]) or real(*args, **more))
    monkeypatch.setattr(figures, "METHODS", figures.METHODS[:3])
    done = went(figures, tmp_path, models)
    assert made == ["epistemic", "aleatoric", "total", *["epistemic"] * 3]  # of the few that are drawn, and of all
    titles = [figure["title"] for figure in done["figures"]]
    assert titles == ["Kinds of uncertainty, MNIST", "Methods side by side, MNIST", "Uncertainty reduction, MNIST"]
    for figure in done["figures"]:
        assert figure["image"].startswith("<svg") and figure["alt"] in figure["image"] and "nan" not in figure["image"]
    assert done["figures"][2]["image"].count(">Random order</text>") == 1
    assert reproduce.render(done).count("<svg") == 3
    assert went(figures, tmp_path, models)["figures"] == done["figures"] and len(made) == 6


def test_a_figure_that_cannot_be_drawn_is_noted(small, tmp_path, models, monkeypatch):
    monkeypatch.setattr(cases, "explain", None)
    done = went(figures, tmp_path, models)
    assert not done["figures"] and done["notes"][-1].startswith("MNIST is not drawn, or not all of it: failed: Type")
    assert "copies = 2" in done["notes"][-2] and done["notes"][0] == figures.NOTES[0]
