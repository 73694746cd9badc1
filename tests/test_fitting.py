"""Methods that need training data, and a posterior in the place of a model: one pass, clear words."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import nescio
from nescio import scores
from nescio.posteriors.deterministic import Deterministic
from nescio.posteriors.inserted import InsertedDropout
from nescio.quantities import Logits
from nescio.scoring import fit, score
from nescio.types import InputError, ModelError, Posterior

FITTED: list[Any] = [
    scores.Mahalanobis(),
    scores.KNN(k=3),
    scores.Laplace(samples=5),
    scores.Mahalanobis(layer="0", covariance="class"),
]


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(), nn.Linear(6, 3)).double()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.rand(50, 4, generator=generator, dtype=torch.float64), torch.arange(50) % 3


def test_a_list_is_fitted_in_one_pass_and_gives_what_its_methods_give_alone(
    model: nn.Sequential, x: Tensor, data: tuple[Tensor, Tensor]
) -> None:
    given: list[int] = []

    def once() -> Iterator[tuple[Tensor, Tensor]]:
        for part in zip(*(tensor.split(20) for tensor in data), strict=True):
            given.append(len(part[0]))
            yield part

    together = score(model, x, [*FITTED, "entropy"], fit=once())
    assert given == [20, 20, 10]
    assert list(together) == ["mahalanobis", "knn", "laplace", "mahalanobis(layer='0', covariance='class')", "entropy"]
    for method, found in zip([*FITTED, "entropy"], together.values(), strict=True):
        alone = score(model, x, method, **({} if method == "entropy" else {"fit": data}))
        torch.testing.assert_close(found, alone, rtol=1e-8, atol=1e-12)


def test_a_method_is_fitted_once_and_used_often(model: nn.Sequential, x: Tensor, data: tuple[Tensor, Tensor]) -> None:
    fitted = fit(model, [*FITTED, "gen"], DataLoader(TensorDataset(*data), batch_size=16))
    assert [one.name for one in fitted] == ["mahalanobis", "knn", "laplace", "mahalanobis", "gen"]
    found = score(model, x, fitted)
    for key, truth in score(model, x, [*FITTED, "gen"], fit=data).items():
        torch.testing.assert_close(found[key], truth, rtol=1e-8, atol=1e-12)
    one: Any = fit(model, "knn", data, k=5, progress=False)
    assert one == scores.KNN(k=5) and one.is_fitted
    torch.testing.assert_close(score(model, x[:4], one), score(model, x, one)[:4], rtol=1e-10, atol=0.0)
    report = score(model, x, one, report=True)
    assert torch.equal(report.scores, score(model, x, one)) and report.error is None


def test_fitted_and_unfitted_ones_can_be_mixed(model: nn.Sequential, x: Tensor, data: tuple[Tensor, Tensor]) -> None:
    half = (data[0][:25], data[1][:25])
    one = fit(model, scores.KNN(k=3), half)
    together = score(model, x, [one, "mahalanobis"], fit=data)
    assert torch.equal(together["knn"], score(model, x, one))  # not fitted anew
    assert torch.equal(together["mahalanobis"], score(model, x, "mahalanobis", fit=data))


def test_far_away_is_more_uncertain_than_the_training_data(model: nn.Sequential, data: tuple[Tensor, Tensor]) -> None:
    near, far = data[0][:9], 10.0 + 10.0 * data[0][:9]
    for method in FITTED:
        fitted = fit(model, method, data)
        if method.name != "laplace":
            assert score(model, far, fitted).min() > score(model, near, fitted).max()


def test_missing_and_needless_training_data_are_said(
    model: nn.Sequential, x: Tensor, data: tuple[Tensor, Tensor]
) -> None:
    with pytest.raises(
        InputError, match=r"expected training data for 'knn', 'laplace', got none; give .* fit=\(x, y\)"
    ):
        score(model, x, ["knn", "entropy", "laplace"])
    with pytest.raises(
        InputError, match="has to be fitted beside training data, got 'entropy', 'gen'; leave the training"
    ):
        score(model, x, ["entropy", "gen"], fit=data)
    with pytest.raises(
        InputError, match="has to be fitted beside training data, got 'mahalanobis'; leave the training"
    ):
        score(model, x, fit(model, "mahalanobis", data), fit=data)
    with pytest.raises(InputError, match="has to be fitted beside training data, got 'entropy'"):
        fit(model, "entropy", data)
    with pytest.raises(InputError, match="expected training data of at least one input, got none"):
        fit(model, "mahalanobis", (x[:0], torch.arange(0)))
    with pytest.raises(InputError, match="labels are needed here"):
        fit(model, "mahalanobis", [x])
    with pytest.raises(InputError, match="expected finite inputs, got NaN"):
        fit(model, "mahalanobis", (x * torch.nan, torch.arange(9)))
    with pytest.raises(InputError, match="expected class indices below 3, as the model has 3 classes, got 3"):
        fit(model, "laplace", (x, torch.arange(9) % 4))
    with pytest.raises(InputError, match="expected chunk to be a whole number of at least 1, got 0"):
        fit(model, "mahalanobis", data, chunk=0)
    with pytest.raises(ModelError, match="expected the model that 'laplace' was fitted with, got another one"):
        score(nn.Linear(4, 3).double(), x, fit(model, "laplace", data))


def test_the_bar_of_fitting(model: nn.Sequential, x: Tensor, data: Any, capsys: pytest.CaptureFixture[str]) -> None:
    score(model, x, "mahalanobis", fit=data, progress=True)
    shown = capsys.readouterr().err
    assert "fitting" in shown and "50/50" in shown and "scoring" in shown and "9/9" in shown


def test_a_posterior_in_the_place_of_a_model(model: nn.Sequential, x: Tensor) -> None:
    posterior = InsertedDropout(model, samples=6)
    p = posterior.predict(x)

    def h(q: Tensor) -> Tensor:
        return -(q * q.log()).sum(-1)

    found = score(posterior, x, ["mutual_information", "entropy", "max_probability", "gen", "exgrad_v"])
    torch.testing.assert_close(found["mutual_information"], h(p.mean(0)) - h(p).mean(0), rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(found["entropy"], h(p.mean(0)), rtol=1e-10, atol=0.0)
    torch.testing.assert_close(found["max_probability"], 1 - p.mean(0).amax(1), rtol=1e-9, atol=0.0)
    torch.testing.assert_close(found["gen"], scores.GEN()(p.mean(0).log()), rtol=1e-9, atol=0.0)
    torch.testing.assert_close(found["exgrad_v"], -(p.mean(0) - 1 / 3).abs().sum(1), rtol=1e-9, atol=1e-12)
    parts = score(posterior, [x[:4], x[4:]], "mutual_information")
    torch.testing.assert_close(parts, found["mutual_information"], rtol=1e-8, atol=1e-12)


class Own:
    """A posterior of one's own, which is no part of nescio."""

    def predict(self, x: Tensor, *, progress: bool | None = None) -> Tensor:
        one = torch.stack([x[:, 0], 1 - x[:, 0]], 1)
        return torch.stack([one, one.flip(1)])


