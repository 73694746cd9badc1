"""Recordings: found again only for the very same model, and never for another state of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from nescio import trace
from nescio.models import Classifier
from nescio.trace import replay

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    replay.clear()
    yield
    replay.clear()


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).eval()


def test_fingerprint_is_the_same_until_the_model_is_another() -> None:
    net = model()
    classifier = Classifier(net)
    before = replay.fingerprint(classifier)
    assert replay.fingerprint(classifier) == before
    with torch.no_grad():
        net[0].weight.add_(1)  # a recording reads the new values at the old address
    assert replay.fingerprint(classifier) == before
    seen = {before}

    def changed() -> None:
        now = replay.fingerprint(classifier)
        assert now not in seen
        seen.add(now)

    net[2].inplace = True
    changed()
    net[0].weight = nn.Parameter(torch.zeros(4, 3))
    changed()
    net[1].running_mean = torch.ones(4)
    changed()
    net[3] = nn.Linear(4, 3)
    changed()
    handle = net[0].register_forward_hook(lambda *_: None)
    changed()
    handle.remove()
    net[0].mask = torch.ones(4)
    changed()
    net.train()
    changed()


def test_first_time_plain_second_time_recorded_then_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, float]] = []

    def work(x: Tensor, check: bool) -> replay.Result:
        done.append(("host" if check else "device", float(x.sum())))
        return x * 2, {"row": x + 1}

    class Graph:
        def replay(self) -> None:
            result[0].copy_(static * 2)
            result[1]["row"].copy_(static + 1)

    static = torch.zeros(2)
    result = (torch.zeros(2), {"row": torch.zeros(2)})
    monkeypatch.setattr(replay, "_record", lambda x, w: w(x, False) and replay._Recording(Graph(), static, result))
    for i, expected in enumerate([["host"], ["host", "device"], [], []]):
        done.clear()
        x = torch.full((2,), float(i))
        logits, found = replay.run("key", x, work)
        assert [kind for kind, _ in done] == expected
        assert logits.equal(x * 2) and found["row"].equal(x + 1)
    logits, _ = replay.run("other", torch.ones(2), work)
    assert done[-1] == ("host", 2.0) and logits.equal(torch.full((2,), 2.0))
    before = replay.run("key", torch.ones(2), work)[0]
    replay.run("key", torch.zeros(2), work)
    assert before.equal(torch.full((2,), 2.0)), "a result does not change with the next replay"


def test_values_that_are_not_finite_go_back_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def replay(self) -> None:
            pass

    recording = replay._Recording(Graph(), torch.zeros(2), (torch.tensor([torch.nan, 0.0]), {}))
    monkeypatch.setitem(replay._recordings, "key", recording)

    def work(x: Tensor, check: bool) -> replay.Result:
        raise ValueError("the host says why")

    with pytest.raises(ValueError, match="the host says why"):
        replay.run("key", torch.zeros(2), work)


def test_few_recordings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_record", lambda x, w: None)
    for key in range(20):
        for _ in range(2):
            replay.run(key, torch.zeros(1), lambda x, check: (x, {}))
    assert len(replay._recordings) == replay.KEPT
    replay.clear()
    assert not replay._recordings and not replay._seen


@needs_gpu
def test_replayed_norms_are_the_norms() -> None:
    net = model().cuda()
    x = torch.randn(6, 8, 3, device="cuda")
    wanted = [trace.reference.class_gradients(net, part).norms for part in x]
    for part, norms in zip(x, wanted, strict=True):
        torch.testing.assert_close(trace.class_gradients(net, part).norms, norms, rtol=1e-4, atol=1e-6)
    assert any(r is not None for r in replay._recordings.values())
    with torch.no_grad():
        net[3].weight.mul_(2)
    norms = trace.reference.class_gradients(net, x[0]).norms
    torch.testing.assert_close(trace.class_gradients(net, x[0]).norms, norms, rtol=1e-4, atol=1e-6)
