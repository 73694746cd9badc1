"""The auto-encoder, and the search for a less uncertain input with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nescio import posteriors
from nescio.attribution import VAE, explain
from nescio.attribution.vae import Shape
from nescio.training import Recipe
from nescio.types import InputError

RECIPE = Recipe(epochs=20, batch_size=32, lr=1e-2, optimizer="adam", weight_decay=0.0)


def stripes(count: int, seed: int = 0) -> Tensor:
    """Pictures of a bright row whose place is their one factor."""
    random = torch.Generator().manual_seed(seed)
    at = torch.randint(0, 6, (count,), generator=random)
    x = 0.05 * torch.randn(count, 1, 6, 7, generator=random)
    x[torch.arange(count), 0, at] += 1.0
    return x


@pytest.fixture(scope="module")
def vae() -> VAE:
    return VAE.train_on(stripes(256), latent=4, width=8, recipe=RECIPE, progress=False)


def test_it_learns_and_is_the_same_every_time(vae: VAE) -> None:
    x = stripes(64, seed=1)
    y = vae.decode(vae.encode(x)[0])
    assert float((y - x).square().mean()) < 0.5 * float((x - x.mean(0)).square().mean())
    assert not vae.training and not any(p.requires_grad for p in vae.parameters())
    state = torch.get_rng_state()
    again = VAE.train_on(stripes(256), latent=4, width=8, recipe=RECIPE, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(vae.state_dict().values(), again.state_dict().values(), strict=True))


def test_divergence_and_misfit_by_hand() -> None:
    made = VAE(Shape((3,), 2, 1)).eval()
    x = torch.randn(4, 3)
    mean, log_variance = made.encode(x)
    std = (log_variance / 2).exp()
    wanted = (-std.log() + (std**2 + mean**2) / 2 - 0.5).sum(1)
    fit, divergence = made(x).unbind(1)
    torch.testing.assert_close(divergence, wanted)
    torch.testing.assert_close(fit, 0.5 * (made.decode(mean) - x).square().sum(1))


def test_saved_and_loaded(vae: VAE, tmp_path: Path) -> None:
    vae.save(tmp_path / "vae.pt")
    other = VAE.load(tmp_path / "vae.pt")
    x = stripes(3)
    assert torch.equal(other.decode(other.encode(x)[0]), vae.decode(vae.encode(x)[0]))
    assert (other.shape, other.training) == (vae.shape, False)
    (tmp_path / "text").write_text("no")
    for name in ("text", "none"):
        with pytest.raises(InputError):
            VAE.load(tmp_path / name)
    torch.save({"format": "other"}, tmp_path / "other")
    with pytest.raises(InputError, match="which is another"):
        VAE.load(tmp_path / "other")


def test_a_folder_keeps_the_run(tmp_path: Path) -> None:
    few = Recipe(epochs=1, batch_size=32)
    one = VAE.train_on(stripes(32), latent=2, width=2, recipe=few, folder=tmp_path / "run", progress=False)
    two = VAE.train_on(stripes(32), latent=2, width=2, recipe=few, folder=tmp_path / "run", progress=False)
    assert any((tmp_path / "run").iterdir())
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def ensemble() -> posteriors.DeepEnsemble:
    torch.manual_seed(3)
    return posteriors.DeepEnsemble([nn.Sequential(nn.Flatten(), nn.Linear(42, 3)) for _ in range(3)])


def test_the_search_lowers_the_uncertainty(vae: VAE) -> None:
    """Found inputs are less uncertain than where the search began, and the map is how far they are from the input."""
    from nescio.attribution.clue import _Search
    from nescio.attribution.problem import Problem
    from nescio.attribution.sampled_members import members
    from nescio.attribution.source import Source
    from nescio.attribution.uncertainty import value

    x, posterior = stripes(4, seed=2), ensemble()
    problem = Problem(members(posterior, x), Source.of(x, "auto"), "total", x)
    search = _Search(problem, vae, 12, 0.1)
    start, end = vae.decode(search.origin), search.least_uncertain(search.origin, 0.0)
    assert bool((value(posterior.logits(end), "total") < value(posterior.logits(start), "total")).all())
    held = search.least_uncertain(search.origin, 1e4)  # held by the distance, it stays nearer
    assert float((held - x).abs().mean()) < float((end - x).abs().mean())
    found = explain(posterior, x, "clue", of="total", vae=vae, steps=12, weight=0.0)
    torch.testing.assert_close(found.maps, (x - end).abs().mean(1).double(), rtol=1e-4, atol=1e-6)


def test_delta_clue_stays_within_the_ball(vae: VAE) -> None:
    x, posterior = stripes(3, seed=2), ensemble()
    near = explain(posterior, x, "delta_clue", vae=vae, steps=10, delta=1e-3, starts=2)
    same = (x - vae.decode(vae.encode(x)[0])).abs().mean(1).double()
    torch.testing.assert_close(near.maps, same, rtol=0, atol=1e-2)
    far = explain(posterior, x, "delta_clue", vae=vae, steps=10, delta=3.0, starts=2)
    assert float((far.maps - same).abs().max()) > 0.05
    other = explain(posterior, x, "delta_clue", vae=vae, steps=10, delta=3.0, starts=2, seed=1)
    assert not torch.equal(other.maps, far.maps)


def test_tables_too() -> None:
    x = torch.randn(64, 5)
    made = VAE.train_on(x, latent=2, width=2, recipe=Recipe(epochs=1), progress=False)
    posterior = posteriors.DeepEnsemble([nn.Linear(5, 3), nn.Linear(5, 3)])
    assert explain(posterior, x[:3], "clue", vae=made, steps=2).maps.shape == (3, 5)


def test_errors(vae: VAE) -> None:
    with pytest.raises(InputError, match=r"train one on inputs like these: nescio.attribution.VAE.train_on\(x_train\)"):
        explain(ensemble(), stripes(2), "clue")
    with pytest.raises(InputError, match="expected inputs like those of the VAE"):
        explain(posteriors.DeepEnsemble([nn.Linear(4, 3), nn.Linear(4, 3)]), torch.randn(2, 4), "clue", vae=vae)
    with pytest.raises(InputError, match="expected at least 2 floating-point inputs"):
        VAE.train_on(torch.ones(5, 3, dtype=torch.long))
