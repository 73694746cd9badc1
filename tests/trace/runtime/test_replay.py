"""Recordings: found again only for the very same model, and never for another state of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio import modes, score, trace
from nescio.models import Classifier
from nescio.scores import REGrad
from nescio.trace import api
from nescio.trace.estimate import table
from nescio.trace.probe import survey
from nescio.trace.runtime import replay
from nescio.trace.runtime.fingerprint import fingerprint
from nescio.types import ModelError, NormSettings
from tests.trace.helpers import identical, ready, state

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    replay.clear()
    yield
    replay.clear()


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).eval()


def run(key: object, x: Tensor, work: Callable[[Tensor, bool], replay.Result]) -> replay.Result:
    """`replay.run` for work that has no model."""
    return replay.run(key, x, work, Classifier(nn.Identity()), lambda: None)


def test_fingerprint_is_the_same_until_the_model_is_another() -> None:
    net = model()
    classifier = Classifier(net)
    before = fingerprint(classifier)
    assert fingerprint(classifier) == before
    with torch.no_grad():
        net[0].weight.add_(1)  # a recording reads the new values at the old address
    assert fingerprint(classifier) == before
    seen = {before}

    def changed() -> None:
        now = fingerprint(classifier)
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
        logits, found = run("key", x, work)
        assert [kind for kind, _ in done] == expected
        assert logits.equal(x * 2) and found["row"].equal(x + 1)
    logits, _ = run("other", torch.ones(2), work)
    assert done[-1] == ("host", 2.0) and logits.equal(torch.full((2,), 2.0))
    before = run("key", torch.ones(2), work)[0]
    run("key", torch.zeros(2), work)
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
        run("key", torch.zeros(2), work)
    later: list[Tensor] = []
    replay.run("key", torch.zeros(2), work, Classifier(nn.Identity()), lambda: None, later=later)
    assert [bool(flag) for flag in later] == [False], "whoever reads the result is told"


def test_few_recordings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_record", lambda x, w: None)
    for key in range(20):
        for _ in range(2):
            run(key, torch.zeros(1), lambda x, check: (x, {}))
    assert len(replay._recordings) == replay.KEPT
    replay.clear()
    assert not replay._recordings and not replay._seen


class Again:
    """Stands for a recorded graph: does the work again, on the model as it is, and puts nothing back."""

    def __init__(self, model: nn.Module, x: Tensor, work: Callable[[Tensor, bool], replay.Result]) -> None:
        self.model, self.x, self.work = model, x, work
        self.result, self.count = work(x, False), 0

    def replay(self) -> None:
        self.count += 1
        with modes.tracing(self.model):
            logits, found = self.work(self.x, False)  # of a call that has entered the modes, and is over
        self.result[0].copy_(logits)
        for name, t in found.items():
            self.result[1][name].copy_(t)


class Recorder:
    """Records passes of one model, on a CPU by `Again`, and counts how often it is preserved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: nn.Module, fake: bool = True) -> None:
        self.entered, original = 0, modes.preserved
        self.graphs: list[Again] = []

        def record(x: Tensor, work: Callable[[Tensor, bool], replay.Result]) -> replay._Recording:
            self.graphs.append(graph := Again(model, x.clone(), work))
            return replay._Recording(graph, graph.x, graph.result)

        def preserved(*args: Any, **settings: Any) -> Any:
            self.entered += 1
            return original(*args, **settings)

        monkeypatch.setattr(modes, "preserved", preserved)
        if fake:
            monkeypatch.setattr(replay, "can_replay", lambda classifier, x: isinstance(x, Tensor))
            monkeypatch.setattr(replay, "_record", record)

    def __call__(self, work: Callable[[], Any]) -> tuple[Any, int, int]:
        """What the work gives, how often it entered `preserved`, and how many passes were replayed."""
        entered, replayed = self.entered, sum(graph.count for graph in self.graphs)
        return work(), self.entered - entered, sum(graph.count for graph in self.graphs) - replayed


def subject() -> Any:
    """Partly frozen and in training mode, with dropout that a pass in that mode would show."""
    torch.manual_seed(0)
    net = ready(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 3))).train()
    net[0].requires_grad_(False)
    return net


