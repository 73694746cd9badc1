"""The page in a real browser, on a real server: clicks, files, policies; light, dark, wide and on a phone; offline."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from nescio.app import Backend, Settings, application
from nescio.app.page import own_folder
from nescio.serve.server import address, listening, server
from tests.app.browser import Browser, found

pytestmark = [
    pytest.mark.skipif(found() is None, reason="no Chromium here: install one, or name it in NESCIO_CHROMIUM"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Gradio's use of the newest pandas
]


@pytest.fixture(scope="module")
def url(backend: Backend) -> Iterator[str]:
    settings = Settings(port=0)
    with own_folder(), listening(settings) as place:
        running = server(application(backend, settings), settings)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [place]})
        thread.start()
        yield address(place)
        running.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def browser(url: str) -> Iterator[Browser]:
    program = found()
    assert program is not None
    opened = Browser(program)
    try:
        opened.resize(1280, 900)
        opened.open(url)
        opened.until("document.querySelectorAll('#examples button').length === 2", 60)
        yield opened
    finally:
        opened.close()


def text(browser: Browser, selector: str) -> str:
    return str(browser.eval(f"document.querySelector({selector!r})?.innerText ?? ''"))


def choose(browser: Browser, name: str, option: str) -> None:
    browser.until(f"document.querySelector('#{name} input')")
    browser.eval(f"document.querySelector('#{name} input').focus()")
    browser.until(f"[...document.querySelectorAll('#{name} [role=option]')].length > 0")
    browser.eval(
        f"[...document.querySelectorAll('#{name} [role=option]')].find(one => one.innerText.includes({option!r}))"
        ".dispatchEvent(new MouseEvent('mousedown', {bubbles: true}))"
    )


def test_an_example_is_clicked(browser: Browser, backend: Backend) -> None:
    assert browser.eval("document.title") == "nescio"
    browser.until("document.querySelector('#verdict [data-state=fine]')", 60)  # the first is chosen when the page opens
    assert browser.eval("document.querySelectorAll('#examples button')[0].getAttribute('aria-pressed')") == "true"
    browser.eval("document.querySelectorAll('#examples button')[1].click()")
    browser.until("document.querySelector('#verdict [data-state=foreign]')", 60)
    browser.until("document.querySelectorAll('#maps img').length === 3", 60)
    *_, seen = backend.of_example(1)
    assert seen.verdict is not None
    assert seen.answers[0].name in text(browser, "#verdict .answer")
    assert text(browser, "#verdict .words") == seen.verdict.words()[0]
    assert browser.eval("document.querySelectorAll('#verdict .reasons li').length") == 3
    assert browser.eval("document.querySelectorAll('#doubts svg').length") == 3
    assert seen.doubts[0].words in str(browser.eval("document.querySelector('#doubts').textContent"))
    assert browser.eval("document.querySelectorAll('#methods tbody tr').length") == 5
    assert browser.eval("document.querySelectorAll('#examples button')[1].getAttribute('aria-pressed')") == "true"
    # Names of classes are text, and no template of the page's own language either.
    assert browser.eval("document.querySelectorAll('#verdict .name b').length") == 0
    names = browser.eval("[...document.querySelectorAll('#verdict .told .name')].map(one => one.innerText).join('|')")
    assert [one.name for one in seen.answers[:5]] == names.split("|")


def test_another_policy_decides_anew(browser: Browser) -> None:
    browser.eval("document.querySelector('#settings button').click()")
    assert browser.eval("document.querySelector('#verdict .ruling')") is None
    choose(browser, "policy", "a set of answers, right for 99 %")
    browser.until("document.querySelector('#verdict .ruling')?.innerText.includes('set of answers')")
    choose(browser, "policy", "at most 5 %")
    browser.until("document.querySelector('#verdict .card').innerText.includes('score: regrad')")
    choose(browser, "by", "energy")
    browser.until("document.querySelector('#verdict .card').innerText.includes('score: energy')")


def test_a_picture_is_given_and_what_is_none_is_refused(browser: Browser, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    Image.new("RGB", (20, 20), (250, 240, 10)).save(good)
    bad.write_text("this is no picture")
    browser.until("document.querySelector('#given input[type=file]')")
    browser.give("#given input[type=file]", good)
    browser.until("document.querySelector('#verdict .seen img') && !document.querySelector('#maps .waiting')", 60)
    browser.until("document.querySelector('#given img')")
    browser.eval("document.querySelector('#given [aria-label=\"Remove Image\"]').click()")
    browser.until("document.querySelector('#verdict .welcome')")
    browser.until("document.querySelector('#given input[type=file]')")
    browser.give("#given input[type=file]", bad)
    browser.until("document.querySelector('#verdict [role=alert]')")
    assert "expected a picture (PNG, JPEG" in text(browser, "#verdict")
    assert text(browser, "#maps") == ""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_and_follows_light_and_dark(browser: Browser, width: int, dark: bool) -> None:
    browser.eval("document.querySelectorAll('#examples button')[0].click()")
    browser.until("document.querySelectorAll('#maps img').length === 3", 60)
    browser.resize(width, 800, dark)
    browser.until(f"window.innerWidth === {width} && document.body.classList.contains('dark') === {str(dark).lower()}")
    assert browser.eval("document.documentElement.scrollWidth") <= width
    wide = browser.eval("[...document.querySelectorAll('.card')].map(one => one.scrollWidth - one.clientWidth)")
    assert max(wide) <= 1
    colours = browser.eval(
        "(() => { const card = document.querySelector('#verdict .card'), style = getComputedStyle(card);"
        "return [style.backgroundColor, getComputedStyle(card.querySelector('.words')).color] })()"
    )
    shades = [sum(map(int, colour[4:-1].split(","))) / 3 for colour in colours]
    assert (shades[0] < 60 < 200 < shades[1]) if dark else (shades[1] < 60 < 200 < shades[0])


def test_on_a_telephone_the_result_is_on_the_first_screen(browser: Browser) -> None:
    browser.resize(390, 844)
    browser.until("window.innerWidth === 390")
    browser.open(browser.eval("location.href"))  # as somebody sees it who has just come
    browser.until("document.querySelector('#verdict .answer')", 60)
    browser.until("window.innerWidth === 390 && document.querySelectorAll('#maps img').length === 3", 60)
    tops = browser.eval(
        "['#examples', '#given', '#verdict', '#maps', '#doubts', '#methods', '#settings']"
        ".map(one => document.querySelector(one).getBoundingClientRect().top + window.scrollY)"
    )
    assert tops == sorted(tops)  # what is given, the result, and the settings at the very end
    bottom = "document.querySelector('#verdict .answer').getBoundingClientRect().bottom"
    assert browser.eval(f"{bottom} + window.scrollY") <= 844


def test_nothing_was_asked_of_anybody_else(browser: Browser, url: str) -> None:
    assert len(browser.requests) > 20
    assert [one for one in browser.requests if not one.startswith((url, "data:", "blob:"))] == []
    assert [one for one in browser.console if "error" in one] == []
