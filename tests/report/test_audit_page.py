"""The page of an audit shows every direction with its numbers, marks what is proven, and has words for its figures."""

import math
import re

import numpy as np
import pytest

from nescio.report.audit_advice import Advice, NearDirection, direction_picture
from nescio.report.audit_page import audit_page
from nescio.types import InputError
from tests.report.test_comparison_page import Reader

DISTANCES = (0.0, 1.0, 2.0, 4.0)


def row(direction: str, score: str, values: tuple[float, ...], **more: object) -> dict[str, object]:
    own = {
        "direction": direction, "score": score, "start": values[0], "limit": values[-1], "reached": 2.0,
        "rises": False, "proven": score == "entropy", "confidence": 1.0, "certain": 1.0, "answer": 2, "sure_from": 3.25,
        "values": values,
    }  # fmt: skip
    return own | more


@pytest.fixture(scope="module")
def text() -> str:
    open_ = {"confidence": 0.9996, "certain": 0.0, "answer": -1, "sure_from": math.inf}
    mixed = {"confidence": 0.994, "certain": 0.5, "answer": -1, "sure_from": math.inf}
    rows = [
        row("<x3> +", "entropy", (0.25, 0.1, 0.01, 0.0)),
        row("<x3> +", "regrad", (5.0, 6.0, 1.0, 1e-9)),
        row("away", "entropy", (0.25, 0.3, 0.4, 0.5), **open_),
        row("away", "regrad", (5.0, 6.0, 12.0, 2345.0), rises=True, reached=math.inf, **open_),
        row("both", "entropy", (0.25, 0.3, 0.4, 0.0), **mixed),
        row("both", "regrad", (5.0, 6.0, 12.0, 0.0), **mixed),
    ]
    words = {"<x3> +": "100 % sure of class 2.", "away": "not certain.", "both": "from some."}
    lines = ["Certain along 1 of 3.", "entropy (proven): falls."]
    return audit_page(rows, DISTANCES, words, lines, {"command": "nescio audit --x"})


def test_it_is_one_well_formed_page_that_asks_for_nothing(text: str) -> None:
    read = Reader(text)
    assert text.startswith("<!doctype html>") and "default-src 'none'" in text and "prefers-color-scheme: dark" in text
    assert all(
        attrs[name].startswith(("data:", "#"))
        for _, attrs in read.tags
        for name in ("src", "href", "xlink:href")
        if name in attrs
    )
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert "<x3>" not in text and "&lt;x3&gt; +" in text
    assert "nescio audit --x" in text and "<b>Certain along 1 of 3.</b>" in text


def test_the_table_has_every_direction_and_marks_what_is_proven(text: str) -> None:
    table = text[text.index('<table class="sortable"') : text.index("</table>")]
    heads = re.findall(r'<button type="button">([^<]+)</button>', table)
    assert heads == ["direction", "confidence", "sure of", "sure from", "entropy, proven", "regrad, measured"]
    rows = re.findall(r'<th scope="row">([^<]+)</th>(.*?)</tr>', table)
    assert [name for name, _ in rows] == ["&lt;x3&gt; +", "away", "both"]
    cells = [re.findall(r">([^<]*)</td>", cells) for _, cells in rows]
    assert cells[0] == ["100.0 %", "class 2", "3.25", "0.25 → 0", "5 → 0"]
    assert cells[1] == ["99.9 %", "–", "–", "0.25 → 0.5", "5 → 2,345 ↑"]  # 0.9996 is not certainty
    assert cells[2] == ["99.4 %", "several", "the end", "0.25 → 0", "5 → 0"]
    values = re.findall(r'data-value="([^"]+)"', rows[1][1])
    assert values == ["0.9996", "Infinity", "Infinity", "0.5", "2345.0"]
    assert "<dt>away</dt><dd>not certain.</dd>" in text


def test_figures_have_words(text: str) -> None:
    labels = [attrs["aria-label"] for attrs in Reader(text).all("svg")]
    about = "against the distance from the data, 0 to 4 spreads"
    many = "a line for each of 3 directions, of which 2 end lower than they began"
    assert labels == [
        f"entropy {about}, proven, {many} and 0 still rise",
        f"regrad {about}, measured, {many} and 1 still rise",
    ]
    assert "certain in the end (2 of 3)" in text


def test_max_probability_is_never_without_its_gloss() -> None:
    rows = [row("a", "max_probability", (0.25, 0.1, 0.01, 0.0)), row("a", "entropy", (0.25, 0.1, 0.01, 0.0))]
    text = audit_page(rows, DISTANCES, {"a": "100 % sure."}, ["."], {})
    words = re.sub(r"<[^>]*>", "", text) + " ".join(attrs["aria-label"] for attrs in Reader(text).all("svg"))
    assert words.count("max_probability") == words.count("max_probability (one minus the largest probability") > 1


def test_the_nearest_directions_and_what_to_do_about_them() -> None:
    rows = [row("<a> +", "entropy", (0.25, 0.1, 0.01, 0.0))]
    picture = direction_picture("<a> +", np.linspace(-1, 1, 4).reshape(1, 2, 2))
    near = [
        NearDirection("<a> +", "<a> ↑, b ↓ and 3 more", "cow", "3.25", "1.5", "<b>"),
        NearDirection("c -", "", "cat", "–", "2", "", picture),
    ]
    advice = Advice(near, ["Check <it>, 5 % of all."], "RANGES = {'<a>': (0, 1)}", ["nescio guard --model '<m>'"])
    text = audit_page(rows, DISTANCES, {"<a> +": "."}, ["."], {}, advice, ["ox", "cat", "cow"])
    read = Reader(text)
    assert "<a>" not in text and "<it>" not in text and "'<m>'" not in text
    table = text[text.index('<table class="nearest">') :]
    table = table[: table.index("</table>")]
    assert "&lt;a&gt; ↑, b ↓ and 3 more" in table and "(&lt;b&gt;)" in table and "<td>cow</td><td>3.25</td>" in table
    assert read.all("img")[0]["alt"] == "the direction <a> + as a picture"
    assert "What to do" in text and "RANGES = {" in text and "nescio guard --model" in text
    assert "grey stays as it is" in text
    assert ">cow</td>" in text[text.index('<table class="sortable"') :]  # class 2, in the table of all directions
    assert "There are none" in audit_page(rows, DISTANCES, {"<a> +": "."}, ["."], {}, Advice([], ["."], "", []))


def test_rows_that_do_not_fit_are_refused() -> None:
    rows = [row("a", "entropy", (1.0, 0.5, 0.2, 0.0)), row("b", "regrad", (1.0, 0.5, 0.2, 0.0))]
    with pytest.raises(InputError, match="none for 'b'"):
        audit_page(rows, DISTANCES, {"a": "."}, ["."], {})
    with pytest.raises(InputError, match="the same scores"):
        audit_page(rows, DISTANCES, {"a": ".", "b": "."}, ["."], {})
    with pytest.raises(InputError, match="the same scores"):
        audit_page([], DISTANCES, {}, ["."], {})
