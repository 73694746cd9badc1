"""Verdicts over HTTP, against a real server; and what the watch makes of them."""

import io

import pytest
import torch
from PIL import Image

from nescio import decide
from nescio.serve import Engine
from nescio.serve.engine import stacked
from nescio.serve.watch import Watch
from nescio.types import InputError
from tests.serve import models
from tests.serve.test_service import _metrics, refused


@pytest.fixture(scope="module")
def engine():
    source = models.pictures()
    return Engine(source, ["entropy"], guard=models.guard(source))


@pytest.fixture(scope="module")
def client(engine):
    with models.served(engine) as client:
        yield client


def dim(seed):
    """The file of a picture like those of the reference."""
    x = 0.3 * torch.rand(8, 8, generator=torch.Generator().manual_seed(seed))
    file = io.BytesIO()
    Image.fromarray((255 * x).round().byte().numpy()).save(file, "PNG")
    return file.getvalue()


def test_check_is_what_the_library_says(client, engine):
    files = [dim(3), models.png(1)]
    rows = [engine.source.preprocess(Image.open(io.BytesIO(file))) for file in files]
    verdict = engine.guard.check(stacked(rows, engine.rows), progress=False)
    body = client.post("/check", files=[("file", file) for file in files]).json()
    assert body["reference"] == verdict.ranks == 120
    assert [one["foreign"] for one in body["results"]] == [False, True]
    for at, one in enumerate(body["results"]):
        assert one["predicted"] == int(verdict.predicted[at])
        assert one["predicted_class"] == models.NAMES[one["predicted"]]
        assert one["confidence"] == pytest.approx(float(verdict.confidence[at]), rel=1e-5)
        assert one["p_value"] == float(verdict.p_value[at])
        assert (one["level"], one["state"], one["words"]) == (0.05, verdict.states()[at], verdict.words()[at])
        assert one["witnesses"] == pytest.approx(
            {name: float(z[at]) for name, z in verdict.witnesses.items()}, rel=1e-4
        )
        assert one["wrong"]["low"] <= one["wrong"]["probability"] <= one["wrong"]["high"]


def test_another_level_is_asked_for_where_the_reference_allows_it(client):
    (found,) = client.post("/check?level=0.9", files={"file": dim(4)}).json()["results"]
    assert (found["level"], found["foreign"]) == (0.9, found["p_value"] <= 0.9)
    refused(
        client.post("/check?level=0.01", files={"file": dim(4)}), 422, "query.level", "at least 500 ranks", "got 120"
    )
    refused(client.post("/check?level=1", files={"file": dim(4)}), 422, "query.level")


def test_predict_carries_the_verdict(client):
    known, foreign = client.post("/predict", files=[("file", dim(3)), ("file", models.png(1))]).json()["results"]
    checked = client.post("/check", files=[("file", dim(3)), ("file", models.png(1))]).json()["results"]
    for one, other in zip((known, foreign), checked, strict=True):
        assert one["verdict"].items() <= other.items()
        assert one["verdict"]["words"] in one["words"]
    assert "The input is foreign: do not trust the answer." in foreign["words"]
    assert "foreign" not in known["words"]


def test_a_policy_accepts_nothing_foreign():
    source = models.numbers()
    policy = decide.quantile([float(i) for i in range(40)], 0.9, about={"score": "entropy"})  # would accept everything
    body = {"inputs": [{"numbers": [0.1, 0.2, 0.1, 0.2, 0.1]}, {"numbers": [9.0] * 5}]}
    with models.served(Engine(source, ["entropy"], policy=policy, guard=models.guard(source))) as client:
        found = client.post("/predict", json=body).json()["results"]
        scored = client.post("/score", json=body).json()["results"]
    assert [one["verdict"]["foreign"] for one in found] == [False, True]
    for results in (found, scored):
        assert [one["decision"]["advice"] for one in results] == ["accept", "ask a person"]
    assert "the answer may be used" in found[0]["words"]
    assert found[1]["words"].endswith("The policy's promise is for known inputs: ask a person.")


def test_a_small_reference_has_a_larger_level(engine, monkeypatch):
    assert engine.level == 0.05
    fitted = type(engine.guard.fitted)
    monkeypatch.setattr(fitted, "ranks", 60)
    assert engine.level == 0.09
    monkeypatch.setattr(fitted, "ranks", 20)
    assert engine.level == 0.25


def test_without_a_guard_it_is_said_how_to_give_one():
    with models.served(Engine(models.numbers(), ["entropy"])) as client:
        response = client.post("/check", json={"inputs": [{"numbers": [1.0] * 5}]})
        refused(response, 409, "got one without", "--reference FOLDER", "--guard FOLDER")
        assert response.json()["error"]["kind"] == "no_guard"
        health = client.get("/health").json()
        assert (health["guard"], health["stream"]) == (None, "Not watched: no guard was given.")
        assert _metrics(client)["nescio_guard_watched"] == 0


def test_a_reference_without_labels_says_nothing_of_wrong_answers():
    source = models.numbers()
    with models.served(Engine(source, ["entropy"], guard=models.guard(source, labelled=False))) as client:
        (found,) = client.post("/check", json={"inputs": [{"numbers": [9.0] * 5}]}).json()["results"]
        assert (found["wrong"], found["predicted_class"], found["state"]) == (None, None, "foreign")
        assert client.get("/health").json()["guard"].startswith("a reference of 120 inputs; at most 5 % of inputs")


def test_metrics_tell_of_verdicts_and_of_a_stream_that_changed(tmp_path):
    source, file = models.numbers(), tmp_path / "watch.json"
    engine = Engine(source, ["entropy"], guard=models.guard(source))
    known = {"inputs": [{"numbers": row} for row in (0.3 * torch.rand(30, 5)).tolist()]}
    foreign = {"inputs": [{"numbers": [9.0] * 5}] * 30}
    with models.served(engine, watch_path=file) as client:
        client.post("/check", json=known)
        client.post("/score", json=known)  # tells no verdict, and is not counted
        before = _metrics(client)
        assert (before["nescio_guard_drift_inputs"], before["nescio_guard_drift_alarm"]) == (30, 0)
        assert before["nescio_guard_latest_p_value"] > 0.01
        for _ in range(2):
            client.post("/predict", json=foreign)
        after = _metrics(client)
        assert client.get("/health").json()["stream"].startswith("Alarm: after input")
    assert after['nescio_verdicts_total{state="foreign"}'] >= 60
    states = [value for name, value in after.items() if name.startswith("nescio_verdicts_total")]
    assert sum(states) == 90 == after["nescio_guard_latest_inputs"]
    assert after["nescio_guard_foreign_share"] == after['nescio_verdicts_total{state="foreign"}'] / 90
    assert after["nescio_guard_drift_alarm"] == 1
    assert after["nescio_guard_drift_evidence"] >= after["nescio_guard_drift_evidence_limit"]
    assert after["nescio_guard_latest_p_value"] == 1 / 200
    with models.served(engine, watch_path=file) as client:  # goes on after a restart
        assert _metrics(client)["nescio_guard_drift_alarm"] == 1


def test_the_test_of_the_latest_is_made_once(monkeypatch):
    source = models.numbers()
    watch = Watch(models.guard(source))
    watch.update([0.5] * 19, ["fine"] * 19)
    assert watch.latest() is None
    watch.update([0.5], ["fine"])
    found = watch.latest()
    assert found.n == 20
    monkeypatch.setattr(decide, "drift_test", None)
    assert watch.latest() is found
    with pytest.raises(InputError, match="watch: expected a guard"):
        Watch(None, "watch.json")
