"""A single network as a distribution, and what every distribution has from its base: data, state, chunks, errors."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.posteriors import Deterministic, PosteriorBase
from nescio.types import InputError, ModelError, Posterior


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU(inplace=True), nn.Linear(6, 3))


@pytest.fixture
def x() -> Tensor:
    return torch.randn(10, 4, generator=torch.Generator().manual_seed(0))


def test_it_is_the_softmax_of_the_logits(x: Tensor) -> None:
    model = net()
    posterior = Deterministic(model)
    assert isinstance(posterior, Posterior)
    p = posterior.predict(x)
    with torch.no_grad():
        z = model.eval()(x).double()
    assert p.shape == (1, 10, 3) and p.dtype == torch.float64 and p.device.type == "cpu"
    assert torch.equal(p[0], z.softmax(-1)) and torch.equal(posterior.logits(x)[0], z)


def test_any_source_of_data(x: Tensor) -> None:
    posterior = Deterministic(net())
    p = posterior.predict(x)
    loader = DataLoader(TensorDataset(x, torch.zeros(10)), batch_size=4)
    for data in (x.numpy(), [x[:3], x[3:]], loader, iter(x.split(1)), x.double()):
        torch.testing.assert_close(posterior.predict(data), p, rtol=1e-5, atol=1e-7)


def test_inputs_with_names() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.head(torch.cat([a, b], dim=1))

    model, a, b = Two(), torch.rand(5, 1), torch.rand(5, 3)
    found = Deterministic(model).predict({"a": a, "b": b})
    assert torch.equal(found[0], model(a, b).detach().double().softmax(-1))


def test_large_batches_go_in_chunks(x: Tensor) -> None:
    seen = []

    def model(x: Tensor) -> Tensor:
        seen.append(len(x))
        return x[:, :3]

    big = x.repeat(60, 1)
    p = Deterministic(model).predict(big)
    assert sum(seen) == 600 and max(seen) < 600
    assert torch.equal(p[0], big[:, :3].double().softmax(-1))


def test_small_probabilities_keep_their_digits() -> None:
    z = torch.tensor([[0.0, -60.0, -300.0]], dtype=torch.float64)
    p = Deterministic(lambda x: z).predict(torch.zeros(1, 2))[0, 0]
    np.testing.assert_allclose(p, np.exp([0.0, -60.0, -300.0]), rtol=1e-12)


def test_the_model_is_as_it_was_also_after_an_exception(x: Tensor) -> None:
    model = net().train()
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    posterior = Deterministic(model)
    posterior.predict(x)
    with pytest.raises(InputError):
        posterior.predict([x, torch.full((2, 4), torch.nan)])
    assert all(part.training for part in model.modules()) and torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_other_outputs(x: Tensor) -> None:
    closed = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))
    p = Deterministic(closed, output="probabilities").predict(x)
    torch.testing.assert_close(p[0], closed(x).detach().double(), rtol=1e-5, atol=1e-7)
    one = nn.Linear(4, 1)
    p = Deterministic(Classifier(one, output="binary")).predict(x)
    torch.testing.assert_close(p[0, :, 1], one(x).detach().double().sigmoid()[:, 0], rtol=1e-12, atol=0.0)


def test_the_bar_counts_inputs(x: Tensor, capsys: pytest.CaptureFixture[str]) -> None:
    Deterministic(net()).predict(x, progress=True)
    shown = capsys.readouterr().err
    assert "predicting" in shown and "10/10" in shown
    Deterministic(net()).predict(x)
    assert capsys.readouterr().err == ""


class Odd(PosteriorBase):
    """Gives what it is told to."""

    def __init__(self, *logits: Tensor) -> None:
        self.classifiers, self.given = (Classifier(nn.Linear(4, 3)),), list(logits)

    def _logits(self, x: Inputs) -> Tensor:
        return self.given.pop(0)


def test_what_a_distribution_gives_is_checked(x: Tensor) -> None:
    with pytest.raises(ModelError, match=r"\[S, N, C\] of N = 10 inputs, got a tensor of float64 and shape \[10, 3\]"):
        Odd(torch.zeros(10, 3)).predict(x)
    with pytest.raises(ModelError, match="expected 2 samples and 3 classes as in the first batch"):
        Odd(torch.zeros(2, 5, 3), torch.zeros(2, 5, 4)).predict([x[:5], x[5:]])
    with pytest.raises(ModelError, match="expected 2 samples and 3 classes as in the first batch"):
        Odd(torch.zeros(2, 5, 3), torch.zeros(1, 5, 3)).predict([x[:5], x[5:]])
    for bad in (torch.nan, torch.inf):
        with pytest.raises(ModelError, match="expected finite logits"):
            Odd(torch.full((1, 10, 3), bad)).predict(x)
    with pytest.raises(ModelError, match="expected finite logits"):
        Odd(torch.full((1, 10, 3), -torch.inf)).predict(x)


def test_wrong_data_and_models(x: Tensor) -> None:
    with pytest.raises(InputError, match="at least one input, got none"):
        Deterministic(net()).predict([x, x[:0]])
    with pytest.raises(InputError, match="at least one batch, got none"):
        Deterministic(net()).predict([])
    with pytest.raises(ModelError, match="can be called"):
        Deterministic("net")  # type: ignore[arg-type]