def batch(seed: int = 0, count: int = 4) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunks": {"chunk": 2},
    "smoothed": {"sigma": 0.1, "samples": 2},
    "selected": {"select": ["4"]},
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_served_by_recordings_alone_leaves_the_models_modes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = subject()
    settings = CALLS[name]
    wanted = [trace.class_gradients(net, batch(i), **settings).norms for i in range(5)]
    recorder = Recorder(monkeypatch, net)
    counts = []
    for i in range(5):
        before = state(net)
        found, entered, replayed = recorder(lambda i=i: trace.class_gradients(net, batch(i), **settings))
        assert identical(before, state(net))
        assert torch.allclose(found.norms, wanted[i], rtol=1e-12)
        counts.append((entered, replayed))
    # of two chunks the first is run and the second recorded too, in one call
    assert counts == ([(1, 0), *[(0, 2)] * 4] if name == "chunks" else [(1, 0), (1, 0), *[(0, 1)] * 3])
    with torch.no_grad():
        net[4].weight.mul_(2)  # a change in place is followed
    found, entered, _ = recorder(lambda: trace.class_gradients(net, batch(), **settings))
    assert entered == 0 and not torch.allclose(found.norms, wanted[0])
    replay.clear()
    assert torch.allclose(found.norms, trace.class_gradients(net, batch(), **settings).norms, rtol=1e-12)


def test_the_share_that_is_checked_is_replayed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net = ready(nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(3, 3), nn.Tanh())), nn.Linear(3, 12)))
    classifier, request = Classifier(net), NormSettings("classes", tolerance=0.5, decay=2.0)
    recorder = Recorder(monkeypatch, net)
    for i in range(4):
        tables, entered, replayed = recorder(lambda: api.gradient_norms(classifier, batch(count=64), request))
        check = tables["classes"].check
        assert check is not None and check.exact == 0
        assert entered == (i < 2)
    assert replayed == 2  # all of the inputs, and the exact share


def test_a_state_of_the_model_has_recordings_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found again in each, since the fingerprint is always taken of the model as the caller has it."""
    net = subject()
    wanted = trace.class_gradients(net, batch()).norms
    recorder = Recorder(monkeypatch, net)
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: net.eval(),
        lambda: net.requires_grad_(True),
        lambda: net[4].register_forward_hook(lambda *_: None),
    ]
    for at, change in enumerate(changes):
        change()
        before = state(net)
        counts = []
        for _ in range(4):
            found, *count = recorder(lambda: trace.class_gradients(net, batch()))
            counts.append(count)
            assert torch.allclose(found.norms, wanted, rtol=1e-12)
        # the recording of the state before is launched while the change is found, and its result is not used
        assert counts == [[1, int(at > 0)], [1, 0], [0, 1], [0, 1]]
        assert identical(before, state(net))


class Still:
    """Stands for a recorded graph whose result stays what it was."""

    def __init__(self, x: Tensor, work: Callable[[Tensor, bool], replay.Result]) -> None:
        self.x, self.result, self.count = x.clone(), work(x, False), 0

    def replay(self) -> None:
        self.count += 1


KEPT: list[nn.Module] = []
OTHERS: dict[str, Callable[[Any], Any]] = {
    "an attribute": lambda m: setattr(m[1], "negative_slope", 0.9),
    "a module that is kept": lambda m: KEPT.append(m[1]) or m.__setitem__(1, nn.Tanh()),
    "a hook": lambda m: m[1].register_forward_hook(lambda _, __, y: y * 2),
    "a hook on another module": lambda m: m[0].register_forward_hook(lambda _, __, y: y * 2),
    "an order": lambda m: m._modules.update({"0": m[2], "2": m[0]}),
}
GONE: dict[str, Callable[[Any], Any]] = {
    "a module": lambda m: m.__setitem__(1, nn.Tanh()),
    "a weight": lambda m: setattr(m[0], "weight", nn.Parameter(m[0].weight.detach() * 2)),
    "the memory of a weight": lambda m: setattr(m[0].weight, "data", m[0].weight.detach() * 2),
    "a switch": lambda m: torch.use_deterministic_algorithms(True),
}


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("name", [*OTHERS, *GONE])
def test_no_result_of_another_model_is_read(name: str, finite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be read is replayed before the model is looked at; where something is gone, nothing is."""
    net: Any = ready(nn.Sequential(nn.Linear(3, 3), nn.LeakyReLU(0.1), nn.Linear(3, 3)))
    graphs: list[Still] = []

    def record(x: Tensor, work: Callable[[Tensor, bool], replay.Result]) -> replay._Recording:
        graphs.append(graph := Still(x, work))
        return replay._Recording(graph, graph.x, graph.result)

    monkeypatch.setattr(replay, "can_replay", lambda classifier, x: isinstance(x, Tensor))
    monkeypatch.setattr(replay, "_record", record)
    for _ in range(4):
        trace.class_gradients(net, batch())
    (graph,) = graphs
    assert graph.count == 2
    if not finite:
        graph.result[0].fill_(torch.nan)
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        (OTHERS | GONE)[name](net)
        before = state(net)
        found = trace.class_gradients(net, batch())
        assert identical(before, state(net))
        assert graph.count == 2 + (name in OTHERS)
        assert torch.allclose(found.norms, trace.reference.class_gradients(net, batch()).norms, rtol=1e-9)
    finally:
        torch.use_deterministic_algorithms(deterministic)


