"""Noisy parameters: the numbers of their definition, one draw after another and replayed."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.models import Classifier
from nescio.quantities import NoisyParameterLogits, compute, noisy_parameter_logits


def draw(model: nn.Module, x: Tensor, samples: int = 10, chunk: int | None = None, sigma: float = 0.1) -> Tensor:
    request = NoisyParameterLogits(sigma, samples, 3)
    logits = compute(Classifier(model), x, [request], chunk)[request]
    assert isinstance(logits, Tensor)
    return logits


def by_hand(model: nn.Module, x: Tensor, samples: int = 10) -> Tensor:
    """Every draw's noise by itself, as its definition says."""
    rows = []
    for s in range(samples):
        seed = int(np.random.SeedSequence([3, s]).generate_state(1, np.uint64)[0])
        generator = torch.Generator().manual_seed(seed)
        noisy = {
            name: p.detach() + (0.1 * torch.randn(p.shape, generator=generator)).to(p.dtype)
            for name, p in model.named_parameters()
        }
        with torch.no_grad():
            rows.append(torch.func.functional_call(model, noisy, (x,)).double())
    return torch.stack(rows)


def made() -> nn.Module:
    """Convolution, norm, an odd number of weights."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))
    return nn.Sequential(*layers).double().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_draw_is_the_noise_of_its_seed_in_every_precision(x: Tensor, dtype: torch.dtype) -> None:
    model = made().to(dtype)
    assert torch.equal(draw(model, x), by_hand(model, x.to(dtype)))


def test_in_inference_mode_it_is_the_same(x: Tensor) -> None:
    model = made()
    with torch.inference_mode():
        found = draw(model, x)
    assert torch.equal(found, by_hand(model, x))


def test_logits_that_are_a_parameter_are_not_overwritten_by_the_next_draw() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.z = nn.Parameter(torch.zeros(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.z

    model = Constant()
    assert torch.equal(draw(model, torch.rand(2, 1)), by_hand(model, torch.rand(2, 1)))


def test_out_of_memory_in_a_plain_pass_halves_the_inputs(x: Tensor) -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = made()

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return self.net(x)

    model = Small().double().eval()
    torch.testing.assert_close(draw(model, x), by_hand(model.net, x), rtol=1e-12, atol=1e-13)


def test_a_score_does_not_depend_on_the_batch(x: Tensor) -> None:
    model = made().float()
    whole = nescio.score(model, x, "perturb_theta", samples=10, sigma=0.1)
    parts = nescio.score(model, list(x.split(2)), "perturb_theta", samples=10, sigma=0.1)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=0.0)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A stand-in for CUDA graphs: works on the tensors that it was recorded with, into one and the same result."""
    error = [0.0]

    def recorded(run: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
        result = run()
        return lambda: result.copy_(run() + error[0])

    monkeypatch.setattr(noisy_parameter_logits, "_is_gpu", lambda devices: True)
    monkeypatch.setattr(noisy_parameter_logits, "_recorded", recorded)
    yield error


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("error", [0.0, 0.1])
def test_a_recording_is_used_where_it_is_right(
    x: Tensor, graphs: list[float], error: float, dtype: torch.dtype
) -> None:
    graphs[0] = error
    model = made().to(dtype)
    assert torch.equal(draw(model, x, 20), by_hand(model, x.to(dtype), 20))


class Tied(nn.Module):
    """A weight used twice under two names, a frozen one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("level", torch.zeros(2))
        with torch.no_grad():
            self.a.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), -self.b(x), self.frozen.expand(len(x), 2), self.level.expand(len(x), 2)], 1)


def test_noise_falls_on_every_parameter_once() -> None:
    found = draw(Tied(), torch.eye(2), 30, sigma=0.5)
    assert torch.equal(found[..., :2], -found[..., 2:4])  # tied weights move together
    assert found[:, 0, 4:6].std().item() == pytest.approx(0.5, rel=0.3)  # frozen parameters move too
    assert not found[..., 6:].any()  # buffers stay
    assert torch.equal(found[:, 0, 4:6], found[:, 1, 4:6])  # all inputs see the same draw
    assert found[:, 0, 0].unique().numel() == 30
    more = draw(Tied(), torch.eye(2), 31, sigma=0.5)
    assert torch.equal(more[:30], found)  # a draw does not depend on how many there are


@pytest.mark.parametrize("cell", [nn.GRU, nn.LSTM])
def test_recurrent_layers_really_use_the_noise(cell: type[nn.RNNBase]) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell(3, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.cell(x)[0][:, -1]

    found = draw(Recurrent(), torch.rand(2, 5, 3), 4, sigma=0.1)
    assert found[:, 0, 0].unique().numel() == 4
