"""Features are listened to where they are said to be, copied before anything works in place, and averaged."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.models.feature_layer import Heard, listen, pooled
from nescio.types import ModelError


class Net(nn.Module):
    """Convolution, in-place ReLU, tokens, two linear layers in the opposite order of their definition."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 3)
        self.body = nn.Linear(4, 5)
        self.conv = nn.Conv2d(1, 4, 3)
        self.act = nn.ReLU(inplace=True)
        self.unused = nn.Linear(2, 2)
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        maps = self.act(self.conv(x))
        tokens = self.body(maps.flatten(2).transpose(1, 2))
        if self.fails:
            raise KeyboardInterrupt
        return self.head(input=torch.tanh(tokens.mean(1)))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().double().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(6, 1, 5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def features(net: nn.Module, x: Tensor, layer: str | None) -> Tensor:
    with torch.no_grad():
        _, heard = listen(Classifier(net), x, [layer])
    return pooled(heard[layer], len(x))


def test_the_input_of_the_last_linear_layer_that_is_called(net: Net, x: Tensor) -> None:
    maps = net.conv(x).relu()
    hidden = torch.tanh(net.body(maps.flatten(2).transpose(1, 2)).mean(1))
    torch.testing.assert_close(features(net, x, None), hidden.detach())
    found = features(net.float(), x.float(), None)
    assert found.dtype == torch.float64 and not found.requires_grad


def test_the_output_of_a_named_module_before_the_next_one_works_in_place(net: Net, x: Tensor) -> None:
    conv = net.conv(x).detach()
    assert (conv < 0).any()
    torch.testing.assert_close(features(net, x, "conv"), conv.mean((2, 3)))
    torch.testing.assert_close(features(net, x, "act"), conv.relu().mean((2, 3)))
    tokens = net.body(conv.relu().flatten(2).transpose(1, 2)).detach()
    torch.testing.assert_close(features(net, x, "body"), tokens.mean(1))
    torch.testing.assert_close(features(net, x, "head"), net(x).detach())


def test_several_layers_and_the_logits_from_one_pass(net: Net, x: Tensor) -> None:
    calls: list[int] = []
    net.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        logits, heard = listen(Classifier(net), x, [None, "conv", None])
    assert len(calls) == 1 and heard.keys() == {None, "conv"} and heard[None].name == "head"
    torch.testing.assert_close(logits, net(x).detach())


@pytest.mark.parametrize(
    ("module", "shape", "axes"),
    [
        (nn.Identity(), (2, 7), ()),
        (nn.Identity(), (2, 5, 7), (1,)),
        (nn.Conv1d(1, 1, 1), (2, 7, 5), (2,)),
        (nn.BatchNorm1d(7), (2, 7, 5), (2,)),
        (nn.Sequential(), (2, 7, 3, 4), (2, 3)),
        (nn.LayerNorm(7), (2, 3, 4, 7), (1, 2)),
        (nn.Linear(1, 7), (2, 3, 4, 7), (1, 2)),
        (nn.Conv3d(1, 1, 1), (2, 7, 3, 4, 5), (2, 3, 4)),
    ],
)
def test_positions_and_tokens_are_averaged(module: nn.Module, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    value = torch.randn(shape, dtype=torch.float64)
    truth = value.mean(axes) if axes else value
    torch.testing.assert_close(pooled(Heard("m", module, value), 2), truth, rtol=1e-12, atol=1e-14)
    assert truth.shape == (2, 7)


def test_a_single_number_is_a_vector_of_one() -> None:
    assert pooled(Heard("m", nn.Identity(), torch.ones(3)), 3).shape == (3, 1)


def test_hooks_are_gone_also_after_an_interrupt(net: Net, x: Tensor) -> None:
    net.fails = True
    with pytest.raises(KeyboardInterrupt):
        listen(Classifier(net), x, [None, "conv"])
    net.fails = False
    listen(Classifier(net), x, [None, "conv"])
    for module in net.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks and not module._forward_pre_hooks_with_kwargs


def test_a_compiled_model_is_listened_to(net: Net, x: Tensor) -> None:
    expected = features(net, x, "conv")
    torch.testing.assert_close(features(torch.compile(net, backend="eager"), x, "conv"), expected)


def test_what_cannot_be_listened_to_is_said(net: Net, x: Tensor) -> None:
    cases: list[tuple[Any, str | None, str]] = [
        (net, "cnv", r"expected layer='cnv' .* but it is not there; the last modules are: head, body, conv"),
        (net, "unused", "expected layer='unused' to name a module that the model calls, but it is never called"),
        (nn.Flatten(), None, r"expected a model that calls an nn\.Linear, .* got one that calls none; name the module"),
        (lambda x: x.flatten(1), None, r"the last modules are: none"),
    ]
    for model, layer, words in cases:
        with pytest.raises(ModelError, match=words):
            features(model, x, layer)
    with pytest.raises(
        ModelError, match=r"expected features with one row for each of 3 inputs from 'm', got .* \[5, 3\]"
    ):
        pooled(Heard("m", nn.Identity(), torch.ones(5, 3)), 3)


class Indices(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(1)


def test_features_that_are_no_numbers_are_refused() -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.look = Indices()

        def forward(self, x: Tensor) -> Tensor:
            return torch.eye(3)[self.look(x)]

    with pytest.raises(
        ModelError, match=r"expected floating-point features from 'look' \(Indices\), got a tensor of int64"
    ):
        features(Looks(), torch.randn(2, 3), "look")
