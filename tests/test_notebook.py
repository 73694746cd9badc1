"""Results show themselves in a notebook: small cards whose texts are escaped and that suit dark and light."""

import re
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import nescio
from nescio import notebook
from nescio.types import Check, Decomposition, Scored


class Tags(HTMLParser):
    """Checks that what is opened is closed, and keeps what is read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said = ""
        self.links: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        assert tag != "script" and not any(name.startswith("on") for name, _ in attrs)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.said += data


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.rand(30, 1, 4, 4)
    posterior = nescio.posteriors.InsertedDropout(model, samples=4)
    held_out = torch.arange(100.0)
    return {
        "scores": nescio.score(model, x, "entropy", report=True),
        "verdict": nescio.Guard(model).fit(torch.rand(400, 1, 4, 4)).check(torch.cat([x, 9 + x[:1]])),
        "decomposition": nescio.decompose(posterior.predict(x)),
        "maps": nescio.explain(posterior, x[:8]),
        "parts": nescio.explain(nn.Linear(4, 3), torch.rand(8, 4), of="total"),
        "audit": nescio.limits.audit(model, x[:3], "features", starts=1, features=12, progress=False),
        "policy": nescio.decide.quantile(held_out, keep=0.9),
        "methods": nescio.methods(),
    }


SAYS = {
    "scores": ["30 scores, higher = more uncertain", "… and 20 more inputs."],
    "verdict": ["of 31 inputs foreign at a level of 0.05", "foreign", "unlike anything in the reference"],
    "decomposition": ["The doubt of 30 inputs", "aleatoric", "epistemic"],
    "maps": ["Where the epistemic doubt comes from, by ua_backprop", "input 5:", "… and 2 more inputs."],
    "parts": ["Where the total doubt comes from", "place: part", "… and 2 more inputs."],
    "audit": ["What the model says far away from its data", "pixel (", "… and 14 more directions."],
    "policy": ["Accept an input when its score is at most 90"],
    "methods": ["regrad", "what it is", "Cost: forward passes"],
}


@pytest.mark.parametrize("name", SAYS)
def test_a_result_shows_itself_as_a_small_card(results: dict[str, Any], name: str) -> None:
    card = results[name]._repr_html_()
    read = Tags(card)
    for words in SAYS[name]:
        assert words in read.said, words
    assert len(card) < 20_000
    assert all(link.startswith("data:image/png;base64,") for link in read.links)
    assert len(read.links) == (6 if name == "maps" else 0)


def test_ipython_takes_the_card_and_plain_text_besides(results: dict[str, Any]) -> None:
    formatters = pytest.importorskip("IPython.core.formatters", reason="IPython is not installed")
    data, _ = formatters.DisplayFormatter().format(results["verdict"])
    assert data["text/html"].startswith('<div class="nescio-card">') and "Verdict(" in data["text/plain"]


def test_no_colour_of_text_or_paper_is_set_so_that_dark_and_light_both_suit(results: dict[str, Any]) -> None:
    style = re.search(r"<style>(.*?)</style>", results["verdict"]._repr_html_(), re.DOTALL)
    assert style is not None
    assert set(re.findall(r"[ {]color: ([^;]+);", style[1])) == {"inherit"}
    for rule in re.findall(r"^(.+?) \{(.+)\}$", style[1], re.MULTILINE):
        assert rule[0].startswith(".nescio-card")  # nothing else on the page changes


def test_the_most_uncertain_come_first_with_their_errors() -> None:
    scored = Scored(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.0, 0.01, 0.02]), Check(1, 0.0, 0))
    card = scored._repr_html_()
    assert re.findall(r"<tr><td>(\d)</td>", card) == ["1", "2", "0"]
    assert "1 %" in card and "width: 66.7%" in card and "more input" not in card


def test_no_result_is_too_small_or_too_strange_for_a_card() -> None:
    empty, one = torch.empty(0, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    Tags(Scored(empty)._repr_html_())
    assert "1 score, " in Tags(Scored(one)._repr_html_()).said
    assert "width: 0.0%" in Scored(torch.tensor([-2.0, float("inf")]))._repr_html_()
    Tags(Decomposition(empty, empty, empty, empty, empty, empty)._repr_html_())
    assert "width: 0.0%" in Decomposition(one, one, one, one, one, one)._repr_html_()
    flat = nescio.Attribution(torch.zeros(1, 2, 2), one, one, "total", "m", "")
    Tags(flat._repr_html_())


def test_texts_are_escaped_everywhere() -> None:
    evil = '<script>alert("1")</script>'
    card = notebook.card(
        evil,
        lines=[evil],
        columns=[evil],
        rows=[[evil, notebook.Cell(evil, (0.5,), "fine")]],
        pictures=[notebook.Picture(evil, evil)],
        more=evil,
    )
    assert "<script" not in card and card.count("&lt;script&gt;") == 9
    audit = nescio.limits.audit(
        nn.Linear(2, 2), torch.rand(3, 2), "features", starts=1, names=[evil, "b"], progress=False
    )
    assert "<script" not in audit._repr_html_() and "&lt;script&gt;" in audit._repr_html_()


def test_a_notebook_is_told_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from nescio import progress

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(__import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert progress.in_notebook()
    shell.kernel = None  # IPython in a terminal
    assert not progress.in_notebook()
    monkeypatch.delitem(__import__("sys").modules, "IPython")
    assert not progress.in_notebook()
