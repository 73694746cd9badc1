"""The page of a model has every number of its result, words for every figure, and asks for nothing from outside."""

import copy
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

import nescio
from nescio import posteriors
from nescio._common.formatting import number, percentage
from nescio.data.sources import open_data
from nescio.findings import gather
from nescio.limits.reported import reported
from nescio.report.answer import _whole_percent
from nescio.report.model_page import model_page
from nescio.types import InputError
from tests.report.reported import opened, write
from tests.report.test_comparison_page import Reader

HOSTILE = "'\"><script>"
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
        source, rows = opened("digits", "mixed.npz")
        with pytest.warns(UserWarning, match="the reference has 120 different inputs"):
            guard = nescio.Guard(source.model).fit(open_data("reference.npz"))
        few = {
            "methods": [nescio.scores.get("gen")],
            "examples": 0,
            "guard": guard,
            "again": "nescio check --data <new>",
        }
        judged = gather(source, rows, **few)
        source, rows = opened("table", "table.csv", label=None, x=["age", "pay", "name height"])
        tabular = gather(source, rows, examples=1, again="nescio report --reference FOLDER")
        tabular["model"]["about"] += f" of hf:{'longname' * 12}"
        members = [source.model, opened("table", "table.csv")[0].model]
        ensemble = gather(replace(source, model=posteriors.DeepEnsemble(members)), rows, examples=1)
    sys.modules.pop("reported_models", None)
    return {"digits": digits, "judged": judged, "table": tabular, "ensemble": ensemble}


@pytest.fixture(scope="module")
def pages(results):
    return {name: model_page(result) for name, result in results.items()}


def rows_of(text, section, nth=0):
    """The rows of a sortable table of a section: {name: [(value, shown)]}."""
    part = text[text.index(f'<h2 id="{section}">') :]
    inner = part.split('<table class="sortable">')[nth + 1].split("</table>")[0]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', inner, re.DOTALL)
    return {name: re.findall(r'data-value="([^"]*)"[^>]*>([^<]*)</td>', cells) for name, cells in rows}


@pytest.mark.parametrize("name", ["digits", "judged", "table", "ensemble"])
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
    found = rows_of(text, "other")
    assert list(found) == list(result["foreign"]["separation"])
    for name, cells in found.items():
        own = result["foreign"]["separation"][name]
        assert [float(value) for value, _ in cells] == [own["auroc"], own["aupr"], own["fpr95"]]
        low, high = own["auroc_interval"]
        assert cells[0][1] == f"{percentage(own['auroc'])} ({percentage(low)}–{percentage(high)})"
    classes = rows_of(text, "doubt")
    assert len(classes) == len(result["by_class"])
    for row in result["by_class"]:
        cells = classes[row["class"]]
        assert [float(value) for value, _ in cells[:3]] == [row[key] for key in ("inputs", "probability", "median")]
        assert cells[3][1] == f"{row['right']} of {row['labelled']}"
    for name, cells in rows_of(text, "selective").items():
        own = result["selective"][name]
        assert [float(value) for value, _ in cells] == [own["aurc"], own["eaurc"], own["raulc"]]
    sets = rows_of(text, "calibration")
    assert [float(value) for value, _ in sets["all"]] == [
        result["calibration"]["all"][key]
        for key in ("n", "mean_accuracy", "mean_confidence", "ece", "ece_by_chance", "mce", "nll", "brier")
    ]
    assert len(sets) == 3 and f"<b>{result['calibration']['temperature']:.2g}</b>" in text
    layers = rows_of(text, "model")
    assert sum(int(cells[2][0]) for cells in layers.values()) == result["model"]["parameters"] == 1490


def test_the_page_begins_with_the_answer(pages, results):
    text, front = pages["judged"], results["judged"]["answer"]
    body = text[text.index("<body>") :]
    order = [
        "<h1>" + front["headline"],
        '<ul class="legend">',
        '<ul class="tiles">',
        '<h2 id="foreign">Do not trust these',
        '<h2 id="do">What to do',
        "<pre>nescio check --data &lt;new&gt;</pre>",
        '<h2 id="details">',
        '<h2 id="doubt">',
        "<svg",
    ]
    places = [body.index(one) for one in order]
    assert places == sorted(places)
    tiles = body[body.index('<ul class="tiles">') : body.index("</ul>", body.index('<ul class="tiles">'))]
    states = re.findall(r'<li class="(\w+)"', tiles)
    assert states == [one["state"] for one in front["strip"]] and len(states) == 16
    assert {state: states.count(state) for state in front["counts"]} == front["counts"]
    for one in front["strip"]:  # how sure the model is of each answer, and what is known to be wrong
        sure = _whole_percent(one["probability"]).replace(" ", "\u00a0")  # never with the sign on a line of its own
        assert f"“{one['class']}” {sure}</small>" in tiles
    assert tiles.count('<small class="wrong">it is “') == sum(one["truth"] is not None for one in front["strip"])
    assert tiles.count("×2") == 1  # the copy is counted, not shown
    for one in front["cards"]["foreign"]:
        assert one["words"] in body and one["rarity"] in body
    assert body.count('<article class="verdict foreign">') == front["counts"]["foreign"]


