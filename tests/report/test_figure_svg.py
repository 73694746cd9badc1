import re
import xml.etree.ElementTree as ElementTree

from matplotlib.figure import Figure

from nescio import plots
from nescio.plots.style import ACCENT, FAINT, INK
from nescio.report.figure_svg import svg


def drawn(name="one"):
    return svg(plots.histogram({"a": [1.0, 2.0, 3.0], "b": [2.0]}), 'from "low" to <high>', name)


def test_svg_is_well_formed_and_has_words_for_those_who_cannot_see_it():
    root = ElementTree.fromstring(drawn())
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'from "low" to <high>'
    assert root[0].tag.endswith("title")
    assert root[0].text == 'from "low" to <high>'
    assert root.get("width") is None  # the page decides
    assert root.get("viewBox")


def test_svg_takes_the_colours_and_the_font_of_the_page():
    text = drawn()
    for colour in (INK, FAINT, ACCENT):
        assert colour not in text.lower()
    assert "currentColor" in text
    assert "var(--accent)" in text
    assert "DejaVu" not in text
    assert re.search(r"<text[^>]*font-size: [\d.]+px", text)
    assert "<style" not in text  # it would reach the whole page


def test_ids_of_two_figures_never_meet_and_every_reference_is_answered():
    texts = drawn("one"), drawn("two")
    ids = [set(re.findall(r'id="([^"]+)"', text)) for text in texts]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own in zip(texts, ids, strict=True):
        wanted = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text))
        assert wanted
        assert {a or b for a, b in wanted} <= own


def test_the_same_figure_gives_the_same_text():
    assert drawn() == drawn()


def test_places_are_rounded_and_written_numbers_are_not():
    figure = Figure()
    figure.add_subplot().text(0.123456, 0.5, "0.0625 of 3.14159")
    text = svg(figure, "two numbers", "n")
    assert "0.0625 of 3.14159" in text
    assert not re.search(r"<[^>]*\d\.\d{3,}", text)
