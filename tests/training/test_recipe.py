import pytest
import torch

from nescio.training import Recipe
from nescio.types import InputError

STEPS, EPOCHS = 7, 6


def rates(recipe):
    return [recipe.rate(step, STEPS) for step in range(EPOCHS * STEPS)]


def torch_rates(make, lr=0.1, every=1):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=lr)
    scheduler = make(optimizer)
    found = []
    for step in range(EPOCHS * STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0 and step + 1 < EPOCHS * STEPS:
            scheduler.step()
    return found


S = torch.optim.lr_scheduler


def test_rates_are_those_of_torch():
    total = EPOCHS * STEPS
    cosine = torch_rates(lambda o: S.CosineAnnealingLR(o, total))
    assert rates(Recipe(epochs=EPOCHS, lr=0.1, schedule="cosine")) == pytest.approx(cosine, abs=1e-12)
    steps = torch_rates(lambda o: S.MultiStepLR(o, [2, 4], gamma=0.3), every=STEPS)
    ours = rates(Recipe(epochs=EPOCHS, lr=0.1, schedule="steps", milestones=[2, 4], factor=0.3))
    assert ours == pytest.approx(steps, abs=1e-12)
    for warmup, share in ((0, 0.3), (3, 0.5)):
        cycle = torch_rates(lambda o, s=share: S.OneCycleLR(o, 0.1, total, pct_start=s, cycle_momentum=False))
        ours = rates(Recipe(epochs=EPOCHS, lr=0.1, schedule="one-cycle", warmup=warmup))
        assert ours == pytest.approx(cycle, abs=1e-12)
    rising = 2 * STEPS
    both = torch_rates(
        lambda o: S.SequentialLR(
            o,
            [S.LinearLR(o, 1 / rising, 1.0, rising - 1), S.CosineAnnealingLR(o, total - rising)],
            [rising],
        )
    )
    ours = rates(Recipe(epochs=EPOCHS, lr=0.1, schedule="cosine", warmup=2))
    assert ours == pytest.approx(both, abs=1e-12)
    assert rates(Recipe(epochs=EPOCHS, lr=0.1, schedule="constant")) == [0.1] * total


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "expected epochs to be a whole number of at least 1, got 0"),
        ({"batch_size": 2.5}, "expected batch_size to be a whole number of at least 1, got 2.5"),
        ({"patience": 0}, "expected patience to be a whole number of at least 1, got 0"),
        ({"lr": 0.0}, "expected lr to be a finite number above 0, got 0.0"),
        ({"lr": float("nan")}, "expected lr to be a finite number above 0"),
        ({"clip": -1.0}, "expected clip to be a finite number above 0"),
        ({"momentum": 1.0}, "expected momentum to be a finite number of at least 0 and below 1, got 1.0"),
        ({"label_smoothing": -0.1}, "expected label_smoothing to be a finite number of at least 0"),
        ({"epochs": 3, "warmup": 3}, "expected warmup to be a finite number of at least 0 and below 3, got 3"),
        ({"optimizer": "rmsprop"}, "expected optimizer to be 'sgd', 'adam' or 'adamw', got 'rmsprop'"),
        ({"schedule": "linear"}, "expected schedule to be 'constant', 'cosine', 'one-cycle' or 'steps'"),
        ({"precision": "float16"}, "expected precision to be None or 'bfloat16', got 'float16'"),
        ({"choose": "nll"}, "expected choose to be 'accuracy' or 'loss'"),
        ({"augment": 3}, "augment: expected a function of a batch, but got an object of type int"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov: expected a momentum above 0"),
        ({"schedule": "steps"}, "milestones: expected the epochs after which the rate falls"),
        ({"milestones": (3,)}, "milestones: expected the epochs after which the rate falls"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(InputError) as caught:
        Recipe(**settings)
    assert message in str(caught.value)
