import pytest
import torch
from torch import nn

from nescio.training import Recipe
from nescio.training.optimizer import Optimizer

CLASSES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3)).double()


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "sgd", "momentum": 0.0},
        {"optimizer": "sgd", "momentum": 0.9},
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "clip": 0.1},
        {"optimizer": "adam"},
        {"optimizer": "adamw", "clip": 0.1},
    ],
)
def test_steps_are_those_of_torch(settings):
    x, y = torch.randn(20, 2, dtype=torch.float64), torch.arange(20) % 3
    ours, theirs = network(), network()
    recipe = Recipe(weight_decay=0.03, **settings)
    optimizer = Optimizer(list(ours.parameters()), recipe)
    more = {"momentum": recipe.momentum, "nesterov": recipe.nesterov} if recipe.optimizer == "sgd" else {}
    reference = CLASSES[recipe.optimizer](theirs.parameters(), lr=0.1, weight_decay=0.03, **more)
    for lr in (0.1, 0.05, 0.2):
        optimizer.step(nn.functional.cross_entropy(ours(x), y), lr)
        reference.param_groups[0]["lr"] = lr
        reference.zero_grad()
        nn.functional.cross_entropy(theirs(x), y).backward()
        if recipe.clip is not None:
            assert nn.utils.clip_grad_norm_(theirs.parameters(), recipe.clip) > recipe.clip
        reference.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
    assert all(weight.grad is None for weight in ours.parameters())


def test_a_weight_that_is_not_used_stays():
    model = network()
    lost = nn.Parameter(torch.ones(3))
    optimizer = Optimizer([*model.parameters(), lost], Recipe(optimizer="sgd", weight_decay=0.1))
    optimizer.step(model(torch.ones(1, 2, dtype=torch.float64)).sum(), 0.1)
    assert torch.equal(lost, torch.ones(3))