def test_the_model_is_looked_at_while_the_gpu_works(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    net = subject()
    recorder = Recorder(monkeypatch, net)
    for _ in range(3):
        trace.class_gradients(net, batch())
    again = recorder.graphs[0].replay
    monkeypatch.setattr(recorder.graphs[0], "replay", lambda: done.append("launched") or again())
    monkeypatch.setattr(table, "fingerprint", lambda c: done.append("looked") or fingerprint(c))
    monkeypatch.setattr(survey, "fingerprint", None)  # not before
    trace.class_gradients(net, batch(), chunk=4)
    assert done == ["launched", "looked"]


def test_logits_of_a_recorded_pass_that_are_not_finite_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    net = subject()
    recorder = Recorder(monkeypatch, net)
    calls = [lambda: trace.class_gradients(net, batch()), lambda: score(net, batch(), [REGrad(classes=3), "energy"])]
    for call in calls:
        for _ in range(3):
            call()
    with torch.no_grad():
        net[4].bias.fill_(torch.inf)
    for call in calls:
        count = sum(graph.count for graph in recorder.graphs)
        with pytest.raises(ModelError, match="finite"):
            call()
        assert sum(graph.count for graph in recorder.graphs) > count, "it was a recorded pass that told"


def test_a_copy_has_recordings_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    net = subject()
    recorder = Recorder(monkeypatch, net)
    for _ in range(3):
        trace.class_gradients(net, batch())
    twin = copy.deepcopy(net)
    with torch.no_grad():
        twin[4].weight.mul_(2)
    found, *count = recorder(lambda: trace.class_gradients(twin, batch()).norms)
    assert count == [1, 0]
    assert torch.allclose(found, trace.reference.class_gradients(twin, batch()).norms, rtol=1e-9)


def test_recordings_serve_calls_inside_of_the_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    net = subject()
    classifier = Classifier(net)
    wanted = trace.class_gradients(net, batch()).norms
    original = modes.preserved
    recorder = Recorder(monkeypatch, net)
    before = state(net)
    surroundings: list[Any] = [original, modes.tracing]
    for surround in surroundings:
        counts = []
        for _ in range(4):
            with surround(classifier):
                inner = state(net)
                tables, *count = recorder(lambda: api.gradient_norms(classifier, batch()))
                assert identical(inner, state(net))
            counts.append(count)
            assert torch.allclose(tables["classes"].norms, wanted, rtol=1e-12)
        assert counts == [[1, int(surround is modes.tracing)], [1, 0], [0, 1], [0, 1]]
        assert identical(before, state(net))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_replayed_results_are_ordinary_tensors(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net = subject()
    recorder = Recorder(monkeypatch, net)
    for i in range(4):
        with mode():
            enabled = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            tables, entered, _ = recorder(lambda: api.gradient_norms(Classifier(net), batch()))
            assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == enabled
        assert entered == (i < 2)
        for t in (tables["classes"].norms, tables["classes"].probabilities):
            assert not t.is_inference() and not t.requires_grad


class Busy(nn.Module):
    """Does something else in every pass, besides giving logits."""

    def __init__(self, does: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.first, self.drop, self.head, self.does = nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3), does
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(4))
        self.note = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.first(x))
        self.does(self, h.detach())
        return self.head(torch.tanh(h))


PURE: dict[str, Callable[[Any, Tensor], Any]] = {
    "nothing": lambda m, h: None,
    "reads": lambda m, h: m.calls + 1,
}
IMPURE: dict[str, Callable[[Any, Tensor], Any]] = {
    "counts": lambda m, h: m.calls.add_(1),
    "the same value": lambda m, h: m.calls.fill_(0),
    "what came last": lambda m, h: m.calls.copy_(h[0]),
    "past autograd": lambda m, h: m.calls.data.copy_(h[0]),
    "a plain attribute": lambda m, h: m.note.mul_(1),
    "draws": lambda m, h: torch.rand(1, device=h.device),
    "drops": lambda m, h: F.dropout(h, training=True),
}


