"""What a service bears: too much at once, slow senders and readers, foreign pages, work that nobody waits for."""

import io
import json
import socket
import struct
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
import torch
from PIL import Image

from nescio.attribution import Attribution
from nescio.serve import Engine, Settings, run, schemas
from nescio.serve.bodies import Budget, Share
from nescio.serve.engine import Explained
from nescio.serve.errors import Problem
from nescio.serve.reading import MARKS, check_json
from tests.serve import models
from tests.serve.test_service import refused

ONE = {"numbers": [1.0] * 5}
BODY = {"inputs": [ONE]}
JSON = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


class Explaining(Engine):
    """Makes a map when it may, and counts those that were begun."""

    def __init__(self, source, methods):
        super().__init__(source, methods)
        self.begun, self.may = 0, threading.Semaphore(0)
        zero = torch.zeros(1, dtype=torch.float64)
        attribution = Attribution(torch.zeros(1, 5), zero, zero, "total", "fake", "")
        self.map = Explained(self.assess([torch.ones(5)])[0], attribution)

    def explain(self, row, of=None, method="ua_backprop"):
        self.begun += 1
        assert self.may.acquire(timeout=20)
        return self.map


@pytest.fixture(scope="module")
def engine():
    return Explaining(models.numbers(), ["entropy"])


@pytest.fixture(scope="module")
def client(engine):
    settings = Settings(
        port=0, max_body=3_000_000, max_memory=400_000, idle_timeout=0.4, max_connections=20,
        origins=("https://Friend.example",),
    )  # fmt: skip
    with models.served(engine, settings) as client:
        yield client


def until(true):
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end, "it never was"
        time.sleep(0.01)


@contextmanager
def connected(client, data=b""):
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=5) as place:
        place.sendall(data)
        yield place


def closed(place):
    """Seconds until the other side ends the connection, and what it sent before."""
    start, parts = time.monotonic(), []
    try:
        while part := place.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return time.monotonic() - start, b"".join(parts)


def test_many_objects_are_refused_before_they_are_parsed(client, monkeypatch):
    monkeypatch.setattr(schemas.Body, "model_validate_json", lambda body: pytest.fail("it was parsed"))
    body = b'{"inputs": [' + b",".join([b'{"a":1}'] * 40_000) + b"]}"
    found = client.post("/predict", content=body, headers={"content-type": "application/json"})
    refused(found, 413, "expected at most 100000 lists, objects and texts")


def test_what_json_becomes_is_bounded():
    numbers = json.dumps({"inputs": [{"numbers": [[[0.123456] * 224] * 224] * 3}] * 4}).encode()
    check_json(numbers)  # pictures of the usual size
    for body in (b"[" * (MARKS + 1), b'"' * (MARKS + 1), b"{" * (MARKS + 1), b"," * 2_000_001):
        with pytest.raises(Problem, match="expected at most"):
            check_json(body)


def test_the_first_thing_that_is_wrong_ends_the_reading():
    with pytest.raises(ValueError) as caught:
        schemas.Body.model_validate_json(b'{"inputs": [' + b",".join([b'{"a":1}'] * 50) + b"]}")
    assert caught.value.error_count() < 5


def test_a_text_has_a_length():
    with models.served(Engine(models.texts(), ["entropy"]), Settings(port=0, max_text=20)) as client:
        found = client.post("/predict", json={"inputs": [{"text": "a"}, {"text": "a" * 21}]})
        refused(found, 413, "input 1: expected at most 20 characters, got 21")


def test_requests_share_the_memory(client):
    half = JSON % (350_000, b" " * 300_000)
    with connected(client, half):
        time.sleep(0.1)
        found = client.post("/predict", content=b" " * 150_000, headers={"content-type": "application/json"})
        refused(found, 503, "in all requests together")
        assert found.headers["retry-after"] == "1"
        assert client.post("/predict", json=BODY).status_code == 200
    time.sleep(0.1)
    found = client.post("/predict", content=b" " * 150_000, headers={"content-type": "application/json"})
    assert found.status_code == 422  # what the first one held is free again


def test_what_the_model_takes_is_counted_too(client):
    body = json.dumps({"inputs": [{"numbers": [0] * 90_000}]}, separators=(",", ":")).encode()
    assert len(body) < 200_000
    found = client.post("/predict", content=body, headers={"content-type": "application/json"})
    refused(found, 503, "in all requests together")


def test_a_share_is_given_back_once():
    budget = Budget(10)
    one, other = Share(budget), Share(budget)
    one.take(6)
    with pytest.raises(Problem, match="at most 10 bytes"):
        other.take(5)
    one.give_back()
    one.give_back()
    other.take(10)
    assert budget.used == 10


def test_maps_have_limits_of_their_own(engine):
    with models.served(engine, Settings(port=0, explain_timeout=0.3)) as client:
        refused(client.post("/explain", json={"inputs": [ONE] * 9}), 413, "at most 8 inputs, got 9")
        before = engine.begun
        refused(client.post("/explain", json={"inputs": [ONE] * 8}), 504, "within 0.3 s", "--explain-timeout")
        engine.may.release()
        assert client.post("/predict", json=BODY).status_code == 200
        assert engine.begun == before + 1  # nobody waits for the others


