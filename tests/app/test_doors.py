"""The page on a real server, as somebody asks it who means no good."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from nescio._common.lazy_imports import need
from nescio.app import Backend, Settings, application, doors
from nescio.app.doors import Sealed, make_room, uploaded
from nescio.app.page import own_folder
from nescio.serve.server import address, listening, server

API = "/gradio_api"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Gradio's use of the newest pandas


@pytest.fixture(scope="module")
def sealed(backend: Backend) -> Iterator[Sealed]:
    with own_folder():
        yield application(backend, Settings(port=0))


@pytest.fixture(scope="module")
def client(sealed: Sealed) -> Iterator[httpx.Client]:
    settings = Settings(port=0, grace=0.5)
    with listening(settings) as place:
        running = server(sealed, settings)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [place]})
        thread.start()
        while not running.started:
            assert thread.is_alive()
            time.sleep(0.01)
        with httpx.Client(base_url=address(place), timeout=20) as client:
            yield client
        running.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def given(client: httpx.Client, tmp_path_factory) -> str:
    """Where a picture lies that was uploaded."""
    file = tmp_path_factory.mktemp("given") / "x.png"
    Image.new("L", (8, 8), 200).save(file)
    found = client.post(f"{API}/upload", files={"files": ("x.png", file.read_bytes())})
    assert found.status_code == 200
    return str(found.json()[0])


def called(client: httpx.Client, path: Any, where: int = 0) -> httpx.Response:
    """A call of the page with a file of that path in one of its places."""
    config = client.get("/config").json()
    event = next(one for one in config["dependencies"] if len(one["inputs"]) == 3)
    data: list[Any] = [None, None, None]
    data[where] = {"path": path, "meta": {"_type": "gradio.FileData"}}
    return client.post(
        f"{API}/queue/join", json={"data": data, "fn_index": event["id"], "session_hash": "s", "event_data": None}
    )


def copies(sealed: Sealed) -> set[str]:
    return {str(path) for path in sealed.folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("where", [0, 1])
def test_only_what_was_given_is_read(client, sealed, given, tmp_path, where) -> None:
    secret = tmp_path / "secret.png"
    Image.new("L", (8, 8)).save(secret)
    link = sealed.folder / "link.png"
    link.symlink_to(secret)
    before = copies(sealed)
    inside = str(sealed.folder / ".." / sealed.folder.name / link.name)
    for path in (str(secret), "/etc/passwd", "/dev/zero", str(sealed.folder), inside, "x.png", "", 7, None, ["a"]):
        found = called(client, path, where)
        assert (found.status_code, "expected a file that was given on this page" in found.text) == (403, True), path
    assert copies(sealed) == before
    link.unlink()
    assert called(client, given).status_code == 200


def test_nothing_is_fetched(client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.3)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/x.png"
        assert called(client, url).status_code == 403
        assert client.get(f"{API}/file={url}").status_code == 404
        assert client.get(f"{API}/proxy={url}").status_code == 404
        with pytest.raises(TimeoutError):
            trap.accept()


def test_gradio_itself_refuses_other_files(sealed: Sealed) -> None:
    """The wall behind the door: a mounted app that was not told that it runs would take any path."""
    processing, context = need("gradio.processing_utils", "app"), need("gradio.context", "app").LocalContext
    blocks = next(route.app.get_blocks() for route in sealed.app.routes if hasattr(route.app, "get_blocks"))
    token = context.blocks.set(blocks)
    try:
        with pytest.raises(Exception, match="not uploaded by a user"):
            processing._check_allowed("/etc/passwd", True)
    finally:
        context.blocks.reset(token)


def test_files_that_were_not_given_are_not_shown(client, given, tmp_path) -> None:
    (tmp_path / "x.txt").write_text("secret")
    for path in (tmp_path / "x.txt", "/etc/passwd", "pyproject.toml", f"{given}/../../../x"):
        found = client.get(f"{API}/file={path}")
        assert (found.status_code, "secret" in found.text) == (404, False)
    assert client.get(f"{API}/file={given}").headers["content-type"] == "image/png"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{API}/run/predict"),
        ("POST", f"{API}/run/given"),
        ("POST", f"{API}/api/given"),
        ("POST", f"{API}/call/given"),
        ("POST", f"{API}/call/v2/given"),
        ("POST", f"{API}/stream/x"),
        ("POST", f"{API}/component_server"),
        ("POST", f"{API}/process_recording"),
        ("POST", f"{API}/vibe-edit"),
        ("GET", f"{API}/vibe-code"),
        ("GET", f"{API}/custom_component/1/client/component/x.js"),
        ("GET", "/monitoring"),
        ("GET", f"{API}/openapi.json"),
        ("GET", "/docs"),
        ("PUT", f"{API}/upload"),
        ("DELETE", "/"),
    ],
)
def test_what_the_page_does_not_need_is_not_there(client, method, path) -> None:
    found = client.request(method, path, json={"data": []} if method == "POST" else None)
    assert (found.status_code, "expected what the page needs" in found.text) == (404, True)


@pytest.mark.parametrize(
    "path", ["/assets/../../../../etc/passwd", "/static/..%2f..%2f..%2fREADME.md", "/svelte//etc/passwd"]
)
def test_static_files_lead_nowhere_else(client, path) -> None:
    found = client.get(httpx.URL(str(client.base_url) + path))
    assert (found.status_code >= 400, "root:" in found.text) == (True, False)


def test_pages_of_other_sites_cannot_give_or_call(client) -> None:
    evil = {"origin": "https://evil.example"}
    for found in (
        client.post(f"{API}/upload", files={"files": ("x.png", b"x")}, headers=evil),
        client.post(f"{API}/queue/join", json={}, headers=evil),
        client.get("/config", headers=evil),
    ):
        assert (found.status_code, "the Origin of another" in found.text) == (403, True)
        assert "access-control-allow-origin" not in found.headers
    own = {"origin": str(client.base_url).rstrip("/")}
    assert client.post(f"{API}/upload", files={"files": ("x.png", b"x")}, headers=own).status_code == 200


def test_an_open_page_does_not_hold_an_ending_server(caplog) -> None:
    begun: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
            await asyncio.Event().wait()

    settings = Settings(port=0, grace=0.1)
    with listening(settings) as place:
        running = server(Sealed(inner, settings, Path()), settings)
        running.config.lifespan = "off"
        thread = threading.Thread(target=running.run, kwargs={"sockets": [place]})
        thread.start()
        with httpx.stream("GET", address(place), timeout=10) as page:
            for part in page.iter_bytes():
                begun.append(part)
                running.should_exit = True
        thread.join(10)
    assert begun == [b"a"]
    assert not thread.is_alive()
    assert "Traceback" not in caplog.text


def test_too_much_is_refused(client) -> None:
    found = client.post(f"{API}/upload", files={"files": ("x.png", b"x" * 10_200_000)})
    assert (found.status_code, "expected at most 10100000 bytes" in found.text) == (413, True)
    found = client.post(f"{API}/queue/join", content=iter([b"x" * 150_000] * 2))
    assert (found.status_code, "expected at most 200000 bytes, got more" in found.text) == (413, True)
    for body in (b"{", b"[" * 100_000):
        assert client.post(f"{API}/queue/join", content=body).status_code == 422


def test_uploads_have_a_total(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(doors, "LEAST", 10)
    for at in range(6):
        place = tmp_path / f"{at}"
        place.mkdir()
        (place / "x.png").write_bytes(b"x" * (30 if at < 3 else 1))
        os.utime(place / "x.png", (at, at))
    make_room(tmp_path, 60)  # 30 for each of the first, 10 for each of the others
    assert [path.parent.name for path in sorted(tmp_path.rglob("x.png"))] == ["2", "3", "4", "5"]
    make_room(tmp_path, 60)
    assert len(list(tmp_path.rglob("x.png"))) == 4


def test_room_is_made_before_each_upload(client, sealed, monkeypatch) -> None:
    monkeypatch.setattr(doors, "KEPT_BYTES", doors.MAX_BYTES + 3 * doors.LEAST)
    for at in range(8):
        assert client.post(f"{API}/upload", files={"files": ("x.png", b"%d" % at)}).status_code == 200
    assert len(copies(sealed)) <= 4


def test_what_lies_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_text("x")
    (tmp_path / "b").mkdir()
    assert uploaded(str(tmp_path / "a" / "x.png"), tmp_path / "a")
    assert not uploaded(str(tmp_path / "a" / "x.png"), tmp_path / "b")
    assert not uploaded(str(tmp_path / "a"), tmp_path)
    assert not uploaded("x\0y", tmp_path)
