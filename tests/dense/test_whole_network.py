"""Scores of whole inputs and the whole network against plain autograd."""

import pytest
import torch

import nescio
from nescio.types import InputError, NormTable
from tests.dense.networks import Tagger, UNet, Upsampled

METHODS = ["exgrad", "regrad", "evengrad", "gradnorm", "squared"]


def picture():
    return torch.rand(3, 3, 8, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def oracle(network, x, where, rows="classes", class_dim=1):
    """Norms of ∂ℓ_c/∂θ by layer, one backward pass for each input and class."""
    layers = [module for module in network.modules() if list(module.parameters(recurse=False))]
    table, means = [], []
    for i in range(len(x)):
        log_p = network(x[i : i + 1]).movedim(class_dim, -1).log_softmax(-1)[0]
        chosen = log_p[where[i]]
        ell = chosen.mean(0)
        means.append(chosen.detach().exp().mean(0))
        wanted = ell.unbind() if rows == "classes" else [ell.mean()]
        table.append([])
        for one in wanted:
            parameters = [list(layer.parameters(recurse=False)) for layer in layers]
            flat = [p for group in parameters for p in group]
            gradients = dict(zip(flat, torch.autograd.grad(one, flat, retain_graph=True), strict=True))
            table[-1].append([float(torch.cat([gradients[p].flatten() for p in group]).norm()) for group in parameters])
    return NormTable(
        torch.tensor(table, dtype=torch.float64), torch.stack(means), tuple(str(i) for i in range(len(layers)))
    )


@pytest.mark.parametrize("chosen", ["all", "some"])
@pytest.mark.parametrize("method", METHODS)
def test_it_is_that_of_autograd(method, chosen):
    torch.manual_seed(0)
    network, x = UNet().double().eval(), picture()
    where = torch.ones(3, 8, 12, dtype=torch.bool)
    if chosen == "some":
        where = torch.rand(3, 8, 12, generator=torch.Generator().manual_seed(1)) < 0.2
    table = oracle(network, x, where, "uniform" if method == "gradnorm" else "classes")
    found = nescio.dense.whole_network(network, x, method, where=None if chosen == "all" else where)
    torch.testing.assert_close(found, nescio.scores.get(method)(table), rtol=1e-8, atol=1e-14)


def test_one_position_is_a_classifier_of_it():
    torch.manual_seed(0)
    network, x = Upsampled().double().eval(), picture()
    where = torch.zeros(3, 8, 12, dtype=torch.bool)
    where[:, 2, 5] = True

    class There(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(x)[:, :, 2, 5]

    found = nescio.dense.whole_network(network, x, "exgrad", where=where)
    torch.testing.assert_close(found, nescio.score(There(), x, "exgrad"), rtol=1e-9, atol=0)


def test_tokens_and_batches():
    torch.manual_seed(0)
    network, x = Tagger().double(), torch.arange(21).reshape(3, 7) % 20
    classifier = nescio.Classifier(network, output="dense", class_dim=-1)
    found = nescio.dense.whole_network(classifier, x, "exgrad")
    table = oracle(network, x, torch.ones(3, 7, dtype=torch.bool), class_dim=-1)
    torch.testing.assert_close(found, nescio.scores.ExGrad()(table), rtol=1e-8, atol=0)
    parts = nescio.dense.whole_network(classifier, [x[:2], x[2:]], "exgrad", chunk=1)
    torch.testing.assert_close(parts, found, rtol=1e-10, atol=0)


def test_the_model_is_left_as_it_was():
    torch.manual_seed(0)
    network = UNet().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    nescio.dense.whole_network(network, picture(), "exgrad")
    assert network.training and all(torch.equal(v, before[name]) for name, v in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "entropy"}, r"expected a gradient score .*got 'entropy'; of the other methods take a summary"),
        ({"method": "negrad"}, "expected a gradient score"),
        ({"where": torch.ones(3, 8)}, r"`where` of shape \[N, 8, 12\], got .*\[3, 8\]"),
        ({"where": torch.zeros(3, 8, 12)}, "at least one position of each input, got none for input 0"),
        ({"where": torch.ones(4, 8, 12)}, "`where` for each of 3 inputs, got 4"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        nescio.dense.whole_network(UNet().double(), picture(), **arguments)