def test_without_a_reference_the_page_ranks_and_shows_how_to_give_one(pages):
    text = pages["table"][pages["table"].index("<body>") :]
    assert "<h1>From these 39 rows alone nobody can say which ones the model does not know.</h1>" in text
    assert "<pre>nescio report --reference FOLDER</pre>" in text and '<ul class="tiles lines">' in text
    words = " ".join(Reader(re.sub("<style>.*?</style>", "", pages["table"], flags=re.DOTALL)).words)
    assert re.findall(r"\b(?:accepted|known|safe|fine|trust)\b", words) == []
    assert re.findall(r'<li class="ranked"><span>(\d+)\.', text)[:3] == ["1", "2", "3"]


def test_inputs_beyond_the_cards_are_listed(results):
    result = copy.deepcopy(results["judged"])
    cards = result["answer"]["cards"]["foreign"]
    moved = {key: value for key, value in cards.pop().items() if key != "picture"}
    result["answer"]["listed"]["foreign"] = [moved]
    text = model_page(result)
    found = rows_of(text, "foreign")
    assert [value for value, _ in found[moved["name"]]][1] == repr(moved["p_value"]) and "1 more</summary>" in text


def test_cards_have_pictures_and_maps(pages, results):
    text = pages["digits"]
    part = text[text.index('<h2 id="examples">') : text.index('<h2 id="doubt">')]
    every = [one for own in results["digits"]["examples"].values() for one in own]
    assert part.count('<article class="card">') == len(every) == 4
    assert part.count("<img ") == 2 * len(every)
    for one in every:
        assert f"higher than {one['below']} of\n60 inputs" in part or one in results["digits"]["examples"]["foreign"]
        assert f"Where the total doubt of {one['name']} comes from" in part
    assert "Least doubtful of the other set" in part


def test_kinds_of_doubt_are_on_the_page_only_where_something_tells_them_apart(pages, results):
    for name in ("digits", "judged", "table"):
        assert "epistemic" not in pages[name] and "aleatoric" not in pages[name]
    one = results["ensemble"]["examples"]["most"][0]
    assert f"{number(one['total'])} = aleatoric" in pages["ensemble"] and '<h2 id="kinds">' in pages["ensemble"]


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
    for section in ("calibration", "selective", "other", "limits", "kinds"):  # there is nothing for them
        assert f'id="{section}"' not in text and f'href="#{section}"' not in text


def test_another_dictionary_is_refused():
    with pytest.raises(InputError, match=r"expected what nescio.findings.gather gives"):
        model_page({"format": "other"})


def hostile(value, scores, key=""):
    """The same result, with markup behind every text that is a user's and behind the names of scores."""
    if isinstance(value, dict):
        return {name + HOSTILE * (name in scores): hostile(one, scores, name) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [hostile(one, scores, key) for one in value]
    return value + HOSTILE if isinstance(value, str) and key not in ("format", "state", "form") else value


@pytest.mark.parametrize("name", ["digits", "judged", "table", "ensemble"])
def test_no_text_becomes_markup(pages, results, name):
    text = model_page(hostile(results[name], results[name]["scores"]))
    assert text.count("<script>") == 1 and text.count("&lt;script&gt;") > 20
    changed, usual = ({(tag, key) for tag, own in Reader(one).tags for key in own} for one in (text, pages[name]))
    assert changed <= usual | {("p", "class")}  # no new element, no new attribute; an empty note is not shown


@pytest.fixture(scope="module")
def dump(pages, tmp_path_factory):
    """All pages in a browser, in frames of 400 pixels, since its window cannot be that narrow everywhere.

    Each page says how wide it is, how wide it may be, and how wide its frame is.
    """
    folder = tmp_path_factory.mktemp("phone")
    frames = ""
    for name, text in pages.items():
        ask = "<script>const root = document.documentElement; "
        ask += f'parent.postMessage(["{name}", root.scrollWidth, root.clientWidth, innerWidth], "*")</script>'
        (folder / f"{name}.html").write_text(text.replace("</body>", ask + "</body>"), encoding="utf-8")
        frames += f'<iframe src="{name}.html" style="width: 400px; height: 800px; border: 0"></iframe>'
    script = "onmessage = ({data: [name, ...told]}) => { document.body.dataset[name] = told.join(' ') }"
    (folder / "frames.html").write_text(f"<body><script>{script}</script>{frames}</body>", encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    return subprocess.run([*command, f"file://{folder}/frames.html"], capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("name", ["digits", "judged", "table", "ensemble"])
def test_on_a_phone_the_page_does_not_scroll_sideways(dump, name):
    told = re.search(rf'data-{name}="(\d+) (\d+) (\d+)"', dump.stdout)
    assert told is not None, dump.stderr[-500:]
    assert told[1] == told[2] and told[3] == "400"


def test_a_probability_on_a_tile_calls_nothing_certain_that_is_not():
    assert [_whole_percent(p) for p in (0.0, 0.004, 0.516, 0.991, 0.9999, 1.0)] == [
        "under 1 %", "under 1 %", "52 %", "over 99 %", "over 99 %", "100 %",
    ]  # fmt: skip