def test_anything_that_predicts_is_a_posterior(x: Tensor) -> None:
    assert isinstance(Own(), Posterior)
    p = torch.stack([x[:, 0], 1 - x[:, 0]], 1)
    expected = math.log(2.0) + (p * p.log()).sum(1)
    torch.testing.assert_close(score(Own(), x, "mutual_information"), expected, rtol=1e-9, atol=1e-14)


class Predicts(nn.Module):
    """A model that has a method `predict` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

    def predict(self, x: Tensor) -> Tensor:
        raise AssertionError("a model is called, not asked to predict")


def test_a_module_is_a_model_also_when_it_can_predict(x: Tensor) -> None:
    model = Predicts()
    assert torch.equal(score(model, x, "entropy"), score(model.layer, x, "entropy"))


class Levels:
    name = "levels"
    needs = (Logits(),)
    needs_level = True

    def __call__(self, logits: Tensor) -> Tensor:
        return logits[:, 0]


@pytest.mark.parametrize("method", ["energy", "regrad", "perturb_x", "mahalanobis", "laplace", Levels()])
def test_what_a_posterior_cannot_give_is_said(model: nn.Sequential, x: Tensor, data: Any, method: Any) -> None:
    name = method if isinstance(method, str) else method.name
    words = rf"probabilities alone with a posterior \(Deterministic\), got '{name}'; use mutual_information, entropy"
    with pytest.raises(ModelError, match=words):
        score(Deterministic(model), x, ["entropy", method])


def test_other_words_about_posteriors(model: nn.Sequential, x: Tensor, data: Any) -> None:
    with pytest.raises(ModelError, match=r"expected a posterior for 'mutual_information', .*MCDropout\(model\)"):
        score(model, x, "mutual_information")
    with pytest.raises(InputError, match="expected a posterior with at least two samples, got one"):
        score(Deterministic(model), x, "mutual_information")
    with pytest.raises(
        InputError, match="expected no output= beside a posterior, which gives probabilities, got 'logits'"
    ):
        score(Deterministic(model), x, "entropy", output="logits")
    with pytest.raises(ModelError, match="expected a model to fit a method with, got the posterior Deterministic"):
        fit(Deterministic(model), "knn", data)
    torch.testing.assert_close(
        score(Deterministic(model), x, "entropy"), nescio.score(model, x, "entropy"), rtol=1e-9, atol=0.0
    )
