"""Ensembles: any members, where they run, training of them, and errors in words."""

import copy
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio._common import memory
from nescio.models import Classifier
from nescio.posteriors import DeepEnsemble
from nescio.types import InputError, ModelError, Posterior


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Linear(3, 8), nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(x.permute(0, 2, 3, 1).flatten(1, 2))).mean(1))


def members() -> list[nn.Module]:
    """A convolution net, a perceptron and a transformer, for pictures [N, 3, 4, 4]."""
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    return [conv, nn.Sequential(nn.Flatten(), nn.Linear(48, 5), nn.Tanh(), nn.Linear(5, 3)).double(), Attention()]


@pytest.fixture
def x() -> Tensor:
    return torch.rand(7, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def alone(models: list[nn.Module], x: Tensor) -> Tensor:
    with torch.no_grad():
        copies = [copy.deepcopy(model).double().eval() for model in models]
        return torch.stack([model(x.double()).softmax(-1) for model in copies])


def test_three_architectures(x: Tensor) -> None:
    models = members()
    ensemble = DeepEnsemble(models)
    p = ensemble.predict(x)
    assert isinstance(ensemble, Posterior) and p.shape == (3, 7, 3) and p.dtype == torch.float64
    torch.testing.assert_close(p, alone(models, x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ensemble.predict(x.split(2)), p, rtol=1e-5, atol=1e-6)


def test_models_of_any_kind(x: Tensor) -> None:
    first, second, _ = members()
    double = Classifier(second, preprocess=lambda x: 2 * x)
    p = DeepEnsemble([Classifier(first), double, lambda x: x.flatten(1)[:, :3]]).predict(x)
    torch.testing.assert_close(p[2], x.flatten(1)[:, :3].double().softmax(-1))
    torch.testing.assert_close(p[1], DeepEnsemble([second, second]).predict(2 * x)[0])


def test_the_members_are_as_they_were(x: Tensor) -> None:
    models = members()
    before = [copy.deepcopy(model.state_dict()) for model in models]
    places = [p.data_ptr() for model in models for p in model.parameters()]
    for settings in ({}, {"device": "meta", "one_at_a_time": True}):
        ensemble = DeepEnsemble(models, **settings)  # type: ignore[arg-type]
        if settings:
            with pytest.raises(InputError, match="meta"):  # where nothing can be computed
                ensemble.predict(x.to("meta"))
        else:
            ensemble.predict(x)
        assert ensemble._copies is None
        for model, state in zip(models, before, strict=True):
            assert all(part.training for part in model.modules())
            assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        assert places == [p.data_ptr() for model in models for p in model.parameters()]


class Elsewhere(nn.Linear):
    """A layer that counts its copies. It lies on "cpu", which is not the same as "cpu:0"."""

    there = 0
    most = 0

    def __deepcopy__(self, memo: Any) -> "Elsewhere":
        made = Elsewhere(4, 3).train(self.training)
        made.load_state_dict(self.state_dict())
        Elsewhere.there += 1
        Elsewhere.most = max(Elsewhere.most, Elsewhere.there)
        return made

    def __del__(self) -> None:
        Elsewhere.there -= 1


@pytest.mark.parametrize(("how", "most"), [(True, 1), (False, 3), ("auto", 3), ("auto, short of memory", 1)])
def test_members_come_one_at_a_time_or_together(monkeypatch: pytest.MonkeyPatch, how: Any, most: int) -> None:
    models = [Elsewhere(4, 3) for _ in range(3)]
    x = torch.rand(5, 4)
    truth = torch.stack([model(x).double().softmax(-1) for model in models]).detach()
    ensemble = DeepEnsemble(models, device="cpu:0", one_at_a_time="auto" if str(how).startswith("auto") else how)
    if how == "auto, short of memory":  # the choice itself is made for a GPU only
        size = sum(p.numel() * 4 for model in models for p in model.parameters())
        ensemble.device = torch.device("cuda")
        monkeypatch.setattr(memory, "free_bytes", lambda device: size / memory.SHARE)
        assert not ensemble._alone()
        monkeypatch.setattr(memory, "free_bytes", lambda device: size / memory.SHARE - 1)
        assert ensemble._alone()
        ensemble.device, ensemble.one_at_a_time = torch.device("cpu:0"), True
    gc.collect()
    Elsewhere.there = Elsewhere.most = 0
    assert torch.equal(ensemble.predict([x[:2], x[2:]]), truth)
    assert Elsewhere.most == most and Elsewhere.there == 0


def test_too_few_members_and_other_mistakes(x: Tensor) -> None:
    one = members()[0]
    for models in ([], [one]):
        with pytest.raises(
            InputError, match=rf"at least 2 members, got {len(models)}; give more, or use Deterministic"
        ):
            DeepEnsemble(models)
    with pytest.raises(InputError, match="expected a list of models, got an object of type Conv2d"):
        DeepEnsemble(nn.Conv2d(1, 1, 1))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a device to bring the members to with one_at_a_time=True"):
        DeepEnsemble([one, one], one_at_a_time=True)
    with pytest.raises(InputError, match="True, False or 'auto', got 'yes'"):
        DeepEnsemble([one, one], one_at_a_time="yes")  # type: ignore[arg-type]
    other = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    with pytest.raises(ModelError, match="members with the same classes, got 3, 4 classes"):
        DeepEnsemble([one, other]).predict(x)


def blobs(count: int = 90) -> tuple[Tensor, Tensor]:
    y = torch.arange(count) % 3
    noise = torch.randn(count, 2, generator=torch.Generator().manual_seed(0))
    return torch.eye(3)[y][:, :2] * 4 + noise, y


def test_training(tmp_path: Path) -> None:
    data, random = blobs(), torch.get_rng_state()
    settings: dict[str, Any] = {"members": 3, "seed": 1, "epochs": 6, "lr": 0.05, "batch_size": 30}
    factory = lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))  # noqa: E731
    ensemble = DeepEnsemble.train(factory, data, data, folder=tmp_path, **settings)
    p = ensemble.predict(data[0])
    assert torch.equal(torch.get_rng_state(), random)
    assert p.shape == (3, 90, 3) and (p.mean(0).argmax(-1) == data[1]).double().mean() > 0.85
    assert (p[0] - p[1]).abs().max() > 1e-3 and (p[1] - p[2]).abs().max() > 1e-3
    assert torch.equal(DeepEnsemble.train(factory, data, data, **settings).predict(data[0]), p)
    taken_up = DeepEnsemble.train(factory, data, data, folder=tmp_path, **settings)  # finished: loaded at once
    assert torch.equal(taken_up.predict(data[0]), p)
    assert len(list(tmp_path.glob("member-*"))) == 3
    with pytest.raises(InputError, match="members to be a whole number of at least 2, got 1"):
        DeepEnsemble.train(factory, data, members=1)


