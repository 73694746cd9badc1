"""Requests are answered once, shared where they can be, and in any number of chunks alike."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import trace
from nescio.models import Classifier
from nescio.quantities import (
    AttackedLogits,
    DropoutLogits,
    Features,
    GradientNorms,
    Logits,
    NoisyInputLogits,
    NoisyParameterLogits,
    compute,
)
from nescio.trace.runtime import engine_gradients
from nescio.types import InputError, ModelError, NormTable


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.last = nn.Linear(6, 3)
        self.calls = 0
        self.rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.rows = max(self.rows, len(x))
        return self.last(torch.tanh(self.first(x)))


@pytest.fixture
def model() -> Counting:
    torch.manual_seed(0)
    return Counting().double()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_logits_are_the_models_in_float64_on_the_cpu(model: Counting, x: Tensor) -> None:
    model.float()
    found = compute(Classifier(model), x, [Logits()])[Logits()]
    assert isinstance(found, Tensor) and found.dtype == torch.float64 and found.device.type == "cpu"
    torch.testing.assert_close(found, model(x.float()).detach().double(), rtol=1e-6, atol=1e-7)
    assert not found.requires_grad


def test_equal_requests_are_answered_once(model: Counting, x: Tensor) -> None:
    compute(Classifier(model), x, [Logits()])
    once = model.calls
    compute(Classifier(model), x, [Logits(), Logits(), Logits()])
    assert once == 1 and model.calls == 2


def test_gradients_that_differ_in_their_rows_share_one_call(
    model: Counting, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    original = trace.gradient_norms

    def counted(*args: Any, rows: tuple[str, ...], **kwargs: Any) -> Any:
        asked.append(rows)
        return original(*args, rows=rows, **kwargs)

    monkeypatch.setattr(trace, "gradient_norms", counted)
    requests = [
        GradientNorms("classes"),
        GradientNorms("uniform"),
        GradientNorms("classes", norm=1),
        GradientNorms("expected"),
        GradientNorms("classes"),
    ]
    values = compute(Classifier(model), x, requests)
    assert asked == [("classes", "uniform", "expected"), ("classes",)]
    assert len(values) == 4
    for request, rows in [(requests[0], 3), (requests[1], 1), (requests[2], 3), (requests[3], 1)]:
        table = values[request]
        assert isinstance(table, NormTable) and table.norms.shape == (7, rows, 2)
        assert table.layers == ("first", "last") and table.norms.dtype == table.probabilities.dtype == torch.float64


@pytest.mark.parametrize("request_", [Logits(), GradientNorms("classes"), GradientNorms("uniform")])
def test_the_batch_is_looked_at_once(request_: Any, model: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is waited for each time."""
    looks: list[Any] = []
    prepare = Classifier.prepare
    monkeypatch.setattr(Classifier, "prepare", lambda self, x: looks.append(x) or prepare(self, x))
    compute(Classifier(model), torch.randn(40, 4), [request_])
    assert len(looks) == 1
    trace.class_gradients(model, torch.ones(1, 4))
    assert len(looks) == 2  # what nobody has looked at is looked at


def test_gradient_norms_are_the_references(model: Counting, x: Tensor) -> None:
    for settings in [{}, {"norm": 1, "layers": "tensor"}, {"sigma": 0.3, "samples": 3, "seed": 5, "smoothing": "mean"}]:
        requests = [GradientNorms(rows, **settings) for rows in ("classes", "uniform")]  # type: ignore[arg-type]
        values = compute(Classifier(model), x, requests)
        norms, p, layers = trace.reference.gradient_norms(Classifier(model), x, rows=("classes", "uniform"), **settings)
        for request in requests:
            table = values[request]
            assert isinstance(table, NormTable) and table.layers == layers
            torch.testing.assert_close(table.norms, norms[request.rows], rtol=1e-9, atol=0.0)
            torch.testing.assert_close(table.probabilities, p, rtol=1e-12, atol=0.0)


