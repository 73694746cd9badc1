import dataclasses
import re
from html.parser import HTMLParser

import pytest

from nescio._common.formatting import percentage
from nescio.report import page

VOID = {"meta", "link", "img", "br"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and complains when elements are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, wanted):
        return [attrs for tag, attrs in self.tags if tag == wanted]


@pytest.fixture(scope="module")
def text(comparison):
    return page(comparison)


def test_it_is_one_well_formed_page_that_asks_for_nothing(text):
    read = Reader(text)
    assert text.startswith("<!doctype html>")
    assert "default-src 'none'" in text
    assert read.all("html") == [{"lang": "en"}]
    assert any(meta.get("name") == "viewport" for meta in read.all("meta"))
    for tag, attrs in read.tags:
        assert tag not in {"iframe", "object", "embed", "base"}
        for name in ("src", "href", "xlink:href", "action", "data"):
            if name in attrs:
                assert attrs[name].startswith(("data:", "#")), (tag, attrs[name])
    style = text[text.index("<style>") : text.index("</style>")]
    assert "@import" not in style
    assert "url(" not in style
    assert "prefers-color-scheme: dark" in style
    named = {url for url in re.findall(r"https?://[^\s\"'<]+", text)}
    assert named <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}  # names of XML, never fetched


def test_every_method_is_in_the_table_with_its_numbers_also_the_one_that_loses(text, comparison):
    table = text[text.index("<table") : text.index("</table>")]
    rows = re.findall(r'<tr[^>]*><th scope="row">(\w+)</th>(.*?)</tr>', table)
    assert [name for name, _ in rows] == ["entropy", "regrad", "wrong"]
    for (_, cells), method in zip(rows, comparison.ranked, strict=True):
        result = method.result
        shares = [result.auroc, result.aupr, result.fpr95, *(method.result_of(kind).auroc for kind in method.foreign)]
        values = [float(value) for value in re.findall(r'data-value="([^"]+)"', cells)]
        assert values == [*shares, method.seconds_per_input]
        assert re.findall(r">([\d.]+)</td>", cells) == [percentage(share) for share in shares]
    assert text.count("<button") == 1 + 3 + 2 + 1
    assert '<th scope="col" data-first="descending" aria-sort="descending"><button type="button">AUROC</button>' in text


def test_curves_histogram_and_pictures_have_words(text, comparison):
    read = Reader(text)
    labels = [attrs["aria-label"] for attrs in read.all("svg")]
    assert len(labels) == len(comparison.methods) + 1
    assert labels[0].startswith("ROC curve of entropy, area ")
    assert labels[-1].startswith("Histogram of regrad for each set. Medians: held-out digits ")
    alts = [attrs["alt"] for attrs in read.all("img")]
    assert alts[:3] == ["a foreign one: foreign, taken for 3", "a fine one: fine, taken for 3", "a foreign one"]
    del alts[:3]  # the first screen
    assert len(alts) == 4 * 8
    assert all(
        re.fullmatch(r"(handwritten \d|patches|letters), taken for \d with probability \d+ %", alt) for alt in alts
    )
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_the_most_and_least_doubtful_are_those_by_score(text, comparison):
    strips = re.findall(r"<h3>(\w+) doubtful: ([^<]+)</h3><ul[^>]*>(.*?)</ul>", text)
    assert [(word, title) for word, title, _ in strips] == [
        ("Most", "held-out digits"),
        ("Least", "held-out digits"),
        ("Most", "things that are not digits"),
        ("Least", "things that are not digits"),
    ]
    scores = sorted(comparison.methods[0].known)
    shown = [
        [float(value.replace("−", "-")) for value in re.findall(r"<br>([^<]+)</li>", items)] for *_, items in strips
    ]
    assert shown[0] == pytest.approx(scores[::-1][:8], rel=5e-3)
    assert shown[1] == pytest.approx(scores[:8], rel=5e-3)
    assert min(shown[2]) > max(shown[3])


def test_a_digit_read_wrongly_says_what_it_is(comparison):
    known = comparison.known
    method = dataclasses.replace(comparison.methods[0], known=(known.predicted != known.labels).astype(float))
    text = page(dataclasses.replace(comparison, methods=(method, *comparison.methods[1:])))
    assert text.count('<span class="wrong">is a 7</span>') == 1
    assert '<span class="wrong">is a None' not in text


def test_what_is_needed_to_read_and_repeat_it_is_there(text, comparison):
    words = " ".join(Reader(text).words)
    for expected in (
        "what held-out digits are.",
        "what patches are.",
        "nescio demo --seed 0",
        "torch 0",
        "shift=0.4",
        "The entropy of it.",
        "95.0 %",
        "AUROC",
        "FPR95",
    ):
        assert expected in words
    assert "round-off" not in words  # a note on a method that is not in the table would only puzzle


@pytest.mark.parametrize(("name", "words"), [("negrad", "round-off"), ("gradnorm", "sign is turned round")])
def test_methods_that_need_a_word_of_care_get_it(comparison, name, words):
    odd = dataclasses.replace(comparison.methods[2], name=name)
    assert words in page(dataclasses.replace(comparison, methods=(*comparison.methods[:2], odd)))


def test_no_text_becomes_markup(comparison, text):
    hostile = """'"><script>alert("x")</script> & more"""
    method = dataclasses.replace(comparison.methods[0], name=hostile, summary=hostile, settings={hostile: hostile})
    known = dataclasses.replace(comparison.known, name=hostile, about=hostile)
    changed = dataclasses.replace(
        comparison, known=known, methods=(method, *comparison.methods[1:]), facts={hostile: hostile}, featured=hostile
    )
    page_of_it = page(changed)
    Reader(page_of_it)
    assert page_of_it.count("<script>") == 1 and "&lt;/script&gt; &amp; more" in page_of_it


def test_pictures_come_first_and_the_table_after(text):
    order = ["<h1>Do not trust", '<ul class="tiles">', "In the whole test it is so.", "Do not trust these</h2>"]
    order += ["It is odd.", "What to do</h2>", "<pre>nescio report</pre>", "All methods side by side", "AUROC"]
    places = [text.index(one) for one in order]
    assert places == sorted(places)


def test_numbers_follow_the_scores(comparison):
    better = dataclasses.replace(comparison.methods[0], known=comparison.methods[0].known - 10)
    changed = page(dataclasses.replace(comparison, methods=(better, *comparison.methods[1:])))
    assert "best separation was that of <code>regrad</code>,\nwith an AUROC of 100.0 %" in changed
    assert "best separation was that of <code>entropy</code>" in page(comparison)
