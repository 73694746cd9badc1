"""A quantity of one's own, with a score that uses it, is one file: this one. It is computed, fitted and streamed."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.batch.jobs import Job, identity
from nescio.batch.streaming import stream
from nescio.data import read_table
from nescio.data.parts import Parts
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.quantities import Budget, Features, Fit, ForwardPass, ForwardRequest, Logits, Request, compute
from nescio.scores import FittedScore, Score, register, registry
from nescio.specs import DataSpec, ModelSpec
from nescio.types import ModelError


@dataclass(frozen=True)
class Peaks(ForwardRequest):
    """The largest output of a module, float64 [N]: read in the shared forward pass."""

    layer: str

    @property
    def listens_at(self) -> tuple[str, ...]:
        return (self.layer,)

    def read(self, forward: ForwardPass) -> Tensor:
        return forward.heard[self.layer].value.double().flatten(1).amax(1).cpu()


@dataclass(frozen=True)
class MeanInput(Request):
    """The mean of the training inputs, which is learnt batch by batch, then the distance to it, float64 [N]."""

    mean: tuple[float, ...] | None = None

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        assert isinstance(x, Tensor)
        return (x.double() - torch.tensor(self.mean, dtype=torch.float64)).norm(dim=1)

    def start_fit(self, classifier: Classifier) -> Fit:
        return RunningMean(self)


class RunningMean(Fit):
    needs_answer = False

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.total, self.count = torch.zeros((), dtype=torch.float64), 0

    def absorb(self, x: Inputs, labels: Tensor, answer: Any) -> None:
        assert answer is None and isinstance(x, Tensor)
        self.total, self.count = self.total + x.double().sum(0), self.count + len(labels)

    def finish(self) -> MeanInput:
        return replace(self.request, mean=tuple((self.total / self.count).tolist()))  # type: ignore[return-value]


@dataclass(frozen=True)
class Spread(Request):
    """The spread of the samples of a posterior, which alone can answer it, float64 [N]."""

    of_model, of_posterior = False, True

    def answer_from_predictions(self, p: Tensor) -> Tensor:
        return p.var(0).sum(1)


@dataclass(frozen=True, kw_only=True)
class Own(FittedScore):
    """How much the peak of a layer lies above the largest of the training data, and how far the input lies off."""

    layer: str = "0"

    name, summary, requires, cost, paper = "own", "Peaks and distances.", "forward", "1", "none"

    @property
    def training(self) -> tuple[Request, ...]:
        return Peaks(self.layer), MeanInput()

    @property
    def needs(self) -> tuple[Request, ...]:
        return Peaks(self.layer), MeanInput() if self._state is None else self._state[1]

    def _fit(self, peaks: Tensor, mean: MeanInput, labels: Tensor) -> Any:
        return peaks.amax(), mean

    def __call__(self, peaks: Tensor, distances: Tensor) -> Tensor:
        return peaks - self._fitted_state()[0] + distances


@dataclass(frozen=True, kw_only=True)
class OwnSpread(Score):
    name, summary, requires, cost, paper = "own_spread", "Spread of samples.", "posterior", "N", "none"
    needs = (Spread(),)

    def __call__(self, spread: Tensor) -> Tensor:
        return spread


MODELS = """
import torch
from torch import nn

def build():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nn.Sequential]:
    """A network; the two scores are registered while the test lasts."""
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))
    register(Own)
    register(OwnSpread)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ownmodels.py").write_text(MODELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import ownmodels  # type: ignore[import-not-found]

    yield ownmodels.build()
    sys.modules.pop("ownmodels")


@pytest.fixture
def x() -> Tensor:
    return torch.rand(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    return torch.rand(40, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64), torch.arange(40) % 3


def expected(model: nn.Sequential, x: Tensor, data: tuple[Tensor, Tensor]) -> Tensor:
    with torch.no_grad():
        highest = model[0](data[0]).amax()
        return model[0](x).amax(1) - highest + (x - data[0].mean(0)).norm(dim=1)


def passes_of(model: nn.Module) -> list[int]:
    """Grows by the number of inputs with every forward pass."""
    sizes: list[int] = []
    model.register_forward_hook(lambda module, given, gave: sizes.append(len(gave)))
    return sizes


def test_it_is_computed_in_the_shared_forward_pass(model: nn.Sequential, x: Tensor) -> None:
    sizes = passes_of(model)
    answers = compute(Classifier(model), x, [Logits(), Peaks("0"), Features("0"), Features()])
    assert sizes == [9]
    assert torch.equal(answers[Peaks("0")], model[0](x).detach().amax(1))
    assert torch.equal(answers[Peaks("0")], answers[Features("0")].amax(1))
    parts = compute(Classifier(model), x, [Peaks("0")], chunk=2)
    torch.testing.assert_close(parts[Peaks("0")], answers[Peaks("0")], rtol=1e-12, atol=0.0)


def test_a_score_from_it_is_fitted_and_batched(model: nn.Sequential, x: Tensor, data: tuple[Tensor, Tensor]) -> None:
    truth = expected(model, x, data)
    torch.testing.assert_close(nescio.score(model, x, "own", fit=data), truth, rtol=1e-10, atol=1e-12)
    batches = [(data[0][:7], data[1][:7]), (data[0][7:], data[1][7:])]
    own, beside = nescio.fit(model, ["own", "mahalanobis"], batches, chunk=5)
    for given, more in [(x, {}), ([x[:4], x[4:]], {}), (x, {"chunk": 2})]:
        torch.testing.assert_close(nescio.score(model, given, own, **more), truth, rtol=1e-10, atol=1e-12)
    assert "own" in str(nescio.methods()) and nescio.score(model, x, beside).shape == (9,)


def test_it_shares_the_pass_with_a_guard_and_other_scores(
    model: nn.Sequential, x: Tensor, data: tuple[Tensor, Tensor]
) -> None:
    with pytest.warns(UserWarning, match="the reference has 40 different inputs"):
        guard = nescio.Guard(model).fit(data[0])
    own = nescio.fit(model, "own", data)
    sizes = passes_of(model)
    found = nescio.score(model, x, ["entropy", own, guard])
    assert sizes == [9]
    torch.testing.assert_close(found["own"], expected(model, x, data), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found["guard"], guard.check(x).score, rtol=1e-12, atol=1e-12)


def test_a_posterior_answers_it(model: nn.Sequential, x: Tensor) -> None:
    posterior = nescio.posteriors.InsertedDropout(model, samples=4)
    assert torch.equal(nescio.score(posterior, x, "own_spread"), posterior.predict(x).var(0).sum(1))
    with pytest.raises(ModelError, match="expected a posterior for 'own_spread'"):
        nescio.score(model, x, "own_spread")
    with pytest.raises(ModelError, match="expected a method that needs probabilities alone"):
        nescio.score(posterior, x, "own", fit=(x, torch.arange(9) % 3))


def test_it_is_streamed(model: nn.Sequential, x: Tensor, data: tuple[Tensor, Tensor]) -> None:
    np.savez("x.npz", x=x.numpy())
    np.savez("training.npz", x=data[0].numpy(), y=data[1].numpy())
    job = Job(ModelSpec("ownmodels:build"), DataSpec("x.npz"), (Own(),), fit=DataSpec("training.npz"), batch=2)
    ready = job.open()
    with Parts("out", len(ready.rows), 4, identity(job, ready), ending=".csv") as parts:
        stream(ready, parts)
        parts.join("out.csv")
    column = torch.as_tensor(read_table("out.csv")["own"])
    torch.testing.assert_close(column, expected(model, x, data), rtol=1e-10, atol=1e-12)
