import pytest
import torch
from torch import nn

from nescio.posteriors.anchored import AnchoredEnsemble, AnchoredLoss
from nescio.posteriors.ensemble import DeepEnsemble
from nescio.posteriors.saving import load
from nescio.training import Recipe, Step, seeded
from nescio.types import InputError, ModelError
from tests.toy_data import blobs

RECIPE = Recipe(epochs=5, batch_size=30, lr=0.02, optimizer="adam", schedule="constant")


def network():
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))


@pytest.fixture(scope="module")
def fitted():
    return AnchoredEnsemble.train(network, blobs(), blobs(60, 1), members=3, recipe=RECIPE, progress=False)


def test_the_pull_is_that_of_a_hand_worked_case():
    """θ = (1, 2), θ_anc = (0, 4), σ = ½, N = 10: (1 + 4)/(2·¼)/10 = 1, its gradient (θ − θ_anc)/(σ²N) = (0.4, −0.8)."""
    theta = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    loss = AnchoredLoss(0.5, 0, [(theta, torch.tensor([0.0, 4.0], dtype=torch.float64), 0.5)])
    z, y = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([1])
    value = loss(z, y, Step(1, 0.0, nn.Identity(), 10, True))
    assert value.item() == pytest.approx(torch.log(torch.tensor(2.0)).item() + 1.0, abs=1e-7)
    value.backward()
    torch.testing.assert_close(theta.grad, torch.tensor([0.4, -0.8], dtype=torch.float64), rtol=0, atol=1e-12)
    alone = loss(z, y, Step(1, 0.0, nn.Identity(), 10, False))
    assert alone.item() == pytest.approx(torch.log(torch.tensor(2.0, dtype=torch.float64)).item(), abs=1e-12)


def test_anchors_are_draws_of_the_prior():
    with seeded(0):
        model = nn.Sequential(nn.Linear(50, 200), nn.ReLU(), nn.Linear(200, 3))
    terms = AnchoredLoss.drawn(model, None, seed=1).terms
    _, anchor, std = terms[0]
    assert std == pytest.approx((2 / 50) ** 0.5)
    assert anchor.std().item() == pytest.approx(std, rel=0.03) and abs(anchor.mean().item()) < 5 * std / 100
    assert not torch.equal(AnchoredLoss.drawn(model, None, seed=2).terms[0][1], anchor)
    assert torch.equal(AnchoredLoss.drawn(model, None, seed=1).terms[0][1], anchor)
    assert {std for *_, std in AnchoredLoss.drawn(model, 0.7, seed=1).terms} == {0.7}


def test_a_narrow_prior_holds_the_members_at_their_anchors():
    recipe = Recipe(epochs=300, batch_size=120, lr=0.05, optimizer="adam", schedule="cosine")
    found = AnchoredEnsemble.train(network, blobs(), members=2, prior_std=0.003, recipe=recipe, progress=False)
    for classifier in found.classifiers:
        values = torch.cat([p.detach().flatten() for p in classifier.parameters().values()])
        assert values.abs().max() < 0.03  # from about ±0.7 at the beginning
        assert values.std().item() == pytest.approx(0.003, rel=0.5)


def test_it_is_an_ensemble_whose_members_differ(fitted):
    assert isinstance(fitted, DeepEnsemble)
    x, y = blobs(60, 2)
    p = fitted.predict(x)
    assert p.shape == (3, 60, 3) and p.dtype == torch.float64
    assert (p.mean(0).argmax(1) == y).double().mean() > 0.9
    assert not torch.equal(p[0], p[1]) and not torch.equal(p[1], p[2])


def test_it_is_saved_and_loaded(fitted, tmp_path):
    pytest.importorskip("safetensors")
    fitted.save(tmp_path)
    again = load(tmp_path, network)
    assert isinstance(again, AnchoredEnsemble)
    assert torch.equal(again.predict(blobs(9)[0]), fitted.predict(blobs(9)[0]))


def test_the_seed_decides_and_a_folder_takes_it_up_again(fitted, tmp_path):
    given = {"members": 3, "recipe": RECIPE, "progress": False}
    x, _ = blobs(9)
    for _ in range(2):  # trained, and loaded at once
        again = AnchoredEnsemble.train(network, blobs(), blobs(60, 1), folder=tmp_path, **given)
        assert torch.equal(again.predict(x), fitted.predict(x))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["member-0", "member-1", "member-2"]
    with pytest.raises(InputError, match=r"loss .*prior_std=None"):
        AnchoredEnsemble.train(network, blobs(), blobs(60, 1), folder=tmp_path, prior_std=0.5, **given)
    other = AnchoredEnsemble.train(network, blobs(), blobs(60, 1), seed=1, **given)
    assert not torch.equal(other.predict(x), fitted.predict(x))


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="expected members to be a whole number of at least 2, got 1"):
        AnchoredEnsemble.train(network, blobs(), members=1)
    with pytest.raises(ModelError, match="expected a function without arguments that makes a new network"):
        AnchoredEnsemble.train(network(), blobs())
    with pytest.raises(InputError, match="expected prior_std to be a finite number above 0"):
        AnchoredEnsemble.train(network, blobs(), prior_std=-1.0)
    with pytest.raises(InputError, match="expected a recipe or its settings, got both"):
        AnchoredEnsemble.train(network, blobs(), recipe=RECIPE, epochs=3)
