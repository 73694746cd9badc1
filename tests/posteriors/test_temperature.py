"""Temperature and Platt scaling: the lowest loss there is, against scipy and a fine grid, around any distribution."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss
from torch import Tensor, nn

from nescio.posteriors import DeepEnsemble, Deterministic, MCDropout, Temperature
from nescio.posteriors.temperature import HIGHEST, LOWEST
from nescio.types import InputError


def held_out(samples: int = 1, count: int = 300, classes: int = 4, truth: float = 2.5, seed: int = 0) -> Any:
    """Logits that are `truth` times too large for their labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(count, classes)) * 1.5
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    y = np.array([rng.choice(classes, p=row) for row in p])
    noise = rng.normal(size=(samples, count, classes)) * (0.0 if samples == 1 else 0.7)
    return torch.from_numpy(truth * (z + noise)), torch.from_numpy(y)


def loss(z: Tensor, y: Tensor) -> float:
    return log_loss(y, z.softmax(-1).mean(0).numpy(), labels=range(z.shape[-1]))


def fitted(z: Tensor, y: Tensor, kind: Any = "temperature") -> Temperature:
    return Temperature(nn.Identity(), kind).fit_logits(z, y)


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("truth", [0.02, 1.0, 2.5, 40.0])
def test_no_other_temperature_is_better(samples: int, truth: float) -> None:
    z, y = held_out(samples, truth=truth)
    t = fitted(z, y).temperature
    assert t is not None
    best = loss(z / t, y)
    assert all(best <= loss(z / other, y) + 1e-13 for other in t * np.linspace(0.9, 1.1, 21))
    assert all(best <= loss(z / other, y) + 1e-13 for other in np.geomspace(LOWEST, HIGHEST, 60))
    if samples == 1:
        assert t == pytest.approx(truth, rel=0.25)
    found = scipy.optimize.minimize_scalar(
        lambda u: loss(z / math.exp(u), y), bracket=(math.log(t) - 0.3, math.log(t) + 0.5), tol=1e-12
    )
    assert math.log(t) == pytest.approx(found.x, abs=1e-6)


def test_the_slope_is_zero_there() -> None:
    """To more digits than the loss itself can tell."""
    z, y = held_out()
    u = torch.tensor(math.log(fitted(z, y).temperature or 0.0), dtype=torch.float64, requires_grad=True)
    value = nn.functional.cross_entropy(z[0] * (-u).exp(), y)
    (slope,) = torch.autograd.grad(value, u)
    assert abs(slope.item()) < 1e-13


def test_by_hand() -> None:
    """Three of four right with logits (±a): the best p is 3/4, so that a/T = log 3."""
    z = torch.tensor([[5.0, 0.0]] * 4)
    assert fitted(z, torch.tensor([0, 0, 1, 0])).temperature == pytest.approx(5.0 / math.log(3.0), rel=1e-13)


