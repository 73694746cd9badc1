"""The HTML of the page: nothing of others is taken for markup, and no number says more than is so."""

import re
from dataclasses import replace

import numpy as np
import pytest

from nescio.app import Backend, cards
from nescio.app.opinion import Answer, Maps, Opinion, Ruling

HOSTILE = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def found(backend: Backend) -> Opinion:
    return list(backend.of_example(1))[-1]


def test_what_others_wrote_is_text(backend: Backend, found: Opinion) -> None:
    evil = replace(found, answers=tuple(replace(one, name=HOSTILE) for one in found.answers))
    assert found.maps is not None
    named = replace(found.maps, parts={"total": np.ones(2)}, uncertainty={"total": 1.0}, names=(HOSTILE, "b"))
    every = [
        cards.verdict_card(evil, None, None),
        cards.verdict_card(evil, 0.05, Ruling(HOSTILE, False, HOSTILE, evil.answers[:2])),
        cards.maps_card(named, found),
        cards.maps_card(replace(named, missing=HOSTILE), found),
        cards.message_card(HOSTILE),
        cards.welcome_card(HOSTILE, HOSTILE),
        cards.examples_card(
            [replace(backend.examples[0], name=HOSTILE), replace(backend.examples[0], picture=None, text=HOSTILE)]
        ),
    ]
    for html in every:
        assert "onerror=&#34;alert(1)&#34;" in html
        assert HOSTILE not in html
        assert "http" not in html


def test_the_cards_show_what_the_opinion_says(backend: Backend, found: Opinion) -> None:
    assert found.verdict is not None
    card = cards.verdict_card(found, 0.05, None)
    assert 'data-state="foreign"' in card
    places = [card.index(part) for part in ("Foreign: do not trust", "The model answers", "Reasons:")]
    assert places == sorted(places)
    assert found.verdict.words()[0] in card
    assert "None of the 200 known pictures that it was compared with looks this unusual." in card
    assert "wrong one" not in card  # of a foreign input nobody knows
    assert card.count("<li>") == 5
    assert "the likeliest of 10 classes" in card
    assert len(re.findall(r'<li class="(?:odd|usual)">', card)) == 3
    assert f"further out than {int(found.verdict.beyond['doubt'])} of 200" in card
    doubts = cards.doubt_card(found, backend.scale)
    assert doubts.count("<svg") == 3
    assert 'aria-label="epistemic: more unfamiliar than' in doubts
    assert "more doubtful than" in doubts
    table = cards.methods_card(found)
    assert len(re.findall(r'<th scope="row"', table)) == 5
    flags = sum(one.flagged for one in found.methods)
    assert f"{flags} of 5 methods" in table
    assert table.count("⚑") == flags
    maps = cards.maps_card(found.maps, found)
    assert maps.count("data:image/png;base64,") == 3
    assert maps.count("alt=") == 3
    assert "being made" in cards.maps_card(None, found)


def test_a_known_input_is_fine_and_says_how_often_such_answers_are_wrong(backend: Backend) -> None:
    known = next(backend.of_example(0))
    card = cards.verdict_card(known, 0.05, None)
    assert 'data-state="fine"' in card
    assert "It looks like the reference." in card
    assert re.search(r"\d of 100 known pictures look at least this unusual|About 1 in \d+ known pictures looks", card)
    assert re.search(
        r"known pictures with an answer as doubtful as this one,\s[\d.]+\s% got a wrong one \(90\s% int", card
    )


@pytest.mark.parametrize("state", ["fine", "foreign"])
def test_without_a_guard_nothing_is_accepted_and_it_is_said_how_to_give_one(found: Opinion, state: str) -> None:
    card = cards.verdict_card(replace(found, verdict=None), None, None)
    assert 'data-state="none"' in card
    assert "No reference was given" in card
    assert "nescio app … --reference FOLDER" in card
    assert cards.STATES[state][0] not in card  # no tick
    assert cards.STATES[state][1] not in card
    assert not re.search(r"accept|known kind|\bsafe\b", card)


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (1 / 201, "None of the 200 known texts that it was compared with looks this unusual."),
        (0.004, "None of the 200 known texts that it was compared with looks this unusual."),
        (0.01, "About 1 in 100 known texts looks this unusual."),
        (0.19, "About 1 in 5 known texts looks this unusual."),
        (0.2, "About 20 of 100 known texts look at least this unusual."),
        (1.0, "About 100 of 100 known texts look at least this unusual."),
    ],
)
def test_p_values_in_words(p: float, text: str) -> None:
    assert cards.rarity(p, 200, "texts") == text


def test_without_a_scale_there_are_no_places(backend: Backend) -> None:
    alone = next(replace(backend, scale=None).of_example(0))
    assert "<svg" not in cards.doubt_card(alone, None)
    assert "more doubtful than" not in cards.methods_card(alone)
    single = replace(alone, doubts=alone.doubts[:1], samples=1)
    assert "Give a distribution over it (<code>--posterior</code>)" in cards.doubt_card(single, None)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("digit 0", "digit 0"),
        ("cats/tabby/IMG_1.jpeg", "IMG_1"),
        ("photos\\a.PNG", "a"),
        ("v1.2", "v1.2"),  # a number is no ending of a file
        (".png", ".png"),
        ("holiday photograph of a lion (final).jpg", "holiday p…on (final)"),
        ("x" * 21, "x" * 9 + "…" + "x" * 10),
        ("x" * 20, "x" * 20),
    ],
)
def test_names_of_files_are_short(name: str, short: str) -> None:
    assert cards.short_name(name) == short


def test_a_file_name_breaks_where_its_words_end_and_is_told_whole(backend: Backend) -> None:
    html = cards.examples_card([replace(backend.examples[0], name="cats/my_cat-2.final.jpg")])
    assert 'title="cats/my_cat-2.final.jpg"' in html
    assert "<span>my_<wbr>cat-<wbr>2.<wbr>final<wbr></span>" in html


def test_every_method_is_told_in_words(backend: Backend, found: Opinion) -> None:
    table = cards.methods_card(found)
    assert "A higher score means more doubt." in table
    for one in found.methods:
        assert one.about
        assert f'{one.name} <span class="about">' in table


def test_many_answers_are_cut_and_counted(found: Opinion) -> None:
    many = tuple(Answer(at, f"c{at}", 0.05) for at in range(20))
    html = cards.verdict_card(found, 0.05, Ruling("x", False, "a rule", many))
    assert "and 10 more" in html


def test_a_map_that_is_no_picture_and_no_list(found: Opinion) -> None:
    maps = Maps({"total": np.ones((2, 2, 2))}, {"total": 1.0}, None, "")
    assert "neither a picture nor a list" in cards.maps_card(maps, found)
