"""The numbers after a validation are those of their definitions, and nothing is left changed."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import nescio
from nescio.doors import validation
from nescio.doors.validation import measure
from nescio.types import InputError


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.5), nn.ReLU(), nn.Linear(12, 3))


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    return normal(700, seed=1), torch.arange(700) % 3


def normal(count: int, seed: int) -> Tensor:
    """The same on every processor, where torch.randn is not."""
    return torch.tensor(np.random.default_rng(seed).normal(size=(count, 6)), dtype=torch.float32)


def test_the_numbers_are_those_of_the_parts(model: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    reference, foreign = normal(400, seed=2), 6 + normal(80, seed=3)
    numbers = measure(model, data, reference=reference, foreign=foreign)
    p = model.eval()(data[0]).double().softmax(1).detach()
    guard = nescio.Guard(model).fit(reference)
    known, strange = guard.check(data[0]), guard.check(foreign)
    wanted = {
        "accuracy": float((p.argmax(1) == data[1]).double().mean()),
        "nll": nescio.evaluate.nll(p, data[1]),
        "ece": nescio.evaluate.ece(p, data[1]),
        "flagged": float(known.foreign(0.05).double().mean()),
        "drift_p_value": nescio.decide.drift_test(known.p_value, known.ranks, draws=validation.DRAWS).p_value,
        "auroc": nescio.evaluate.ood(known.score, strange.score).auroc,
        "fpr95": nescio.evaluate.ood(known.score, strange.score).fpr95,
        "caught": float(strange.foreign(0.05).double().mean()),
    }
    assert numbers.keys() == wanted.keys()
    for name, value in wanted.items():
        assert numbers[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_inputs_that_fit_the_guard_are_not_those_it_is_measured_on(
    model: nn.Module, data: tuple[Tensor, Tensor]
) -> None:
    guard = nescio.Guard(model)
    measure(model, data, guard=guard)
    fits = validation._fits(data[0])
    assert guard.fitted.count == int(fits.sum()) and 0.4 < float(fits.double().mean()) < 0.6
    shuffled = DataLoader(TensorDataset(*data), batch_size=32, shuffle=True)
    again = nescio.Guard(model)
    found = measure(model, shuffled, guard=again)
    assert again.fitted.count == guard.fitted.count
    assert found == pytest.approx(measure(model, data), rel=1e-5)  # neither batches nor their order matter


def test_drift_is_seen_and_its_absence_too(model: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    reference = normal(400, seed=2)
    assert measure(model, data, reference=reference)["drift_p_value"] > 0.05
    moved = measure(model, (data[0] + 1.5, data[1]), reference=reference)
    assert moved["drift_p_value"] == 1 / 200 and moved["flagged"] > 0.2


def test_model_and_generators_are_left_as_they_were_also_after_an_error(
    model: nn.Module, data: tuple[Tensor, Tensor]
) -> None:
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(TensorDataset(*data), batch_size=32, shuffle=True, generator=generator)
    foreign, misfit = torch.randn(40, 6), torch.randn(40, 5)
    before = copy.deepcopy(model.state_dict())
    states = torch.get_rng_state(), generator.get_state(), np.random.get_state()[1].copy()
    measure(model, loader, foreign=foreign)
    with pytest.raises(InputError):
        measure(model, loader, foreign=misfit)
    assert model.training and all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(states[0], torch.get_rng_state()) and torch.equal(states[1], generator.get_state())
    assert np.array_equal(states[2], np.random.get_state()[1])


def test_it_works_inside_of_inference_mode(model: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    with torch.inference_mode():
        inside = measure(model, data)
    assert inside == measure(model, data)


def test_too_few_inputs_are_refused(model: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(InputError, match="20"):
        measure(model, (data[0][:20], data[1][:20]))
