"""Dropout before a layer: the right layer, the short way where it is right, and errors in words."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.models import Classifier
from nescio.quantities import DropoutLogits, compute
from nescio.types import ModelError


def dropped(model: object, x: Tensor, layer: str | None = None, rate: float = 0.4, samples: int = 6) -> Tensor:
    request = DropoutLogits(rate, samples, 0, layer)
    found = compute(Classifier.of(model), x, [request])[request]  # type: ignore[arg-type]
    assert isinstance(found, Tensor)
    return found


class Net(nn.Module):
    """Two linear layers, the last one called first: what counts is the order of the calls."""

    def __init__(self, end: Any = lambda z: z) -> None:
        super().__init__()
        self.head = nn.Linear(5, 3)
        self.body = nn.Linear(4, 5)
        self.unused = nn.Linear(3, 3)
        self.end = end
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.end(self.head(torch.tanh(self.body(x))))


def by_hand(model: Net, x: Tensor, rate: float = 0.4, samples: int = 6) -> Tensor:
    masks = (torch.rand(samples, 5, generator=torch.Generator().manual_seed(0)) >= rate).to(x) / (1 - rate)
    with torch.no_grad():
        return torch.stack([model.end(model.head(torch.tanh(model.body(x)) * mask)) for mask in masks])


@pytest.fixture
def x() -> Tensor:
    return torch.rand(7, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_where_the_layer_ends_the_model_only_it_runs_for_each_draw(x: Tensor) -> None:
    model = Net().double()
    torch.testing.assert_close(dropped(model, x), by_hand(model, x), rtol=1e-6, atol=1e-7)
    assert model.calls == 1


@pytest.mark.parametrize("end", [lambda z: z * 1.0, lambda z: z.log_softmax(1), lambda z: z.mul_(2.0), torch.relu_])
def test_where_something_follows_the_whole_model_runs(x: Tensor, end: Any) -> None:
    """Also for a change in place, which keeps the memory of the layer's output, and may change some inputs only."""
    model = Net(end).double()
    with torch.no_grad():
        model.head.bias.add_(torch.tensor([0.3, -0.3, 0.0]))
    torch.testing.assert_close(dropped(model, x), by_hand(model, x), rtol=1e-6, atol=1e-7)
    assert model.calls == 1 + 6


def test_in_inference_mode_it_is_the_same(x: Tensor) -> None:
    model = Net(lambda z: z.mul_(2.0)).double()
    with torch.inference_mode():
        found = dropped(model, x)
    torch.testing.assert_close(found, by_hand(model, x), rtol=1e-6, atol=1e-7)


def test_a_layer_that_is_called_twice_runs_with_the_whole_model(x: Tensor) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.both(torch.tanh(self.both(x)))

    model = Twice().double()
    masks = (torch.rand(6, 4, generator=torch.Generator().manual_seed(0)) >= 0.4).double() / 0.6
    with torch.no_grad():
        truth = torch.stack([model.both(torch.tanh(model.both(x * m)) * m) for m in masks])
    torch.testing.assert_close(dropped(model, x), truth, rtol=1e-6, atol=1e-7)


def test_another_layer_can_be_named(x: Tensor) -> None:
    model = Net().double()
    masks = (torch.rand(6, 4, generator=torch.Generator().manual_seed(0)) >= 0.4).double() / 0.6
    with torch.no_grad():
        truth = torch.stack([model(x * mask) for mask in masks])
    torch.testing.assert_close(dropped(model, x, "body"), truth, rtol=1e-6, atol=1e-7)


def test_before_a_convolution_whole_channels_are_dropped() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    x = torch.rand(2, 3, 5, 5, dtype=torch.float64)
    masks = (torch.rand(6, 3, generator=torch.Generator().manual_seed(0)) >= 0.4).double() / 0.6
    with torch.no_grad():
        truth = torch.stack([model(x * mask[:, None, None]) for mask in masks])
    torch.testing.assert_close(dropped(model, x, "0"), truth, rtol=1e-6, atol=1e-7)


def test_positions_of_a_sequence_share_the_mask() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x).mean(1)

    model, x = Pooled().double(), torch.rand(2, 6, 4, dtype=torch.float64)
    masks = (torch.rand(6, 4, generator=torch.Generator().manual_seed(0)) >= 0.4).double() / 0.6
    with torch.no_grad():
        truth = torch.stack([model(x * mask) for mask in masks])
    torch.testing.assert_close(dropped(model, x), truth, rtol=1e-6, atol=1e-7)


def test_a_compiled_model_is_not_passed_by(x: Tensor) -> None:
    """Compiled code does not look for hooks that come later: once it fits the call, it would leave the masks out."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x) * 2.0

    model = Scaled().double()
    truth = dropped(model, x)
    assert not torch.allclose(truth[0], truth[1])
    compiled = torch.compile(model, backend="eager").eval()
    with torch.no_grad():  # compiled for the very calls to come
        compiled(x[:1]), compiled(x)
    torch.testing.assert_close(dropped(compiled, x), truth, rtol=1e-12, atol=1e-12)


def test_a_softmax_at_the_end_leaves_the_short_way_open(x: Tensor) -> None:
    class Closed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()
            self.softmax = nn.Softmax(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.softmax(self.net(x))

    model = Closed().double()
    u = nescio.score(model, x, "inserted_dropout", samples=6, output="probabilities")
    torch.testing.assert_close(u, nescio.score(model.net, x, "inserted_dropout", samples=6), rtol=1e-9, atol=0.0)


def test_masks_keep_the_mean() -> None:
    model = nn.Linear(200, 2, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    x = torch.ones(1, 200, dtype=torch.float64)
    assert dropped(model, x, rate=0.7, samples=400).mean().item() == pytest.approx(200.0, rel=0.02)


def test_without_a_linear_layer_it_says_what_to_do() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten())
    with pytest.raises(ModelError) as caught:
        dropped(model, torch.rand(2, 1, 2, 2))
    assert str(caught.value) == (
        "expected a model that calls an nn.Linear, before which dropout can be inserted, got one that calls none; "
        "use another method, such as perturb_x, or name the layer with layer='...' (the last modules are: 0, 1)"
    )
    with pytest.raises(ModelError, match="the last modules are: none"):
        dropped(lambda x: x, torch.rand(2, 3))


def test_a_name_that_is_not_there_or_not_called(x: Tensor) -> None:
    words = (
        "expected layer='nope' to name a module that the model calls, but it is not there; the last modules are: head"
    )
    with pytest.raises(ModelError, match=words):
        dropped(Net().double(), x, "nope")
    with pytest.raises(ModelError, match="but it is never called"):
        dropped(Net().double(), x, "unused")


def test_a_layer_that_takes_no_floating_tensor() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(ModelError, match=r"\(Embedding\) to take a floating-point tensor, got a tensor of int64"):
        dropped(model, torch.randint(9, (2, 5)), "0")
