"""Templates escape every text, name everything they need, and let markup in at one place alone."""

import re
from pathlib import Path

import jinja2
import pytest

import nescio
from nescio.report.content import Cell, Figure, Picture, Row, Table, ascending
from nescio.report.render import render, render_macro

HOSTILE = """'"><script>alert(1)</script>"""


def macro(name, *content):
    return render_macro("macros.html.j2", name, *content)


@pytest.mark.parametrize(
    "html",
    [
        lambda: render("facts.html.j2", pairs={HOSTILE: HOSTILE}),
        lambda: macro("table", Table(ascending(HOSTILE), [Row(HOSTILE, [Cell(HOSTILE, HOSTILE)])], HOSTILE)),
        lambda: macro("picture", Picture("data:,", HOSTILE)),
        lambda: macro("figure", Figure("<svg></svg>", HOSTILE, HOSTILE)),
        lambda: macro("terms", {HOSTILE: HOSTILE}),
        lambda: macro("items", [HOSTILE]),
    ],
)
def test_text_stays_text(html):
    text = html()
    assert "<script" not in text and "&lt;script&gt;" in text
    assert "'\"" not in text  # nor does it end an attribute


def test_only_a_figure_is_taken_as_markup():
    texts = {file.name: file.read_text(encoding="utf-8") for file in Path(nescio.__file__).parent.rglob("*.j2")}
    assert len(texts) >= 11
    found = [(name, filtered) for name, text in texts.items() for filtered in re.findall(r"[\w.]+ *\| *safe", text)]
    assert found == [("macros.html.j2", "figure.svg | safe")]
    assert not any("autoescape" in text for text in texts.values())


def test_a_name_that_the_content_does_not_have_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="pairs"):
        render("facts.html.j2")


def test_a_number_and_its_percent_sign_stay_on_one_line():
    assert "80\N{NO-BREAK SPACE}% of it" in macro("items", ["80 % of it"])