def test_quick_answers_do_not_wait_for_maps(client, engine):
    before = engine.begun
    with ThreadPoolExecutor(2) as pool:
        maps = pool.submit(client.post, "/explain?show=numbers", json={"inputs": [ONE] * 3})
        until(lambda: engine.begun == before + 1)
        quick = pool.submit(client.post, "/predict", json=BODY)
        until(lambda: "nescio_waiting_inputs 4.0" in client.get("/metrics").text)
        engine.may.release()
        assert quick.result(10).status_code == 200
        assert not maps.done()
        engine.may.release(2)
        assert maps.result(10).status_code == 200


def test_work_is_given_up_when_its_sender_goes(client, engine):
    before = engine.begun
    body = json.dumps({"inputs": [ONE] * 8}).encode()
    with connected(client, (JSON % (len(body), body)).replace(b"/predict", b"/explain")):
        until(lambda: engine.begun == before + 1)
        assert "nescio_waiting_inputs 8.0" in client.get("/metrics").text
    until(lambda: "nescio_waiting_inputs 0.0" in client.get("/metrics").text)
    engine.may.release()
    assert client.post("/predict", json=BODY).status_code == 200
    assert engine.begun == before + 1
    assert 'nescio_requests_total{endpoint="/explain",status="499"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example", "https://", "x"])
def test_pages_of_other_sites_are_refused(client, origin):
    for call in (lambda h: client.post("/predict", json=BODY, headers=h), lambda h: client.get("/health", headers=h)):
        refused(call({"origin": origin}), 403, "the Origin of another")


def test_pages_of_its_own_and_of_friends_are_answered(client):
    own = f"http://{client.base_url.netloc.decode()}"
    assert client.post("/predict", json=BODY, headers={"origin": own}).status_code == 200
    friend = {"origin": "https://friend.example"}
    found = client.post("/predict", json=BODY, headers=friend)
    assert (found.status_code, found.headers["access-control-allow-origin"]) == (200, friend["origin"])
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}
    assert client.options("/predict", headers=friend | ask).status_code == 200
    assert client.options("/predict", headers={"origin": "https://evil.example"} | ask).status_code == 400


@pytest.mark.parametrize(
    "data", [b"", b"GET /health HTTP/1.1\r\nHost: lo", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_connections_that_do_nothing_are_closed(client, data):
    with connected(client, data) as place:
        seconds, text = closed(place)
    assert 0.2 < seconds < 2
    assert text.startswith(b"HTTP/1.1 200") == data.endswith(b"\r\n\r\n")


def test_a_head_that_comes_letter_by_letter_is_cut(client):
    with connected(client, b"GET /health HTTP/1.1\r\nHost: localhost\r\n") as place:
        start = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - start < 4:
                place.sendall(b"a: b\r\n")
                time.sleep(0.05)
        assert time.monotonic() - start < 2


def test_a_long_answer_is_not_cut(engine, client):
    timer = threading.Timer(0.8, engine.may.release)  # longer than an idle connection may wait
    timer.start()
    assert client.post("/explain?show=numbers", json=BODY).status_code == 200


def test_a_reader_who_takes_nothing_is_cut(client):
    with socket.socket() as place:
        place.settimeout(5)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        place.connect((client.base_url.host, client.base_url.port))
        with pytest.raises(ConnectionError):
            for _ in range(500):  # asks for far more than what lies between the two can hold
                place.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
                time.sleep(0.01)


def test_the_connection_that_has_waited_longest_makes_room(engine):
    with models.served(engine, Settings(port=0, max_connections=5)) as client:
        assert client.get("/health").status_code == 200
        places = []
        for _ in range(8):
            places.append(socket.create_connection((client.base_url.host, client.base_url.port)))
            time.sleep(0.01)
        places[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert places[-1].recv(12) == b"HTTP/1.1 200"
        for place in places[:3]:
            assert closed(place)[0] < 5
        places[3].settimeout(0.05)
        with pytest.raises(TimeoutError):
            places[3].recv(1)
        for place in places:
            place.close()


def test_what_has_begun_has_a_limited_time_at_the_end(engine, monkeypatch):
    monkeypatch.setattr("nescio.serve.fastapi_app.LAST", 0.1)
    before = engine.begun
    with ThreadPoolExecutor(1) as pool:
        with models.served(engine, Settings(port=0, grace=0.2)) as client:
            found = pool.submit(httpx.post, f"{client.base_url}/explain", json=BODY, timeout=20)
            until(lambda: engine.begun == before + 1)
            start = time.monotonic()
        assert time.monotonic() - start < 3
        refused(found.result(), 503, "it is ending")
    engine.may.release()


def test_nobody_can_connect_before_the_model_is_ready(engine, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def warm_up():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        raise InterruptedError

    monkeypatch.setattr(engine, "warm_up", warm_up, raising=False)
    with pytest.raises(InterruptedError):
        run(engine, Settings(port=port))


def thread_like(width, height):
    """A whole PNG of one bit to a pixel."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"\0" * (height * (1 + (width + 7) // 8)))
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_picture_is_no_thread(monkeypatch):
    assert Image.open(io.BytesIO(thread_like(1, 3000))).size == (1, 3000)
    with models.served(Engine(models.pictures(), ["entropy"])) as client:
        assert client.post("/predict", files={"file": thread_like(10, 2000)}).status_code == 200
        monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was decoded"))
        for size in ((1, 3000), (3000, 1)):
            found = client.post("/predict", files={"file": thread_like(*size)})
            refused(found, 413, "expected a side of at most 200 times the other")


def test_answers_are_not_taken_for_pages(client):
    for found in (client.get("/health"), client.post("/predict", json=BODY), client.get("/nowhere")):
        assert found.headers["x-content-type-options"] == "nosniff"
