"""Plans: every one builds its network, the paper's settings are the paper's, and a trained network is found again."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nescio.types import InputError
from nescio_papers import zoo
from nescio_papers.datasets import SETS
from nescio_papers.zoo.plans import STATISTICS

torchvision = pytest.importorskip("torchvision")


@pytest.mark.parametrize("name", [name for name in zoo.RECIPES if "152" not in zoo.RECIPES[name].about])
def test_every_plan_builds_a_network_for_its_pictures(name: str) -> None:
    plan = zoo.RECIPES[name]
    side, channels = {"mnist": (28, 1), "digits": (8, 1)}.get(plan.data, (32, 3))
    classes = 100 if plan.data == "cifar100" else 10
    model = plan.model(0).eval()
    x = torch.rand(2, channels, side, side)
    assert model(x).shape == (2, classes)
    again = plan.model(0).eval()
    assert torch.equal(model(x), again(x)) and not torch.equal(model(x), plan.model(1).eval()(x))
    assert plan.data in SETS and len(STATISTICS[plan.data][0]) == channels
    assert str(plan.recipe.epochs) in plan.about and str(plan.recipe.batch_size) in plan.about


def test_the_networks_are_those_of_torchvision_but_for_the_stem() -> None:
    for make, known, classes in (
        (zoo.resnet18_cifar, torchvision.models.resnet18, 10),
        (zoo.resnet152_cifar, torchvision.models.resnet152, 100),
    ):
        with torch.device("meta"):  # shapes alone
            networks = make(classes), known(num_classes=classes)
        own, theirs = ({name: tuple(v.shape) for name, v in net.state_dict().items()} for net in networks)
        assert own.pop("conv1.weight") == (64, 3, 3, 3) and theirs.pop("conv1.weight") == (64, 3, 7, 7)
        assert own == theirs


def test_resnet152_computes_what_torchvisions_does() -> None:
    own = zoo.resnet152_cifar(100, seed=0).eval()
    with torch.device("meta"):
        theirs = torchvision.models.resnet152(num_classes=100).eval()
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    theirs.load_state_dict(own.state_dict(), assign=True)
    x = torch.randn(1, 3, 8, 8)
    torch.testing.assert_close(own(x), theirs(x))


def test_the_papers_settings() -> None:
    mnist, svhn, ten, hundred = (zoo.RECIPES[name].recipe for name in ("mnist", "svhn", "cifar10", "cifar100"))
    assert all(
        r.optimizer == "sgd" and r.momentum == 0.9 and r.weight_decay == 5e-4 for r in (mnist, svhn, ten, hundred)
    )
    assert (mnist.epochs, mnist.lr, mnist.batch_size, mnist.schedule) == (30, 1e-2, 128, "constant")
    assert (svhn.epochs, svhn.batch_size, svhn.rate(0, 1), svhn.rate(15, 1), svhn.rate(30, 1)) == pytest.approx(
        (50, 64, 0.05, 0.005, 0.0005)
    )
    assert [ten.rate(e, 1) for e in (29, 30, 60, 90)] == pytest.approx([0.1, 0.01, 0.001, 0.0001])
    assert [hundred.rate(e, 1) for e in (39, 40, 70, 100)] == pytest.approx([0.1, 0.01, 0.001, 0.0001])
    assert (ten.epochs, ten.batch_size, hundred.epochs, hundred.batch_size) == (100, 128, 120, 64)


def test_normalisation_comes_first() -> None:
    seen: list[Tensor] = []

    class Look(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x.flatten(1)

    zoo.Normalised(Look(), (0.5, 0.25), (0.5, 0.125))(torch.full((1, 2, 1, 1), 0.75))
    assert seen[0].flatten().tolist() == [0.5, 4.0]


def test_trained_once_and_found_again(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    first = zoo.trained("digits", 3, tmp_path, limit=200, epochs=2, progress=False)
    assert len(first.history) == 2 and 0.1 < first.accuracy <= 1 and not first.model.training
    (place,) = tmp_path.iterdir()
    assert sorted(p.name for p in place.iterdir()) == ["trained.json", "weights.pt"]
    second = zoo.trained("digits", 3, tmp_path, limit=200, epochs=2, progress=False)
    assert second.accuracy == first.accuracy and second.history == first.history
    for a, b in zip(first.model.state_dict().values(), second.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)

    facts = json.loads((place / "trained.json").read_text())
    facts["identity"]["transform"] = "nescio.zoo.plans.to_floats"  # as folders of earlier versions have it
    (place / "trained.json").write_text(json.dumps(facts))
    assert zoo.trained("digits", 3, tmp_path, limit=200, epochs=2).accuracy == first.accuracy
    facts["identity"]["lr"] = "7"
    (place / "trained.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="other settings"):
        zoo.trained("digits", 3, tmp_path, limit=200, epochs=2)
    (place / "trained.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        zoo.trained("digits", 3, tmp_path, limit=200, epochs=2)


def test_an_unknown_plan_is_an_error_that_lists_them() -> None:
    with pytest.raises(InputError, match="got 'mnits'; known: mnist, svhn"):
        zoo.trained("mnits")
