"""Maps as attention: by hand, its range, and where in a network it goes."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nescio.attribution import Attribution
from nescio.mitigate import Attended, attention
from nescio.types import InputError, ModelError
from nescio_papers import zoo

MAPS = torch.tensor([[[0.0, 1.0], [2.0, 4.0]], [[3.0, 3.0], [3.0, 3.0]]], dtype=torch.float64)


def test_by_hand():
    expected = [[[0.0, 0.25 * 0.75], [0.25, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]  # a flat map has no attention
    assert attention(MAPS).tolist() == expected


def test_softmax_by_hand():
    weights = [math.exp(v) for v in (0.0, 0.25, 0.5, 1.0)]
    m = [w / sum(weights) for w in weights]
    assert attention(MAPS, "softmax")[0].flatten().tolist() == pytest.approx([(1 - v) * v for v in m], abs=1e-12)


def test_what_takes_doubt_away_counts_as_nothing():
    """Else the background of a signed map, at 0, would lie in the middle of the range and get all attention."""
    signed = torch.tensor([[[-4.0, 0.0], [2.0, 4.0]]])
    assert attention(signed).tolist() == [[[0.0, 0.0], [0.25, 0.0]]]


def test_an_attribution_is_taken_as_its_maps():
    none = torch.zeros(2)
    found = Attribution(MAPS, none, none, "epistemic", "ua_backprop", "")
    assert torch.equal(attention(found), attention(MAPS))


@settings(max_examples=60)
@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=6), st.floats(0.01, 100))
def test_attention_is_in_range_and_does_not_depend_on_scale(values, scale):
    maps = torch.tensor(values, dtype=torch.float64).view(1, 2, 3)
    found = attention(maps)
    assert found.min() >= 0 and found.max() <= 0.25
    if maps.clamp(min=0).amax() - maps.clamp(min=0).amin() > 1e-3:
        assert torch.allclose(found, attention(maps * scale), atol=1e-9)
    soft = attention(maps, "softmax")
    assert soft.min() > 0 and soft.max() <= 0.25


@pytest.mark.parametrize(
    ("maps", "more", "words"),
    [
        (MAPS[0], {}, "shape \\[N, H, W\\]"),
        (MAPS * math.nan, {}, "NaN"),
        (MAPS, {"normalise": "max"}, "'range' or 'softmax', got 'max'"),
        (MAPS[:0], {}, "at least one image"),
    ],
)
def test_bad_maps_are_refused(maps, more, words):
    with pytest.raises(InputError, match=words):
        attention(maps, **more)


def test_at_the_input_by_hand():
    network = nn.Flatten()
    x, a = torch.tensor([[[[1.0, 2.0]], [[3.0, 4.0]]]]), torch.tensor([[[0.0, 0.25]]])
    assert Attended(network, "input", alpha=2.0)(x, a).tolist() == [[1.0, 3.0, 3.0, 6.0]]


def test_in_the_features_by_hand():
    network = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AvgPool2d((1, 2)), nn.Flatten())
    nn.init.constant_(network[0].weight, 10.0)
    x = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    a = torch.tensor([[[0.0, 0.25, 0.25, 0.0]]])
    model = Attended(network, alpha=4.0)
    assert model(x, a).tolist() == [[(10 + 2 * 20) / 2, (2 * 30 + 40) / 2]]
    assert (model.layer, model.where) == ("0", "features")
    # at the pooled features the attention is the mean over each area
    assert Attended(network, layer="1", alpha=4.0)(x, a).tolist() == [[15 * 1.5, 35 * 1.5]]


class Shared(nn.Module):
    """One activation that is called after each of two convolutions."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.act, self.head = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.act(self.two(self.act(self.one(x)))).flatten(1))


def test_of_a_module_that_is_called_twice_the_last_call_counts():
    network, x, a = Shared(), torch.rand(5, 1, 6, 6), torch.rand(5, 6, 6)
    model = Attended(network, alpha=3.0).prepare(x)
    assert model.layer == "act"
    features = network.act(network.two(network.act(network.one(x))))
    small = nn.functional.adaptive_avg_pool2d(a[:, None], 2)
    expected = network.head((features * (1 + 3.0 * small)).flatten(1))
    assert torch.allclose(model(x, a), expected, atol=1e-6)
    assert not torch.allclose(model(x, a), network(x), atol=1e-3)


def test_a_layer_that_is_not_called_as_at_first_is_named():
    network, x, a = Shared(), torch.rand(1, 1, 6, 6), torch.rand(1, 6, 6)
    model = Attended(network).prepare(x)
    network.forward = lambda x: network.head(network.act(network.two(network.one(x))).flatten(1))  # once, not twice
    with pytest.raises(ModelError, match="layer 'act' to be called in every pass, got one without it; name"):
        model(x, a)


@pytest.mark.parametrize(
    ("network", "size", "layer"),
    [
        (lambda: zoo.small_cnn(1, 8, 10, kernel=3, seed=0), (1, 8), "relu2"),
        (lambda: zoo.resnet18_cifar(seed=0), (3, 32), "layer4"),
        (lambda: zoo.small_vit(seed=0), (3, 32), "embed"),
    ],
)
def test_the_features_end_where_positions_are_pooled(network, size, layer):
    model = network().eval()
    x = torch.rand(2, size[0], size[1], size[1])
    attended = Attended(model).prepare(x)
    assert attended.layer == layer
    with torch.no_grad():
        assert torch.equal(attended(x, torch.zeros(2, size[1], size[1])), model(x))  # no attention: bit for bit
        assert torch.equal(attended(x), model(x))


def test_the_network_is_left_as_found():
    network = zoo.resnet18_cifar(seed=0).train()
    before = copy.deepcopy(network.state_dict())
    Attended(network).prepare(torch.rand(2, 3, 32, 32))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.training and not any(module._forward_hooks for module in network.modules())


def test_no_hook_stays_after_an_error():
    network = zoo.small_cnn(1, 8, 10, kernel=3, seed=0)
    model = Attended(network).prepare(torch.rand(1, 1, 8, 8))
    network.dense2 = nn.Linear(3, 3)
    with pytest.raises(RuntimeError):
        model(torch.rand(1, 1, 8, 8), torch.rand(1, 8, 8))
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda n: Attended(n, "middle"), InputError, "'features' or 'input', got 'middle'"),
        (lambda n: Attended(n, "input", layer="relu2"), InputError, "layer= with where='features' only"),
        (lambda n: Attended(n, alpha=-1.0), InputError, "at least 0, got -1.0"),
        (lambda n: Attended(n, alpha=math.nan), InputError, "alpha to be a finite number"),
        (lambda n: Attended(lambda x: x), ModelError, "expected a torch.nn.Module"),
        (lambda n: Attended(n, layer="conv9").prepare(torch.rand(1, 1, 8, 8)), ModelError, "conv1, relu1"),
        (lambda n: Attended(n, layer="dense1").prepare(torch.rand(1, 1, 8, 8)), ModelError, "shape \\[1, 128\\]"),
        (lambda n: Attended(nn.Flatten()).prepare(torch.rand(1, 1, 8, 8)), ModelError, "take where='input'"),
        (lambda n: Attended(n)(torch.rand(1, 1, 8, 8), torch.rand(1, 4, 4)), InputError, "attention of shape"),
        (lambda n: Attended(n)(torch.rand(1, 8, 8), torch.rand(1, 8)), InputError, "pictures, a tensor"),
    ],
)
def test_mistakes_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make(zoo.small_cnn(1, 8, 10, kernel=3, seed=0))
