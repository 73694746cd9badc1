"""pytorch-ood: a method is a detector there, a detector is a method here, and equal definitions give equal numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

import nescio
from nescio.types import InputError

pytorch_ood = pytest.importorskip("pytorch_ood", reason="needs the extra ood: pip install 'nescio[ood]'")
from pytorch_ood import detector as theirs  # noqa: E402
from pytorch_ood.benchmark import Benchmark  # noqa: E402
from pytorch_ood.metrics import OODMetrics  # noqa: E402

from nescio.doors.pytorch_ood import ScoreDetector  # noqa: E402


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


@pytest.fixture(scope="module")
def training() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(300, 6, generator=generator), torch.arange(300) % 3


@pytest.fixture(scope="module")
def x() -> Tensor:
    return 2.0 * torch.randn(40, 6, generator=torch.Generator().manual_seed(3))


def of_features(model: nn.Sequential, kind: Any, **settings: Any) -> Any:
    return kind(model[:-1], **settings)


def pairs(model: Any) -> dict[str, tuple[Any, str, dict[str, Any], float, float]]:
    """Their detector, our method with settings, and the factor and the summand that lead from ours to theirs."""
    last = model[-1]
    return {
        "energy": (theirs.EnergyBased(model), "energy", {}, 1.0, 0.0),
        "max softmax": (theirs.MaxSoftmax(model), "max_probability", {}, 1.0, -1.0),
        "max logit": (theirs.MaxLogit(model), "max_logit", {}, 1.0, 0.0),
        "entropy": (theirs.Entropy(model), "entropy", {}, 1.0, 0.0),
        "gen": (theirs.GEN(model), "gen", {}, 1 / 3, 0.0),  # a mean over the classes in the place of the sum
        "knn": (theirs.KNN(model[:-1], k=5), "knn", {"k": 5}, 1.0, 0.0),
        "vim": (theirs.ViM(model[:-1], d=6, w=last.weight, b=last.bias), "vim", {"dimension": 6}, 1.0, 0.0),
        # half of the distance, in the sum of squares in the place of their mean over 300 inputs
        "mahalanobis": (theirs.Mahalanobis(model[:-1]), "mahalanobis", {"shrinkage": 0.0}, 0.5 / 300, 0.0),
    }


NAMES = ["energy", "max softmax", "max logit", "entropy", "gen", "knn", "vim", "mahalanobis"]


@pytest.mark.parametrize("name", NAMES)
def test_equal_definitions_give_equal_numbers_in_both_directions(
    name: str, model: nn.Module, training: tuple[Tensor, Tensor], x: Tensor
) -> None:
    detector, method, settings, factor, summand = pairs(model)[name]
    loader = DataLoader(TensorDataset(*training), batch_size=64)
    with torch.no_grad():
        wanted = detector.fit(loader).predict(x).double()
    ours = ScoreDetector(model, method, **settings)
    assert ours.requires_fit == detector.requires_fit
    found = ours.fit(loader).predict(x)
    assert found.dtype == torch.float64 and not ours.requires_fit
    torch.testing.assert_close(factor * found + summand, wanted, rtol=1e-3, atol=1e-5)
    as_ours = nescio.scores.from_pytorch_ood(pairs(model)[name][0])
    fit = training if detector.requires_fit else None
    torch.testing.assert_close(nescio.score(model, x, as_ours, fit=fit), wanted, rtol=1e-3, atol=1e-5)


def test_a_detector_with_a_model_of_its_own_is_a_score(model: nn.Module, x: Tensor) -> None:
    odin = theirs.ODIN(model, eps=0.01)
    found = nescio.score(model, x, nescio.scores.from_pytorch_ood(odin))
    torch.testing.assert_close(found, odin.predict(x).detach().double(), rtol=1e-5, atol=1e-6)


def test_foreign_training_inputs_are_left_out(model: nn.Module, training: tuple[Tensor, Tensor], x: Tensor) -> None:
    mixed = torch.cat([training[0], 50 + training[0]]), torch.cat([training[1], torch.full((300,), -1)])
    plain, with_foreign = (ScoreDetector(model, "knn").fit([data]).predict(x) for data in (training, mixed))
    assert torch.equal(plain, with_foreign)


def test_the_guard_is_a_detector_that_their_metrics_take(model: nn.Module, training: tuple[Tensor, Tensor]) -> None:
    detector = ScoreDetector(model, "guard")
    assert detector.requires_fit
    detector.fit([training])
    metrics = OODMetrics()
    known, foreign = torch.randn(60, 6), 8 + torch.randn(60, 6)
    for x, label in ((known, 0), (foreign, -1)):
        metrics.update(detector(x), torch.full((60,), label))
    assert metrics.compute()["AUROC"] > 0.95


def test_their_benchmarks_run_it_beside_their_own(model: nn.Module, training: tuple[Tensor, Tensor]) -> None:
    class Small(Benchmark):
        ood_names = ("far",)

        def train_set(self) -> Any:
            return TensorDataset(*training)

        def test_sets(self, known: bool = True, unknown: bool = True) -> Any:
            far = TensorDataset(8 + torch.randn(50, 6), torch.full((50,), -1))
            return [ConcatDataset([TensorDataset(torch.randn(50, 6), torch.zeros(50).long()), far])]

    guard = ScoreDetector(model, "guard").fit(DataLoader(Small().train_set(), batch_size=64))
    rows = Small().evaluate([guard, theirs.EnergyBased(model)], {"batch_size": 32})
    assert [row["Dataset"] for row in rows] == ["far", "far"]
    assert rows[0]["AUROC"] > 0.95 and rows[0]["AUROC"] > rows[1]["AUROC"]


def test_logits_and_features_can_be_handed_over(model: Any, training: tuple[Tensor, Tensor], x: Tensor) -> None:
    with torch.no_grad():
        logits, features, known = model(x), model[:-1](x), model[:-1](training[0])
    entropy = ScoreDetector(None, "entropy").predict_logits(logits)
    torch.testing.assert_close(entropy, ScoreDetector(model, "entropy").predict(x), rtol=1e-5, atol=1e-6)
    knn = ScoreDetector(None, "knn").fit_features(known, training[1]).predict_features(features)
    torch.testing.assert_close(knn, ScoreDetector(model, "knn").fit([training]).predict(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="needs features alone, got 'entropy'"):
        ScoreDetector(None, "entropy").predict_features(features)
