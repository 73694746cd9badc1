import pytest
import torch
from torch import nn

from nescio.types import InputError
from nescio_papers import zoo

MAKERS = {
    "small_cnn": lambda seed: (zoo.small_cnn(1, 8, 10, kernel=3, seed=seed), (1, 8, 8)),
    "resnet18_cifar": lambda seed: (zoo.resnet18_cifar(10, seed=seed), (3, 32, 32)),
    "small_vit": lambda seed: (zoo.small_vit(10, depth=2, seed=seed), (3, 32, 32)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_logits_for_each_input_alone_and_every_parameter_counts(name):
    model, shape = MAKERS[name](0)
    model.eval()
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    logits = model(x)
    assert logits.shape == (3, 10)
    torch.testing.assert_close(model(x[1:2])[0], logits[1], rtol=1e-4, atol=1e-5)
    logits.square().sum().backward()
    silent = [key for key, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert silent == []


@pytest.mark.parametrize("name", MAKERS)
def test_a_seed_fixes_the_weights_and_spares_the_global_generator(name):
    before = torch.get_rng_state()
    first, again, other = (MAKERS[name](seed)[0].state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    torch.manual_seed(5)
    free = MAKERS[name](None)[0].state_dict()
    assert not torch.equal(torch.get_rng_state(), before)
    assert any(not torch.equal(first[key], free[key]) for key in first)


def test_the_papers_cnn_on_mnist():
    model = zoo.small_cnn()
    kinds = [type(module).__name__ for module in model]
    assert kinds == ["Conv2d", "ReLU", "Conv2d", "ReLU", "MaxPool2d", "Flatten", "Linear", "ReLU", "Linear"]
    assert model.conv1.weight.shape == (32, 1, 4, 4)
    assert model.conv2.weight.shape == (32, 32, 4, 4)
    assert model.dense1.weight.shape == (128, 32 * 11 * 11)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    with pytest.raises(InputError, match=r"at least 8 × 8 pixels .* got size=7; use a smaller kernel"):
        zoo.small_cnn(size=7)
    assert zoo.small_cnn(size=8)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_resnet18_equals_torchvisions_with_the_same_weights():
    theirs = pytest.importorskip("torchvision.models").resnet18(num_classes=7).eval()
    ours = zoo.resnet18(7, stem="imagenet").eval()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


def test_the_cifar_stem_keeps_the_resolution():
    sizes = []
    model = zoo.resnet18(stem="cifar", channels=1).eval()
    model.layer1.register_forward_hook(lambda module, inputs, output: sizes.append(output.shape))
    model(torch.zeros(1, 1, 32, 32))
    assert sizes == [(1, 64, 32, 32)]
    with pytest.raises(InputError, match="expected stem='cifar' or 'imagenet', but got 'tiny'"):
        zoo.resnet18(stem="tiny")


def test_the_vit_keeps_token_and_position_as_bare_parameters():
    model = zoo.small_vit(patch=8, width=12, depth=1, heads=3)
    assert model.position.shape == (1, 17, 12)
    assert [name for name, _ in model.named_parameters(recurse=False)] == ["token", "position"]
    assert isinstance(model.layers[0].attention, nn.MultiheadAttention)
    with pytest.raises(InputError, match="multiple of the patch, but got 32 and 5"):
        zoo.small_vit(patch=5)
    with pytest.raises(InputError, match="multiple of the heads, but got 10 and 3"):
        zoo.small_vit(width=10)
