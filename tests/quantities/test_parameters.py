"""Noisy parameters: the same numbers one draw at a time, several at once, and replayed."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.models import Classifier
from nescio.quantities import compute, parameters
from nescio.types import SampledLogits


def draw(model: nn.Module, x: Tensor, samples: int = 10, chunk: int | None = None) -> Tensor:
    request = SampledLogits("parameters", 0.1, samples, 3)
    found = compute(Classifier(model), x, [request], chunk)[request]
    assert isinstance(found, Tensor)
    return found


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


def stacked(tensor: Tensor) -> int:
    """How many draws the tensor holds under vmap, 0 outside of it."""
    functorch = torch._C._functorch
    return functorch.get_unwrapped(tensor).shape[0] if functorch.is_batchedtensor(tensor) else 0


class Net(nn.Module):
    """Convolution, norm, an odd number of weights; `watch` is given each call's number of draws before it goes on."""

    def __init__(self, watch: Callable[[int], Any] = lambda draws: None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(12, 3)
        self.seen: list[int] = []
        self.watch = watch

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(stacked(self.head.bias))
        shift = self.watch(self.seen[-1])
        z = self.head(self.body(x))
        return z if shift is None else z + shift


def made(watch: Callable[[int], Any] = lambda draws: None) -> Net:
    torch.manual_seed(0)
    return Net(watch).double().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Groups of four draws, as a GPU takes them; the seconds that a group and a single draw are said to take."""
    said = [1.0, 1.0]

    def seconds(run: Callable[[], object], device: torch.device) -> float:
        run()
        said.append(said.pop(0))
        return said[-1]

    monkeypatch.setattr(parameters, "_group", lambda *_: 4)
    monkeypatch.setattr(parameters, "_seconds", seconds)
    return said


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


def test_a_cpu_takes_one_draw_after_another(x: Tensor) -> None:
    model = made()
    draw(model, x)
    assert model.seen == [0] * 10


def test_draws_at_once_are_the_draws_one_by_one(x: Tensor, times: list[float]) -> None:
    model = made()
    torch.testing.assert_close(draw(model, x), by_hand(model, x), rtol=1e-12, atol=1e-13)
    assert [n for n in model.seen if n] == [4, 4, 2]


def test_where_groups_are_slower_they_are_left(x: Tensor, times: list[float]) -> None:
    times[:] = [4.1, 1.0]
    model = made()
    torch.testing.assert_close(draw(model, x), by_hand(model, x), rtol=1e-12, atol=1e-13)
    assert [n for n in model.seen if n] == [4, 4] and model.seen[-2:] == [0, 0]


def test_a_model_that_vmap_cannot_follow_runs_draw_by_draw(x: Tensor, times: list[float]) -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = made()

        def forward(self, x: Tensor) -> Tensor:
            z = self.net(x)
            return z if z.sum().item() > 0 else 2.0 * z

    model = Branching().double().eval()
    assert torch.equal(draw(model, x), by_hand(model, x))
    assert 4 in model.net.seen


def test_where_groups_give_other_numbers_they_are_not_used(x: Tensor, times: list[float]) -> None:
    model = made(lambda draws: 1e-9 if draws else None)
    assert torch.equal(draw(model, x), by_hand(model, x))
    assert model.seen.count(4) == 1


def test_what_a_model_keeps_under_vmap_is_gone_for_the_plain_loop(x: Tensor, times: list[float]) -> None:
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = made()
            self.kept: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.kept is None:
                self.kept = self.net.head.weight.sum() * 0.0
            return self.net(x) + self.kept

    model = Keeping().double().eval()
    assert torch.equal(draw(model, x), by_hand(model.net, x))
    assert 4 in model.net.seen and model.kept is None


@pytest.mark.parametrize(("most", "groups"), [(2, [4, 2, 2, 4, 2, 2, 2]), (0, [4, 2, 1])])
def test_out_of_memory_halves_the_group(x: Tensor, times: list[float], most: int, groups: list[int]) -> None:
    """Down to the plain loop, where not even one draw fits."""

    def full(draws: int) -> None:
        if draws > most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    model = made(full)
    torch.testing.assert_close(draw(model, x), by_hand(model, x), rtol=1e-12, atol=1e-13)
    assert [n for n in model.seen if n] == groups


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


def test_a_score_does_not_depend_on_the_batch(x: Tensor, times: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "_group", lambda x, *_: 4 if len(x) <= 2 else 1)
    model = made().float()
    whole = nescio.score(model, x, "perturb_theta", samples=10, sigma=0.1)
    parts = nescio.score(model, list(x.split(2)), "perturb_theta", samples=10, sigma=0.1)
    assert 0 in model.seen and 4 in model.seen
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=0.0)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A stand-in for CUDA graphs: works on the tensors that it was recorded with, into one and the same result."""
    error = [0.0]

    def recorded(run: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
        result = run()
        return lambda: result.copy_(run() + error[0])

    monkeypatch.setattr(parameters, "_is_gpu", lambda devices: True)
    monkeypatch.setattr(parameters, "_group", lambda *_: 1)
    monkeypatch.setattr(parameters, "_recorded", recorded)
    yield error


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("error", [0.0, 0.1])
def test_a_recording_is_used_where_it_is_right(
    x: Tensor, graphs: list[float], error: float, dtype: torch.dtype
) -> None:
    graphs[0] = error
    model = made().to(dtype)
    assert torch.equal(draw(model, x, 20), by_hand(model, x.to(dtype), 20))


def test_how_many_draws_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"w": torch.empty(2**22, device="meta")}
    assert parameters._group(torch.empty(1, 3), weights, 256, 100) == 1
    monkeypatch.setattr(parameters, "_is_gpu", lambda devices: True)
    assert parameters._group(torch.empty(1, 3), weights, 256, 100) == 16
    assert parameters._group(torch.empty(1, 3), weights, 256, 20) == 5
    assert parameters._group(torch.empty(60, 3), weights, 256, 100) == 4
    assert parameters._group(torch.empty(65, 3), weights, 256, 100) == 1
    assert parameters._group(torch.empty(1, 3), {"w": torch.empty(2**30, device="meta")}, 256, 100) == 1