def check_purity(does: Callable[[Any, Tensor], Any], pure: bool, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    net = ready(Busy(does)).to(device, torch.float32).train()
    recorder = Recorder(monkeypatch, net, fake=device == "cpu")
    for i in range(5):
        before, random = state(net), modes.state.Generators()
        _, entered, _ = recorder(lambda i=i: trace.class_gradients(net, batch(i)))
        assert identical(before, state(net)) and not random.drawn()
        assert entered == (0 if pure and i > 1 else 1)
    assert [recording and recording.pure for recording in replay._recordings.values()] == [pure]


@pytest.mark.parametrize("name", [*PURE, *IMPURE])
def test_what_a_replay_changes_is_put_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_purity((PURE | IMPURE)[name], name in PURE, monkeypatch, "cpu")


def test_a_recording_that_nobody_looked_at_is_not_pure() -> None:
    assert not replay._Recording(None, torch.zeros(1), (torch.zeros(1), {})).pure


def test_logits_that_are_not_finite_give_the_same_error_after_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    net = subject()
    recorder = Recorder(monkeypatch, net)
    for _ in range(3):
        trace.class_gradients(net, batch())
    with torch.no_grad():
        net[4].bias.fill_(torch.inf)
    before = state(net)
    words = []
    for _ in range(2):
        count = recorder.graphs[0].count
        with pytest.raises(ModelError, match="finite") as raised:
            recorder(lambda: trace.class_gradients(net, batch()))
        words.append((str(raised.value), recorder.graphs[0].count - count))
        assert identical(before, state(net))
        replay.clear()
    assert words[0][0] == words[1][0] and [count for _, count in words] == [2, 0]  # once more, to say what is wrong


@pytest.mark.parametrize("error", [ValueError("the model's own"), KeyboardInterrupt()])
def test_an_error_after_a_replay_leaves_the_model_as_found(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two inputs are replayed, the last one is not: the model runs, and fails."""
    fails: list[BaseException] = []

    def does(m: Any, h: Tensor) -> None:
        if fails:
            m.calls.add_(1)
            raise fails[0]

    net = ready(Busy(does)).train()
    net.first.requires_grad_(False)
    recorder = Recorder(monkeypatch, net)
    for _ in range(3):
        trace.class_gradients(net, batch(), chunk=2)
    fails.append(error)
    before, entered, count = state(net), recorder.entered, recorder.graphs[0].count
    recorder.graphs[0].work = lambda x, check: recorder.graphs[0].result
    with pytest.raises(type(error)):
        trace.class_gradients(net, batch(count=3), chunk=2)
    assert (recorder.entered, recorder.graphs[0].count) == (entered + 1, count + 1)
    assert identical(before, state(net))


def test_the_proof_for_silent_parameters_is_made_in_eval_mode_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    net = ready(Busy(lambda m, h: m.idle(h)))
    net.idle = nn.Linear(4, 4).double()
    net.train()
    recorder = Recorder(monkeypatch, net)
    for _ in range(4):  # in training mode dropout would change the logits, and the proof would fail
        before = state(net)
        assert recorder(lambda: trace.class_gradients(net, batch()))[1] == 1
        assert identical(before, state(net))
    assert recorder.graphs[0].count == 2


def test_copies_in_parts_run_in_eval_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out although everything was recorded: the model runs after all."""
    net, settings = subject(), {"sigma": 0.1, "samples": 3}
    recorder = Recorder(monkeypatch, net)
    wanted = trace.class_gradients(net, batch(), **settings).norms
    for _ in range(2):
        trace.class_gradients(net, batch(), **settings)

    def run(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(replay, "run", run)
    before = state(net)
    found, entered, _ = recorder(lambda: trace.class_gradients(net, batch(), **settings))
    assert entered == 1 and identical(before, state(net))
    assert torch.allclose(found.norms, wanted, rtol=1e-9)


def test_a_model_that_does_not_take_channels_last_is_replayed_without(monkeypatch: pytest.MonkeyPatch) -> None:
    class View(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.convolution(x).relu().view(len(x), -1))

    net = ready(View())
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    wanted = trace.class_gradients(net, x).norms
    recorder = Recorder(monkeypatch, net)
    for i in range(4):
        found, entered, _ = recorder(lambda: trace.class_gradients(net, x))
        assert torch.allclose(found.norms, wanted, rtol=1e-9)
        assert entered == (i < 2)


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


@needs_gpu
@pytest.mark.parametrize("name", [*PURE, "sets", *IMPURE])
def test_recorded_kernels_that_write_are_told_from_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pure = PURE | {"sets": lambda m, h: setattr(m, "seen", h)}  # what Python does is not done again
    check_purity((pure | IMPURE)[name], name in pure, monkeypatch, "cuda")


@needs_gpu
def test_a_model_with_batch_norm_is_pure() -> None:
    net = model().cuda()
    for _ in range(3):
        trace.class_gradients(net, torch.randn(8, 3, device="cuda"))
    assert [recording and recording.pure for recording in replay._recordings.values()] == [True]
