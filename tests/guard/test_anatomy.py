import pytest
import torch
from torch import nn

from nescio.guard.anatomy import anatomy_of
from nescio.models import Classifier
from nescio.quantities import Features
from nescio.types import Depth
from tests.guard.conftest import conv, mlp, pictures, vectors


def test_vectors_are_looked_at_themselves_too():
    anatomy = anatomy_of(Classifier(mlp()), vectors(5))
    assert anatomy.kind == "vectors"
    assert anatomy.features == Features()
    assert anatomy.activations.depths[0] == Depth("", 1)
    assert [depth.layer for depth in anatomy.activations.depths[1:]] == ["0", "1", "2", "3"]


def test_pictures_by_their_depths_and_not_the_logits():
    anatomy = anatomy_of(Classifier(conv().eval()), pictures(5))
    assert anatomy.kind == "pictures"
    assert "" not in [depth.layer for depth in anatomy.activations.depths]
    assert "8" not in [depth.layer for depth in anatomy.activations.depths]


def test_one_input_is_enough_and_a_plain_function_has_nothing_inside():
    assert anatomy_of(Classifier(mlp()), vectors(1)).features == Features()
    anatomy = anatomy_of(Classifier(lambda x: x[:, :3]), vectors(4))
    assert anatomy.features is None
    assert anatomy.activations.depths == (Depth("", 1),)
    assert anatomy_of(Classifier(lambda x: x[:, :3].flatten(1)), torch.rand(4, 3, 9)).activations.depths == ()


def test_without_a_linear_layer_the_deepest_activation_is_the_features():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    anatomy = anatomy_of(Classifier(net.double()), pictures(4))
    assert anatomy.features == Features(anatomy.activations.depths[-1].layer)


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (torch.rand(4, 3, 9, 9), "pictures"),
        ({"pixel_values": torch.rand(4, 3, 9, 9)}, "pictures"),
        (torch.zeros(4, 9, dtype=torch.long), "tokens"),
        ({"input_ids": torch.zeros(4, 9, dtype=torch.long)}, "tokens"),
        (torch.rand(4, 9), "vectors"),
        (torch.rand(4, 2, 9), "signals"),
        (torch.rand(4, 9000), "signals"),
        ({"a": torch.rand(4, 9)}, "signals"),
    ],
)
def test_the_kind_of_inputs(x, kind):
    model = Classifier(lambda a=None, **other: torch.zeros(len(a if a is not None else next(iter(other.values()))), 2))
    assert anatomy_of(model, x).kind == kind