@given(st.integers(0, 10**6), st.floats(0.1, 10.0))
def test_scaled_logits_scale_the_temperature(seed: int, factor: float) -> None:
    z, y = held_out(count=40, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a, b = fitted(z, y).temperature, fitted(z * factor, y).temperature
    if a is not None and LOWEST * 10 < a < HIGHEST / 10:
        assert b == pytest.approx(a * factor, rel=1e-8)


def test_accuracy_does_not_move() -> None:
    z, y = held_out()
    model = Temperature(lambda x: x).fit_logits(z[0], y)
    assert torch.equal(model.predict(z[0])[0].argmax(-1), z[0].argmax(-1))
    torch.testing.assert_close(model.predict(z[0])[0], (z[0] / model.temperature).softmax(-1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("samples", [1, 3])
def test_platt_against_scipy(samples: int) -> None:
    z, y = held_out(samples, count=200, classes=3)
    z = z * torch.tensor([0.5, 1.0, 2.0]) + torch.tensor([0.0, 1.0, -1.0])

    def objective(v: np.ndarray) -> float:
        w, b = torch.from_numpy(v).view(2, 3)
        right = (z * w + b).log_softmax(-1)[:, torch.arange(200), y].exp().mean(0)
        return -right.log().mean().item() + 1e-6 * (((w - 1) ** 2).sum() + (b**2).sum()).item()

    model = fitted(z, y, "platt")
    assert model.scale is not None and model.shift is not None and model.temperature is None
    ours = torch.cat([model.scale, model.shift]).numpy()
    theirs = scipy.optimize.minimize(objective, np.r_[np.ones(3), np.zeros(3)], method="BFGS", options={"gtol": 1e-8})
    assert objective(ours) <= theirs.fun + 1e-10
    np.testing.assert_allclose(ours, theirs.x, atol=2e-3)
    one = fitted(z, y).temperature
    assert objective(ours) < loss(z / one, y)  # type: ignore[operator]


def test_platt_is_bounded_for_separable_data() -> None:
    z = torch.eye(3, dtype=torch.float64).repeat(5, 1) * 3
    model = fitted(z, torch.arange(15) % 3, "platt")
    assert model.scale is not None and model.scale.isfinite().all() and model.scale.abs().max() < 1e3
    p = model._scaled(z).softmax(-1)
    assert (p.argmax(-1) == torch.arange(15) % 3).all()


def test_predictions_that_are_all_right_end_at_the_bound() -> None:
    z = torch.eye(3, dtype=torch.float64).repeat(5, 1) * 3
    with pytest.warns(UserWarning, match=r"falls towards a temperature of 0, .* so it was set to the bound 0\.001"):
        assert fitted(z, torch.arange(15) % 3).temperature == pytest.approx(LOWEST)
    with pytest.warns(UserWarning, match=r"falls towards a temperature of infinity, .* the bound 1000"):
        assert fitted(z, (torch.arange(15) + 1) % 3).temperature == pytest.approx(HIGHEST)
    with pytest.warns(UserWarning, match="temperature of 0"):
        fitted(torch.stack([z, 2 * z]), torch.arange(15) % 3)
    assert fitted(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])).temperature == 1.0


def mostly_right(z: Tensor) -> Tensor:
    """Labels of which three in four are what the logits [S, N, C] say."""
    y = z.mean(0).argmax(-1)
    return torch.where(torch.arange(len(y)) % 4 == 0, (y + 1) % z.shape[-1], y)


class Foreign:
    """A distribution that is not ours; one of its probabilities is 0."""

    def predict(self, x: Any, *, progress: bool | None = None) -> Tensor:
        p = torch.cat([x.double().softmax(-1), torch.zeros(len(x), 1)], dim=1)
        return torch.stack([p, p.roll(1, 1).roll(-1, 1)])


def test_around_any_distribution() -> None:
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 4))
    ensemble = DeepEnsemble([nn.Linear(4, 4), model, nn.Linear(4, 4)])
    for base in (model, Deterministic(model), ensemble, MCDropout(model, samples=4)):
        plain = Deterministic(model) if base is model else base
        z = plain.logits(x)  # type: ignore[union-attr]
        y = mostly_right(z)
        scaled = Temperature(base).fit([(x[:30], y[:30]), (x[30:], y[30:])])
        t = scaled.temperature
        assert t is not None
        torch.testing.assert_close(scaled.predict(x), (z / t).softmax(-1), rtol=1e-6, atol=1e-9)
        assert loss(z / t, y) <= loss(z, y) + 1e-12
    foreign = Temperature(Foreign()).fit((x, mostly_right(x[None])))
    assert foreign.temperature is not None
    expected = (x.double() / foreign.temperature).softmax(-1)
    torch.testing.assert_close(foreign.predict(x)[1, :, :4], expected, rtol=1e-9, atol=1e-12)


def test_the_model_is_as_it_was_and_so_are_the_generators() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = torch.rand(30, 4), torch.arange(30) % 3
    random = torch.get_rng_state()
    with torch.inference_mode():
        Temperature(model, "platt").fit((x, y)).predict(x)
    assert torch.equal(torch.get_rng_state(), random) and all(part.training for part in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_half_precision_and_arrays() -> None:
    z, y = held_out()
    half = fitted(z[0].half(), y).temperature
    assert half == pytest.approx(fitted(z[0].half().double(), y).temperature, rel=1e-12)
    assert fitted(z.numpy(), y.numpy()).temperature == fitted(z, y).temperature  # type: ignore[arg-type]


WRONG: list[tuple[Any, Any, str]] = [
    (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), "at least one held-out input"),
    (torch.zeros(4), torch.zeros(4, dtype=torch.long), r"logits \[N, C\] or \[S, N, C\] with C >= 2"),
    (torch.zeros(4, 1), torch.zeros(4, dtype=torch.long), "C >= 2 classes"),
    (torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.long), "expected finite logits"),
    (torch.zeros(4, 3), torch.zeros(3, dtype=torch.long), "expected 4 labels"),
    (torch.zeros(4, 3), torch.zeros(4), "expected 4 labels, whole numbers"),
    (torch.zeros(4, 3), torch.tensor([0, 1, 2, 3]), "labels from 0 to 2 for 3 classes, got 0 to 3"),
    (torch.zeros(4, 3), torch.tensor([0, 1, 2, -1]), "got -1 to 2"),
    (torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, dtype=torch.long), "C >= 2 classes, got a tensor of int64"),
]


@pytest.mark.parametrize(("logits", "labels", "words"), WRONG)
def test_wrong_input_is_told(logits: Tensor, labels: Tensor, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fitted(logits, labels)


def test_other_mistakes() -> None:
    with pytest.raises(InputError, match=r"call fit\(held_out_data\) first"):
        Temperature(nn.Linear(2, 2)).predict(torch.rand(3, 2))
    with pytest.raises(InputError, match="'temperature' or 'platt', got 'isotonic'"):
        Temperature(nn.Linear(2, 2), "isotonic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 2 classes for kind='platt', got one"):
        fitted(torch.rand(4, 3), torch.ones(4, dtype=torch.long), "platt")
    with pytest.raises(InputError, match="expected output with a model only, got output='binary' with a Foreign"):
        Temperature(Foreign(), output="binary")
    with pytest.raises(InputError, match="labels are needed here"):
        Temperature(nn.Linear(2, 2)).fit([torch.rand(3, 2)])