def test_training_with_a_transform_predicts_with_it() -> None:
    from nescio.training import Recipe

    x, y = blobs()
    recipe = Recipe(epochs=1, transform=lambda x: x.float() / 10)
    ensemble = DeepEnsemble.train(lambda: nn.Linear(2, 3), (x, y), members=2, recipe=recipe)
    model = ensemble.classifiers[0].model
    torch.testing.assert_close(ensemble.predict(x)[0], model(x / 10).detach().double().softmax(-1))  # type: ignore[operator]
    with pytest.raises(InputError, match=r"a recipe or its settings, got both \(recipe and epochs\)"):
        DeepEnsemble.train(lambda: nn.Linear(2, 3), (x, y), recipe=recipe, epochs=3)


def test_one_network_is_no_list_of_members() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))  # its layers could be taken for members
    with pytest.raises(InputError, match="expected a list of models, got an object of type Sequential"):
        DeepEnsemble(model)
    data = (torch.randn(6, 3), torch.arange(6) % 3)
    with pytest.raises(ModelError, match="expected a function without arguments that makes a new network"):
        DeepEnsemble.train(model, data, members=2)
    with pytest.raises(InputError, match="expected a device such as 'cuda' or 'cpu', got 'gpu'"):
        DeepEnsemble([model, model], device="gpu")
