"""Inserted dropout as a distribution; where the layer is found and what the masks do is tested with the score."""

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.posteriors import InsertedDropout
from nescio.scores.decomposition import decompose
from nescio.types import InputError


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_its_epistemic_part_is_the_score(model: nn.Module, x: Tensor) -> None:
    p = InsertedDropout(model, p=0.3, samples=20, seed=2).predict(x)
    score = nescio.score(model, x, "inserted_dropout", samples=20, seed=2, rate=0.3)
    assert p.shape == (20, 7, 3)
    torch.testing.assert_close(decompose(p).epistemic, score, rtol=1e-9, atol=1e-12)


def test_batches_do_not_matter_and_seeds_do(model: nn.Module, x: Tensor) -> None:
    p = InsertedDropout(model, samples=5).predict(x)
    torch.testing.assert_close(InsertedDropout(model, samples=5).predict(x.split(2)), p, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(InsertedDropout(model, samples=5, seed=1).predict(x), p)
    assert not torch.allclose(InsertedDropout(model, samples=5, layer="0").predict(x), p)


def test_the_rate_is_checked(model: nn.Module) -> None:
    for p in (0.0, 1.0, -0.1, float("nan"), True, "0.4"):
        with pytest.raises(InputError, match="expected p to be a finite number above 0 and below 1"):
            InsertedDropout(model, p=p)  # type: ignore[arg-type]