def test_the_chunk_bounds_the_rows_of_a_forward_and_changes_nothing(model: Counting, x: Tensor) -> None:
    requests = [
        Logits(),
        NoisyInputLogits(0.1, 5),
        NoisyParameterLogits(0.1, 5),
        AttackedLogits(0.1, 5),
        DropoutLogits(0.4, 5),
    ]
    whole = compute(Classifier(model), x, requests)
    model.rows = 0
    parts = compute(Classifier(model), x, requests, chunk=2)
    assert model.rows == 2
    for request in requests:
        torch.testing.assert_close(parts[request], whole[request], rtol=1e-12, atol=1e-13)


def test_without_inputs_or_with_strange_requests_it_says_so(model: Counting, x: Tensor) -> None:
    with pytest.raises(InputError, match="expected a batch of at least one input, got none; leave empty batches out"):
        compute(Classifier(model), x[:0], [Logits()])
    with pytest.raises(InputError, match=r"expected requests of nescio.quantities, such as Logits\(\), got 'z'"):
        compute(Classifier(model), x, ["z"])  # type: ignore[list-item]


def test_without_parameters_gradients_are_refused_and_logits_are_not() -> None:
    x = torch.rand(3, 4)
    assert torch.equal(compute(Classifier(nn.Identity()), x, [Logits()])[Logits()], x.double())
    with pytest.raises(ModelError, match="entropy"):
        compute(Classifier(nn.Identity()), x, [GradientNorms("classes")])
    with pytest.raises(ModelError, match="expected a model with floating-point parameters to add noise to, got one"):
        compute(Classifier(nn.Identity()), x, [NoisyParameterLogits(0.1)])


@pytest.mark.parametrize("request_", [Logits(), NoisyInputLogits(0.1, 2), DropoutLogits(0.4, 2)])
def test_a_model_that_draws_and_counts_is_left_as_it_was(request_: Any) -> None:
    class Restless(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            return super().forward(x + 0 * torch.rand(1))

    model, state = Restless(), torch.get_rng_state()
    compute(Classifier(model), torch.rand(3, 4, generator=torch.Generator()), [request_])
    assert model.count == 0 and model.training and torch.equal(torch.get_rng_state(), state)


FIVE = ["regrad", "evengrad", "entropy", "energy", "gen"]


@pytest.mark.parametrize("count", [3, 7])  # by the loop, and by the engine
def test_five_scores_take_the_passes_of_one(model: Counting, x: Tensor, count: int) -> None:
    def passes(method: str | list[str]) -> tuple[int, int, Any]:
        backward: list[int] = []
        own, before = engine_gradients._RUN, model.calls
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine_gradients, "_RUN", lambda *a, **k: (backward.append(1), own(*a, **k))[1])
            result = nescio.score(model, x[:count], method)
        return model.calls - before, len(backward), result

    alone = {name: nescio.score(model, x[:count], name) for name in FIVE}
    forward, backward, together = passes(FIVE)
    assert (forward, backward) == passes("regrad")[:2]
    assert forward > 0 and backward > 0
    for name in FIVE:
        torch.testing.assert_close(together[name], alone[name], rtol=1e-12, atol=0.0)


def test_logits_beside_gradients_are_those_of_a_forward_pass(model: Counting, x: Tensor) -> None:
    classifier, norms = Classifier(model.float()), GradientNorms("classes")
    answers = compute(classifier, x, [Logits(), norms], chunk=4)
    assert list(answers) == [Logits(), norms]
    assert answers[Logits()].dtype == torch.float64 and not answers[Logits()].requires_grad
    torch.testing.assert_close(answers[Logits()], compute(classifier, x, [Logits()])[Logits()], rtol=1e-5, atol=1e-6)
    assert compute(classifier, x, [Logits(), Features(), norms])[Features()].shape == (7, 6)  # these need their own
