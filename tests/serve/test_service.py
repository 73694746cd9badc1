"""Against a real server on a free port."""

import base64
import io
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch
from PIL import Image

from nescio import decide
from nescio.posteriors import Deterministic
from nescio.serve import Engine, Settings
from nescio.serve.settings import LOOPBACK
from tests.serve import models

METHODS = ["entropy", "regrad"]
JSON = {"content-type": "application/json"}


def an_engine():
    """Pictures, with a policy that accepts nine of ten pictures of noise."""
    source = models.pictures()
    posterior = models.Trained(source.model, samples=3)
    plain = Engine(source, METHODS, posterior=posterior)
    known = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    found = [one.scores["entropy"] for one in plain.assess(list(known), ["entropy"])]
    policy = decide.quantile(found, 0.9, about={"score": "entropy"})
    return Engine(source, METHODS, posterior=posterior, policy=policy)


@pytest.fixture(scope="module")
def engine():
    return an_engine()


@pytest.fixture(scope="module")
def client(engine):
    with models.served(engine, Settings(port=0, max_body=200_000, max_pixels=10_000, max_inputs=8)) as client:
        yield client


def refused(response, status, *words):
    """The one shape of all errors."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert response.json() == {"error": {"status": status, "kind": error["kind"], "message": error["message"]}}
    assert error["kind"]
    for word in words:
        assert word in error["message"]
    return response


def test_predict(client, engine):
    row = engine.source.preprocess(Image.open(io.BytesIO(models.png(3))))
    known = engine.assess([row], ["entropy"])[0]
    response = client.post("/predict?top=2", files={"file": models.png(3)})
    assert response.status_code == 200
    (found,) = response.json()["results"]
    best = int(known.probabilities.argmax())
    probability = float(known.probabilities.max())
    assert found["answer"] == {"index": best, "name": models.NAMES[best], "probability": probability}
    assert [one["probability"] for one in found["likeliest"]] == known.probabilities.topk(2).values.tolist()
    doubt = found["doubt"]
    assert (doubt["total"], doubt["epistemic"], doubt["samples"]) == (known.total, known.epistemic, 3)
    accepted = known.scores["entropy"] <= engine.policy.threshold
    assert found["decision"]["advice"] == ("accept" if accepted else "ask a person")
    assert found["decision"]["score"] == known.scores["entropy"]
    assert f"The answer is “{models.NAMES[best]}”" in found["words"]
    assert found["verdict"] is None
    assert response.json()["note"] is None


def test_every_form_of_a_picture_gives_the_same(client):
    file = models.png(4)
    forms = [
        client.post("/predict", files={"file": file}),
        client.post("/predict", content=file, headers={"content-type": "image/png"}),
        client.post("/predict", content=file, headers={"content-type": "application/octet-stream"}),
        client.post("/predict", json=models.as_json(file)),
    ]
    assert [form.status_code for form in forms] == [200] * 4
    assert all(form.json() == forms[0].json() for form in forms)


def test_several_inputs_keep_their_order(client):
    files = [models.png(seed) for seed in range(5)]
    alone = [client.post("/score", files={"file": file}).json()["results"][0] for file in files]
    assert client.post("/score", files=[("file", file) for file in files]).json()["results"] == alone
    assert client.post("/score", json=models.as_json(*files)).json()["results"] == alone


def test_score_has_the_methods_that_are_asked_for(client):
    file = models.png(5)
    both = client.post("/score", files={"file": file}).json()["results"][0]
    one = client.post("/score?method=regrad", files={"file": file}).json()["results"][0]
    assert both["scores"].keys() == set(METHODS)
    assert one["scores"] == {"regrad": both["scores"]["regrad"]}
    assert one["decision"]["score"] == both["scores"]["entropy"]


@pytest.mark.parametrize("show", ["overlay", "numbers"])
def test_explain(client, show):
    response = client.post(f"/explain?of=total&show={show}", files={"file": models.png(6)})
    assert response.status_code == 200
    body = response.json()
    (found,) = body["results"]
    assert (body["of"], body["method"], found["shape"]) == ("total", "ua_backprop", [8, 8])
    assert found["decision"]["method"] == "entropy"
    if show == "overlay":
        assert found["map"] is None
        picture = Image.open(io.BytesIO(base64.b64decode(found["overlay"])))
        assert (picture.format, picture.width > 200) == ("PNG", True)
    else:
        assert found["overlay"] is None
        total = float(torch.tensor(found["map"], dtype=torch.float64).sum())
        assert total - found["uncertainty"] == pytest.approx(found["residual"], abs=1e-12)
        assert abs(found["residual"]) < 1e-6


def test_health_says_what_is_served(client):
    found = client.get("/health").json()
    assert (found["status"], found["model"], found["methods"]) == ("ok", "a small network", METHODS)
    assert found["policy"].startswith("Accept an input when its score is at most")


def test_the_pages_need_nothing_from_outside(client):
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    text = page.text
    assert "default-src 'none'" in text
    assert "POST /predict" in text and "?top=" in text and "entropy, regrad" in text
    assert "http" not in text.replace(str(client.base_url).rstrip("/"), "").replace("http-equiv", "")
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/check", "/predict", "/score", "/explain", "/health", "/metrics"}
    content = schema["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "multipart/form-data", "image/*"}
    assert {"Body", "Item", "Refused", "Predictions"} <= set(schema["components"]["schemas"])
    assert {"413", "415", "422", "504"} <= set(schema["paths"]["/score"]["post"]["responses"])


@pytest.mark.parametrize(
    ("path", "given", "status", "words"),
    [
        ("/predict", {"content": b"a", "headers": {"content-type": "text/plain"}}, 415, "got text/plain; name it"),
        ("/predict", {"content": b"a"}, 415, "got none"),
        ("/predict", {"content": b"{", "headers": JSON}, 422, "Invalid JSON"),
        ("/predict", {"content": b"[" * 9000, "headers": JSON}, 422, "/docs shows"),
        ("/predict", {"content": b"\xff\xfe", "headers": JSON}, 422, "/docs shows"),
        ("/predict", {"json": {}}, 422, "inputs: Field required"),
        ("/predict", {"json": {"inputs": []}}, 422, "at least 1"),
        (
            "/predict",
            {"json": {"inputs": [{"text": "a", "image": "b"}]}},
            422,
            "exactly one of image, numbers and text",
        ),
        ("/predict", {"json": {"inputs": [{"text": "a"}]}}, 422, "expected a picture"),
        ("/predict", {"json": {"inputs": [{"numbers": [[[0.5] * 3] * 3]}]}}, 422, "the model could not take"),
        ("/predict", {"content": b"no", "headers": {"content-type": "image/png"}}, 422, "2 bytes of something else"),
        ("/predict", {"data": {"file": "a"}, "files": {}}, 415, "x-www-form-urlencoded"),
        ("/predict", {"files": [("a", (None, "b"))]}, 422, "at least one file"),
        ("/predict", {"content": b"a", "headers": {"content-type": "multipart/form-data"}}, 422, "curl -F"),
        ("/predict", {"files": [("file", models.png())] * 9}, 413, "at most 8 files"),
        ("/predict", {"json": models.as_json(*[models.png()] * 9)}, 413, "at most 8 inputs, got 9"),
        ("/predict", {"files": {"file": models.png(size=(101, 100))}}, 413, "at most 10000 pixels"),
        ("/predict", {"content": b"a" * 200_001, "headers": JSON}, 413, "at most 200000 bytes, got 200001"),
        ("/predict", {"content": iter([b"a" * 150_000] * 2), "headers": JSON}, 413, "at most 200000 bytes, got more"),
        ("/predict?top=0", {"json": {}}, 422, "query.top"),
        ("/score?method=nothing", {"json": {}}, 422, "query.method"),
        ("/explain?method=clue", {"json": {}}, 422, "query.method"),
        ("/nowhere", {"json": {}}, 404, "expected /check, /predict"),
        ("/health", {"json": {}}, 405, "expected the method GET"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(client, path, given, status, words):
    refused(client.post(path, **given), status, words)


def test_the_service_lives_on_after_bad_requests(client):
    assert client.post("/predict", files={"file": models.png()}).status_code == 200


def test_a_foreign_name_for_this_machine_is_refused(client):
    refused(client.get("/health", headers={"host": "evil.example"}), 421, "127.0.0.1 or localhost")
    for name in LOOPBACK[:2]:
        assert client.get("/health", headers={"host": f"{name}:80"}).status_code == 200


def test_concurrent_requests_are_joined_and_change_nothing(client, engine):
    files = [models.png(seed, (8 + seed % 3, 9)) for seed in range(24)]
    rows = [engine.source.preprocess(Image.open(io.BytesIO(file))) for file in files]
    alone = [engine.assess([row], METHODS)[0] for row in rows]
    before = _metrics(client)
    with ThreadPoolExecutor(24) as pool:
        responses = list(pool.map(lambda file: client.post("/score", files={"file": file}), files))
    for response, known in zip(responses, alone, strict=True):
        assert response.status_code == 200
        assert response.json()["results"][0]["scores"] == known.scores  # to the last bit
    after = _metrics(client)
    batches = after["nescio_batch_inputs_count"] - before["nescio_batch_inputs_count"]
    assert 1 <= batches < 24
    assert after["nescio_batch_inputs_sum"] - before["nescio_batch_inputs_sum"] == 24


def test_one_bad_input_spoils_nothing_for_others(engine):
    with models.served(Engine(models.numbers(), ["entropy"]), Settings(port=0, batch_wait=0.3)) as client:
        bad, good = {"inputs": [{"numbers": [1.0] * 4}]}, {"inputs": [{"numbers": [1.0] * 5}]}
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda body: client.post("/score", json=body), [good, bad] * 3))
    assert [response.status_code for response in found] == [200, 422] * 3
    refused(found[1], 422, "the model could not take", "handled together")


def test_metrics_tell_of_requests_errors_and_drift(engine):
    with models.served(engine) as client:
        assert _metrics(client)["nescio_drift_inputs_total"] == 0
        for _ in range(3):
            client.post("/predict", files={"file": models.png()})
        client.post("/explain?show=numbers", files={"file": models.png()})  # looks again, and is not counted
        client.post("/predict", json={})
        client.get("/nowhere/secret")
        found = _metrics(client)
        text = client.get("/metrics").text
    assert found['nescio_requests_total{endpoint="/predict",status="200"}'] == 3
    assert found['nescio_requests_total{endpoint="/predict",status="422"}'] == 1
    assert found['nescio_requests_total{endpoint="other",status="404"}'] == 1
    assert found['nescio_errors_total{kind="bad_input"}'] == 1
    assert found['nescio_inputs_total{endpoint="/predict"}'] == 3
    assert found['nescio_request_seconds_count{endpoint="/explain"}'] == 1
    assert found["nescio_drift_inputs_total"] == 3
    assert (found["nescio_drift_alarm"], found["nescio_drift_watched"]) == (0, 1)
    assert sum(value for name, value in found.items() if name.startswith("nescio_decisions_total")) == 3
    assert "secret" not in text


def test_an_alarm_is_given_once_inputs_change_and_is_kept(tmp_path):
    source = models.numbers()
    engine = Engine(source, ["entropy"])
    known = [one.scores["entropy"] for one in engine.assess(list(3 * torch.randn(200, 5)), ["entropy"])]
    policy = decide.quantile(known, 0.9, about={"score": "entropy"})
    engine = Engine(source, ["entropy"], policy=policy)
    doubtful = {"inputs": [{"numbers": [0.0] * 5}] * 30}
    assert engine.assess([torch.zeros(5)], ["entropy"])[0].scores["entropy"] > policy.threshold
    with models.served(engine, drift_path=tmp_path / "drift.json") as client:
        (found,) = {one["decision"]["advice"] for one in client.post("/score", json=doubtful).json()["results"]}
        assert found == "ask a person"
        assert _metrics(client)["nescio_drift_alarm"] == 1
        assert client.get("/health").json()["drift"].startswith("Alarm: 30 of 30 inputs were not accepted")
    with models.served(engine, drift_path=tmp_path / "drift.json") as client:
        found = _metrics(client)
        assert (found["nescio_drift_alarm"], found["nescio_drift_abstained_total"]) == (1, 30)


def test_a_single_network_says_what_it_cannot_tell():
    with models.served(Engine(models.numbers(), ["entropy"])) as client:
        body = client.post("/predict", json={"inputs": [{"numbers": [1, 2, 3, 4, 5]}]}).json()
        health = client.get("/health").json()
        bars = client.post("/explain", json={"inputs": [{"numbers": [1, 2, 3, 4, 5]}]}).json()["results"][0]
    (found,) = body["results"]
    assert "single network" in body["note"]
    assert (found["doubt"]["epistemic"], found["doubt"]["aleatoric"], found["decision"]) == (None, None, None)
    assert found["answer"]["name"] is None and "Doubt: " in found["words"]
    assert health["drift"] == "Not watched: no policy was given."
    assert (bars["shape"], bars["overlay"][:8]) == ([5], "iVBORw0K")


def test_texts_with_sets_of_answers():
    source = models.texts()
    rows = [source.preprocess(word) for word in ("a", "bb", "ccc", "dd", "e") * 8]
    p = torch.stack([one.probabilities for one in Engine(source, ["entropy"]).assess(rows)])
    sets = decide.conformal(p, p.argmax(1), 0.8)
    with models.served(Engine(source, ["entropy"], policy=sets)) as client:
        body = {"inputs": [{"text": "bla"}, {"text": "a"}]}
        found = client.post("/predict", json=body).json()["results"]
        map_ = client.post("/explain?show=numbers", json=body).json()["results"]
    for one in found:
        answers = one["decision"]["answers"]
        assert one["decision"]["advice"] == ("accept" if len(answers) == 1 else "ask a person")
        assert answers[0] == one["answer"]
    assert [one["shape"] for one in map_] == [[3], [1]]
    assert [len(one["places"]) for one in map_] == [3, 1]


def test_a_token_is_asked_for():
    settings = Settings(port=0, token="a s3cret")
    with models.served(Engine(models.numbers(), ["entropy"]), settings) as client:
        body = {"inputs": [{"numbers": [1.0] * 5}]}
        for wrong in (
            {},
            {"authorization": "Bearer other"},
            {"authorization": "a s3cret"},
            {"authorization": "Bearer"},
        ):
            for path in ("/predict", "/score", "/explain"):
                found = refused(client.post(path, json=body, headers=wrong), 401, "Authorization: Bearer TOKEN")
                assert found.headers["www-authenticate"] == "Bearer"
        refused(client.get("/metrics"), 401, "got none")
        assert client.get("/health").json()["model"] is None
        assert "five numbers" not in client.get("/docs").text
        right = {"authorization": "Bearer a s3cret"}
        assert client.post("/predict", json=body, headers=right).status_code == 200
        assert client.get("/metrics", headers=right).status_code == 200
        assert client.get("/health", headers=right).json()["model"] == "five numbers"
        assert client.get("/openapi.json").json()["paths"]["/predict"]["post"]["security"] == [{"token": []}]


def a_slow_one(seconds):
    from nescio.models import Classifier
    from nescio.models.sources import Numbers, Source

    return Engine(Source(Classifier(models.Slow(seconds)), Numbers(), "slow"), ["entropy"])


def test_time_is_limited():
    body = {"inputs": [{"numbers": [1.0] * 5}]}
    with models.served(a_slow_one(1.5), Settings(port=0, timeout=0.3, max_waiting=2)) as client:
        start = time.monotonic()
        refused(client.post("/predict", json=body), 504, "within 0.3 s", "send fewer at once")
        assert time.monotonic() - start < 1.4
        refused(client.post("/predict", json={"inputs": body["inputs"] * 3}), 503, "too many inputs are waiting")
        assert _metrics(client)['nescio_errors_total{kind="timeout"}'] == 1
        host, port = client.base_url.host, client.base_url.port
        with socket.create_connection((host, port), timeout=10) as place:  # announces a body and sends a part of it
            head = f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 50"
            place.sendall(f'{head}\r\n\r\n{{"inputs'.encode())
            text = b"".join(iter(lambda: place.recv(10_000), b"")).decode()
        assert text.startswith("HTTP/1.1 408") and "slow_request" in text


def test_an_ending_server_answers_what_has_begun():
    body, found = {"inputs": [{"numbers": [1.0] * 5}]}, []
    with models.served(a_slow_one(0.3)) as client:
        url = str(client.base_url)
        thread = threading.Thread(target=lambda: found.append(httpx.post(f"{url}/predict", json=body, timeout=20)))
        thread.start()
        time.sleep(0.2)
    thread.join(20)
    assert found[0].status_code == 200


def test_what_is_unforeseen_is_one_plain_error_and_its_text_is_kept_back(monkeypatch, caplog):
    engine = Engine(models.numbers(), ["entropy"])

    def broken(rows, methods=()):
        raise KeyError("secret 12345.678")

    monkeypatch.setattr(engine, "assess", broken)
    with models.served(engine) as client:
        response = client.post("/predict", json={"inputs": [{"numbers": [12345.678] * 5}]})
        refused(response, 500, "unforeseen", "KeyError")
        assert client.get("/health").status_code == 200
    assert "secret" not in response.text
    assert "unforeseen KeyError in" in caplog.text
    assert "12345" not in caplog.text


def test_a_deterministic_source_is_a_distribution_of_one():
    source = models.numbers()
    from dataclasses import replace

    with models.served(Engine(replace(source, model=Deterministic(source.model)), ["entropy"])) as client:
        found = client.post("/explain?show=numbers", json={"inputs": [{"numbers": [1.0] * 5}]}).json()
    assert found["of"] == "total"


def _metrics(client):
    lines = [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_json_numbers_are_exact(client):
    text = client.post("/score", files={"file": models.png(9)}).text
    assert json.loads(text) == json.loads(json.dumps(json.loads(text)))
