"""The page of a model has every number of its result, words for every figure, and asks for nothing from outside."""

import base64
import io
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from nescio import plots
from nescio.data.sources import open_data
from nescio.limits.reported import reported
from nescio.report.model_page import model_page
from nescio.report.overlays import image, overlays, where
from nescio.report.tables import Cell, chance, table
from nescio.report.text import number, percent
from nescio.study.reporting import gather
from nescio.types import InputError
from tests.report.reported import opened, write
from tests.report.test_page import Reader

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Digits with labels and a second set; a table without labels, with a row that cannot be read."""
    folder = tmp_path_factory.mktemp("pages")
    write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        source, rows = opened("digits", "held.npz")
        more = {"audit": reported, "repeat": {"command": "nescio report"}}
        digits = gather(source, rows, foreign=open_data("other.npz"), examples=2, **more)
        source, rows = opened("table", "table.csv", label=None, x=["age", "pay", "name height"])
        tabular = gather(source, rows, examples=1)
        tabular["model"]["about"] += f" of hf:{'longname' * 12}"
    sys.modules.pop("reported_models", None)
    return {"digits": digits, "table": tabular}


@pytest.fixture(scope="module")
def pages(results):
    return {name: model_page(result) for name, result in results.items()}


def rows_of(text, section, nth=0):
    """The rows of a sortable table of a section: {name: [(value, shown)]}."""
    part = text[text.index(f'<h2 id="{section}">') :]
    inner = part.split('<table class="sortable">')[nth + 1].split("</table>")[0]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', inner, re.DOTALL)
    return {name: re.findall(r'data-value="([^"]*)"[^>]*>([^<]*)</td>', cells) for name, cells in rows}


@pytest.mark.parametrize("name", ["digits", "table"])
def test_it_is_one_well_formed_page_that_asks_for_nothing(pages, name):
    text = pages[name]
    read = Reader(text)
    assert text.startswith("<!doctype html>") and "default-src 'none'" in text and "prefers-color-scheme: dark" in text
    for tag, attrs in read.tags:
        assert tag not in {"iframe", "object", "embed", "base"}
        for key in ("src", "href", "xlink:href", "action", "data"):
            assert attrs.get(key, "#").startswith(("data:", "#")), (tag, attrs[key])
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {
        "http://www.w3.org/1999/xlink",
        "http://www.w3.org/2000/svg",
    }
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for attrs in read.all("a")} <= set(ids)
    assert all(attrs["alt"] for attrs in read.all("img")) and all(attrs["aria-label"] for attrs in read.all("svg"))
    style = text[text.index("<style>") : text.index("</style>")]
    assert ".cards" in style and "@import" not in style and "url(" not in style


def test_every_number_of_the_tables_is_that_of_the_result(pages, results):
    text, result = pages["digits"], results["digits"]
    found = rows_of(text, "foreign")
    assert list(found) == list(result["foreign"]["separation"])
    for name, cells in found.items():
        own = result["foreign"]["separation"][name]
        assert [float(value) for value, _ in cells] == [own["auroc"], own["aupr"], own["fpr95"]]
        low, high = own["auroc_interval"]
        assert cells[0][1] == f"{percent(own['auroc'])} ({percent(low)}–{percent(high)})"
    classes = rows_of(text, "doubt")
    assert len(classes) == len(result["by_class"])
    for row in result["by_class"]:
        keys = ("inputs", "share", "probability", "median", "referred", "right")
        assert [float(value) for value, _ in classes[row["class"]]] == [row[key] for key in keys]
    for name, cells in rows_of(text, "policy").items():
        own = result["selective"][name]
        assert [float(value) for value, _ in cells] == [own["aurc"], own["eaurc"], own["raulc"]]
    sets = rows_of(text, "calibration")
    assert [float(value) for value, _ in sets["all"]] == [
        result["calibration"]["all"][key]
        for key in ("n", "mean_accuracy", "mean_confidence", "ece", "mce", "nll", "brier")
    ]
    assert len(sets) == 3 and f"<b>{result['calibration']['temperature']:.4g}</b>" in text
    layers = rows_of(text, "model")
    assert sum(int(cells[2][0]) for cells in layers.values()) == result["model"]["parameters"] == 1490
    assert repr(result["policy"]["threshold"]) in text or "nothing is accepted" in text


def test_cards_have_pictures_maps_and_words(pages, results):
    text = pages["digits"]
    part = text[text.index('<h2 id="examples">') : text.index('<h2 id="calibration">')]
    every = [one for own in results["digits"]["examples"].values() for one in own]
    assert part.count('<article class="card">') == len(every) == 4
    assert part.count("<img ") == 4 * len(every)
    for one in every:
        assert one["words"].replace(" %", "&nbsp;%") in part and f"{number(one['total'])} = aleatoric" in part
        assert f"Where the epistemic doubt of {one['name']} comes from" in part
    assert "Least doubtful of the other set" in part


def test_a_table_has_bars_and_names_are_escaped_and_bad_rows_are_listed(pages, results):
    text, result = pages["table"], results["table"]
    assert "<b>low" not in text and "&lt;b&gt;low" in text
    one = result["examples"]["most"][0]
    bars = rows_of(text, "examples")
    assert set(bars) == set(one["why"]["labels"])
    for label, cells in bars.items():
        at = one["why"]["labels"].index(label)
        assert [float(value) for value, _ in cells] == [values[at] for values in one["why"]["parts"].values()]
    bad = rows_of(text, "data")
    assert list(bad) == ["table.csv[7]"] and bad["table.csv[7]"][0][0] == "7"
    for sentence in ("That takes labels", "That takes a second set", "With labels a rule", "Not looked at: It was not"):
        assert sentence in text


def test_another_dictionary_is_refused():
    with pytest.raises(InputError, match=r"expected what nescio.study.reporting.gather gives"):
        model_page({"format": "other"})


def test_overlays_have_the_colours_of_the_plots():
    def pixels(uri):
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))).convert("RGB"))

    grey = np.full((4, 4), 0.5)
    level = np.zeros((4, 4))
    level[0, 3], level[1, 1] = 2.0, -1.0
    drawn, top = overlays({"total": level, "none": np.zeros((4, 4))}, grey)
    pale = round(255 * (1 - plots.maps.__globals__["PALE"] * 0.5))
    assert top == "2 nats in a pixel" and (pixels(drawn["none"]) == pale).all()
    assert pixels(drawn["total"])[0, 3].tolist() == [int("6b1d00"[at : at + 2], 16) for at in (0, 2, 4)]
    assert pixels(drawn["total"])[1, 1, 2] > pixels(drawn["total"])[1, 1, 0]  # blue below zero
    assert where(np.abs(level)) == "the upper right has 67 % of it"
    large = np.zeros((100, 90))
    large[99, 89] = large[98, 88] = 1.0
    drawn, top = overlays({"total": large}, np.ones((100, 90)))
    shown = pixels(drawn["total"])
    assert top == "2 nats in a square of 4 × 4 pixels" and shown.shape == (100, 90, 3)
    assert shown[99, 89, 2] < 60 and (shown[:80] > 250).all()  # dark in the corner, white elsewhere
    many = np.arange(9000.0).reshape(100, 90)
    many[50, 50] = 1e9  # one square that stands out does not hide the others
    drawn, top = overlays({"total": many}, np.ones((100, 90)))
    assert "nats or more in a square of 4 × 4 pixels" in top and pixels(drawn["total"])[90, 10, 2] < 100
    colour = np.random.default_rng(0).random((8, 8, 3))
    assert np.abs(pixels(image(colour)) / 255 - colour).max() < 0.003
    assert image(np.zeros((100, 100, 3))).startswith("data:image/jpeg")


def test_chances_never_say_more_than_is_so():
    assert [chance(p) for p in (1.0, 0.99999, 0.5, 1e-9, 0.0)] == [
        *("100.0 %", "over 99.9 %", "50.0 %", "under 0.1 %", "0.0 %")
    ]
    assert 'data-value="&lt;"' in table([("a", "ascending")], [("x", [Cell("<", "<")])], "c")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("name", ["digits", "table"])
def test_on_a_phone_the_page_does_not_scroll_sideways(pages, name, tmp_path):
    """In a frame of 400 pixels, since a browser's window cannot be that narrow everywhere."""
    ask = "<script>const root = document.documentElement; "
    ask += 'parent.postMessage([root.scrollWidth, root.clientWidth, innerWidth], "*")</script>'
    (tmp_path / "page.html").write_text(pages[name].replace("</body>", ask + "</body>"), encoding="utf-8")
    frame = '<body><iframe src="page.html" style="width: 400px; height: 800px; border: 0"></iframe><script>'
    frame += 'onmessage = (told) => { document.body.dataset.told = told.data.join(" ") }</script></body>'
    (tmp_path / "frame.html").write_text(frame, encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    done = subprocess.run([*command, f"file://{tmp_path}/frame.html"], capture_output=True, text=True, timeout=120)
    told = re.search(r'data-told="(\d+) (\d+) (\d+)"', done.stdout)
    assert told is not None, done.stderr[-500:]
    assert told[1] == told[2] and told[3] == "400"
