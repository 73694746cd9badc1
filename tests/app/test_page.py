"""The page is built, its functions answer as the page calls them, and its shell lets nothing out."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from nescio._common.lazy_imports import need
from nescio.app import Backend, Settings, page
from nescio.app.backend import Backend as PlainDesk
from nescio.app.doors import OUTSIDE, Sealed
from nescio.app.page import Answers
from nescio.cli import main

CHOSEN = ("5 % of known pictures", "at most 5 % wrong answers", "energy")


def test_the_page_builds(backend: Backend) -> None:
    blocks = page.blocks(backend)
    config = blocks.get_config_file()
    assert config["analytics_enabled"] is False
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    ids = {one["props"].get("elem_id") for one in config["components"]}
    assert {"given", "examples", "level", "policy", "by", "verdict", "maps", "doubts", "methods"} <= ids
    assert all(one["api_visibility"] == "private" for one in config["dependencies"])
    by_id = {one["props"].get("elem_id"): one["props"] for one in config["components"]}
    assert [name for name, _ in by_id["policy"]["choices"]] == backend.policies.names
    assert [name for name, _ in by_id["by"]["choices"]] == ["regrad", "energy", "entropy", "knn", "mutual_information"]
    header = next(one["props"]["value"] for one in config["components"] if "<h1>" in str(one["props"].get("value")))
    assert "a tiny &lt;network&gt;" in header
    assert "A note &amp; more." in header


@pytest.mark.parametrize("kind", ["texts", "numbers"])
def test_the_page_of_texts_and_numbers_builds(backend: Backend, kind: str) -> None:
    config = page.blocks(PlainDesk(backend.engine, kind)).get_config_file()
    types = [one["type"] for one in config["components"]]
    assert "textbox" in types
    assert "image" not in types


def test_a_picture_is_read_by_us_and_not_by_gradio(backend: Backend) -> None:
    box = next(one for one in page.blocks(backend).blocks.values() if getattr(one, "elem_id", None) == "given")
    given = need("gradio.data_classes", "app").ImageData(path="/somewhere/x.png")
    assert box.preprocess(given) == "/somewhere/x.png"  # not opened
    assert box.preprocess(None) is None


def test_a_picture_gives_every_card_twice(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    Image.new("L", (8, 8), 200).save(file)
    first, last = Answers(backend).given(str(file), *CHOSEN)
    assert 'class="card verdict"' in first[1]
    assert "being made" in first[2]
    assert "<img" in last[2]
    assert "Three kinds of doubt" in last[3]
    assert "Methods side by side" in last[4]
    assert last[0].answers[0].name in last[1]


def test_bad_input_is_a_message_and_not_an_error(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    file.write_text("no picture")
    ((found, message, *rest),) = Answers(backend).given(str(file), *CHOSEN)
    assert found is None
    assert 'role="alert"' in message
    assert "expected a picture (PNG, JPEG" in message
    assert rest == ["", "", ""]
    ((_, message, *_),) = Answers(backend).example(99, *CHOSEN)
    assert "expected an example from 0 to 1, got 99" in message


def test_what_is_unforeseen_keeps_the_page_alive(backend: Backend, monkeypatch, capsys) -> None:
    def broken(place: int) -> Iterator[Any]:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr(PlainDesk, "of_example", lambda self, place: broken(place))
    ((_, message, *_),) = Answers(backend).example(0, *CHOSEN)
    assert "Something unforeseen happened (ZeroDivisionError)" in message
    assert "secret" not in message
    assert "secret words" in capsys.readouterr().err


def test_another_policy_changes_the_first_card_alone(backend: Backend) -> None:
    answers = Answers(backend)
    *_, last = answers.example(1, *CHOSEN)
    assert answers.decided(last[0], *CHOSEN) == last[1]
    other = answers.decided(last[0], CHOSEN[0], "a set of answers, right for 99 %", "energy")
    assert "the set of answers" in other.lower()
    assert other != last[1]
    *_, known = answers.first(*CHOSEN)
    assert known[0].picture is not None
    assert 'data-state="fine"' in known[1]
    p = float(known[0].verdict.p_value)
    assert ('data-state="foreign"' in answers.decided(known[0], "20 % of known pictures", *CHOSEN[1:])) == (p <= 0.2)
    assert "How sure is it" in answers.decided(None, *CHOSEN)
    assert "expected one of the policies" in answers.decided(last[0], CHOSEN[0], "nonsense", "energy")
    assert answers.cleared() == [None, *answers.welcome()]
    assert list(answers.given(None, *CHOSEN)) == [answers.cleared()]


def asked(settings: Settings, host: bytes) -> list[Any]:
    sent: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", host)]}
    asyncio.run(Sealed(inner, settings, Path())(scope, None, send))  # type: ignore[arg-type]
    return sent


@pytest.mark.parametrize("host", [b"127.0.0.1:7860", b"localhost", b"[::1]:80", b"LOCALHOST:7860"])
def test_the_browser_is_told_to_ask_nobody_else(host: bytes) -> None:
    (start,) = asked(Settings(), host)
    assert start["status"] == 200
    assert (b"content-security-policy", OUTSIDE.encode()) in start["headers"]
    assert "http" not in OUTSIDE
    assert "*" not in OUTSIDE


@pytest.mark.parametrize("host", [b"evil.example", b"evil.example:7860", b"", b"127.0.0.1.evil.example"])
def test_a_foreign_name_of_this_machine_is_not_answered(host: bytes) -> None:
    start, body = asked(Settings(), host)
    assert start["status"] == 421
    assert b"expected this machine as host" in body["body"]
    assert asked(Settings(host="0.0.0.0"), host)[0]["status"] == 200  # who listens for others is asked by other names


def test_what_people_give_has_a_folder_that_is_deleted(monkeypatch) -> None:
    monkeypatch.delenv("GRADIO_TEMP_DIR", raising=False)
    with page.own_folder():
        folder = Path(os.environ["GRADIO_TEMP_DIR"])
        (folder / "x.png").write_text("x")
    assert not folder.exists()
    assert "GRADIO_TEMP_DIR" not in os.environ


def test_the_command_refuses_what_needs_a_model(capsys) -> None:
    assert main(["app", "--data", "photos"]) == 2
    assert "--data: expected --model with it, got none" in capsys.readouterr().err
    assert main(["app", "--port", "70000"]) == 2
    assert "port: expected a number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.filterwarnings("default:the reference has")
def test_the_command_shows_a_page_over_an_own_model(tmp_path: Path, monkeypatch, capsys) -> None:
    np = need("numpy", "app")
    (tmp_path / "tiny_page_model.py").write_text(
        "import torch\ndef build():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    np.savez(tmp_path / "x.npz", x=torch.randn(40, 3).numpy(), y=np.arange(40) % 2)
    np.savez(tmp_path / "known.npz", x=torch.randn(110, 3).numpy(), y=np.arange(110) % 2)
    shown: list[Any] = []
    monkeypatch.setattr("nescio.app.run", lambda backend, settings: shown.append((backend, settings)))
    arguments = ["app", "--model", "tiny_page_model:build", "--data", str(tmp_path / "x.npz"), "--method", "entropy"]
    assert main([*arguments, "--reference", str(tmp_path / "x.npz")]) == 2
    assert "--reference: expected other inputs than --data, got the same" in capsys.readouterr().err
    assert main([*arguments, "--port", "0"]) == 0
    assert shown.pop()[0].engine.guard is None
    assert "guard: none, so there is no verdict; give --reference" in capsys.readouterr().err
    known = ["--reference", str(tmp_path / "known.npz"), "--known", "25"]
    assert main([*arguments, *known, "--port", "0"]) == 0
    backend, settings = shown[0]
    assert backend.engine.guard.fitted.count == 110
    assert (settings.host, settings.port) == ("127.0.0.1", 0)
    assert backend.kind == "numbers"
    assert len(backend.scale) == 25
    assert backend.scale.labels is not None
    assert list(backend.engine.methods) == ["entropy"]
    assert len(backend.examples) == 12
    assert "guard: a reference of 110 inputs; at most 5 % of inputs like it" in capsys.readouterr().err
