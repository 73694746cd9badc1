"""The last-layer Laplace approximation against laplace-torch, against plain sums of Jacobians, and its promises."""

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from nescio import posteriors
from nescio.posteriors import laplace as room
from nescio.posteriors.laplace import Laplace
from nescio.posteriors.laplace_curvature import Curvature, lowest, most_exact_kind
from nescio.types import InputError, ModelError

KINDS = ["full", "kron", "diag"]


def network(bias: bool = True, classes: int = 3, gain: float = 3.0) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, classes, bias=bias)).double()
    with torch.no_grad():
        net[3].weight.mul_(gain)
    return net  # in training mode, as users leave it


@pytest.fixture
def net() -> nn.Sequential:
    return network()


def examples(count: int = 40, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    return x, torch.randint(classes, (count,), generator=generator)


def theirs(model: nn.Module, kind: str, precision: float = 0.7) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        laplace = pytest.importorskip("laplace")
        found = laplace.Laplace(
            model, "classification", subset_of_weights="last_layer", hessian_structure=kind, prior_precision=precision
        )
        found.fit(DataLoader(TensorDataset(*examples()), batch_size=16))
    return found


def their_covariance(found: Any, kind: str) -> Tensor:
    if kind == "full":
        return found.posterior_covariance
    return found.posterior_precision.to_matrix(exponent=-1) if kind == "kron" else found.posterior_variance.diag()


# laplace-torch multiplies the full curvature with a float32 identity, which leaves it seven digits
TOLERANCE = {"full": 1e-6, "kron": 1e-10, "diag": 1e-10}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_it_is_what_laplace_torch_gives(kind: str, bias: bool) -> None:
    model, x = network(bias), examples()[0][:7]
    them, mine = theirs(model, kind), Laplace(model, kind, 0.7).fit(examples())  # type: ignore[arg-type]
    tolerance: Any = {"rtol": TOLERANCE[kind], "atol": TOLERANCE[kind] * 0.1}
    torch.testing.assert_close(mine.covariance(), their_covariance(them, kind), **tolerance)
    assert mine.log_marginal_likelihood() == pytest.approx(float(them.log_marginal_likelihood()), rel=TOLERANCE[kind])
    _, variance = them._glm_predictive_distribution(x)
    torch.testing.assert_close(mine.variance(x), variance.diagonal(dim1=1, dim2=2), **tolerance)
    probit = Laplace(model, kind, 0.7, link="probit").fit(examples()).predict(x)  # type: ignore[arg-type]
    assert probit.shape == (1, 7, 3)
    torch.testing.assert_close(probit[0], them(x, link_approx="probit"), **tolerance)
    if bias:
        them.optimize_prior_precision(method="marglik", n_steps=300)
        best = Laplace(model, kind).fit(examples())  # type: ignore[arg-type]
        assert best.precision == pytest.approx(float(them.prior_precision), rel=1e-3)
        assert best.log_marginal_likelihood() >= float(them.log_marginal_likelihood()) - 1e-6


def jacobian_sum(model: nn.Sequential, x: Tensor, outputs: int) -> Tensor:
    """Σ_n Jᵀ Λ J in PyTorch's order of parameters, by autograd."""
    total: Any = 0.0
    for one in x:
        z = model.eval()(one[None])[0]
        rows = [torch.autograd.grad(z[o], list(model[3].parameters()), retain_graph=True) for o in range(outputs)]
        j = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
        p = z.softmax(0) if outputs > 1 else z.sigmoid()
        curvature = p.diag() - torch.outer(p, p)
        total = total + j.T @ curvature @ j
    return total.detach()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gain", [1.0, 30.0])
def test_full_and_diagonal_are_sums_of_jacobians(bias: bool, gain: float) -> None:
    model, (x, y) = network(bias, gain=gain), examples()
    truth = jacobian_sum(model, x, 3)
    full, diagonal = Laplace(model, "full", 0.2).fit((x, y)), Laplace(model, "diag", 0.2).fit((x, y))
    torch.testing.assert_close(
        full.covariance(), (truth + 0.2 * torch.eye(len(truth), dtype=torch.float64)).inverse(), rtol=1e-8, atol=1e-10
    )
    torch.testing.assert_close(diagonal.covariance(), (truth.diag() + 0.2).reciprocal().diag(), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("bias", [True, False])
def test_kronecker_factors_by_hand(bias: bool) -> None:
    """B ⊗ A for the weights and B for the bias, apart from each other."""
    model, (x, y) = network(bias), examples()
    model.eval()
    h, p = torch.tanh(model[0](x)).detach(), model(x).softmax(1).detach()
    b = (torch.diag_embed(p) - p[:, :, None] * p[:, None]).sum(0)
    blocks = [torch.kron(b, h.T @ h / 40), *([b] if bias else [])]
    truth = torch.block_diag(*blocks)
    truth = (truth + 0.2 * torch.eye(len(truth), dtype=torch.float64)).inverse()
    torch.testing.assert_close(Laplace(model, "kron", 0.2).fit((x, y)).covariance(), truth, rtol=1e-9, atol=1e-12)


def test_one_logit_for_two_classes() -> None:
    model, (x, y) = network(classes=1), examples(classes=2)
    mine = Laplace(model, "full", 0.5, output="binary").fit((x, y))
    truth = (jacobian_sum(model, x, 1) + 0.5 * torch.eye(7, dtype=torch.float64)).inverse()
    torch.testing.assert_close(mine.covariance(), truth, rtol=1e-9, atol=1e-12)
    z = model.eval()(x).detach()[:, 0]
    assert mine.log_likelihood == pytest.approx(
        -float(nn.functional.binary_cross_entropy_with_logits(z, y.double(), reduction="sum"))
    )
    h = torch.cat([torch.tanh(model[0](x)).detach(), torch.ones(40, 1)], 1)
    variance = (h @ truth * h).sum(1)
    torch.testing.assert_close(mine.variance(x), torch.stack([0 * variance, variance], 1), rtol=1e-8, atol=1e-12)
    drawn = mine.logits(x)
    assert not drawn[:, :, 0].any() and drawn.shape == (100, 40, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_draws_have_the_moments_of_the_posterior(net: nn.Sequential, kind: Any) -> None:
    x, samples = examples()[0][:5], 4_000
    mine = Laplace(net, kind, 0.7, samples=samples).fit(examples())
    drawn = mine.logits(x)
    z = net.eval()(x).detach()
    spread = mine.variance(x).sqrt()
    assert ((drawn.mean(0) - z).abs() < 5 * spread / math.sqrt(samples)).all()
    torch.testing.assert_close(drawn.var(0), spread.square(), rtol=0.12, atol=0.0)
    # between two outputs, and between two inputs, which share a draw
    h = torch.cat([torch.tanh(net[0](x)).detach(), torch.ones(5, 1)], 1)
    place = torch.arange(21)
    order = torch.cat([torch.cat([place[6 * o : 6 * o + 6], place[18 + o : 19 + o]]) for o in range(3)])
    full = mine.covariance()[order][:, order].view(3, 7, 3, 7)
    truth = torch.einsum("nd,odpe,me->nomp", h, full, h)
    flat = (drawn - z).reshape(samples, 15)
    torch.testing.assert_close(flat.T @ flat / samples, truth.reshape(15, 15), rtol=0.0, atol=0.1 * float(truth.max()))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_samples_and_memory_do_not_change_a_draw(net: nn.Sequential, kind: Any, monkeypatch: Any) -> None:
    x = examples()[0]
    mine = Laplace(net, kind, samples=6, seed=3).fit(examples())
    whole = mine.predict(x)
    assert whole.dtype == torch.float64 and whole.shape == (6, 40, 3)
    torch.testing.assert_close(whole.sum(-1), torch.ones(6, 40, dtype=torch.float64))
    torch.testing.assert_close(mine.predict(list(x.split(7))), whole, rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(mine.predict(x[9:10]), whole[:, 9:10], rtol=1e-11, atol=1e-14)
    again = Laplace(net, kind, samples=3, seed=3).fit(examples())
    torch.testing.assert_close(again.predict(x), whole[:3], rtol=1e-11, atol=1e-14)
    assert not torch.allclose(Laplace(net, kind, samples=6, seed=4).fit(examples()).predict(x), whole)
    monkeypatch.setattr(room, "_KEPT", 0)
    torch.testing.assert_close(Laplace(net, kind, samples=6, seed=3).fit(examples()).predict(x), whole)


def turned(matrix: Tensor, eigh: Any = torch.linalg.eigh) -> tuple[Tensor, Tensor]:
    """Eigenvectors as another machine may give them: other signs, and those of equal values rotated."""
    values, vectors = eigh(matrix)
    vectors = vectors * torch.where(torch.arange(len(values)) % 2 == 0, -1.0, 1.0).double()
    equal = values - values[0] < 1e-9 * values[-1]
    assert equal.sum() >= 2  # the subject has such values
    rotation = torch.linalg.qr(torch.randn(int(equal.sum()), int(equal.sum()), dtype=torch.float64))[0]
    vectors[:, equal] = vectors[:, equal] @ rotation
    return values, vectors


def half_dead() -> nn.Sequential:
    """A network of which three features are always zero, and whose last two classes have hardly a chance."""
    net = network(classes=4)
    with torch.no_grad():
        for part in (net[0].weight[:3], net[0].bias[:3]):
            part.zero_()
        net[3].bias[2:] = -40.0
    return net


@pytest.mark.parametrize("kind", ["full", "kron"])
def test_a_draw_does_not_depend_on_which_eigenvectors_were_found(kind: Any, monkeypatch: Any) -> None:
    net, (x, y) = half_dead(), examples()
    whole = Laplace(net, kind, samples=6).fit((x, y)).predict(x)
    monkeypatch.setattr(torch.linalg, "eigh", turned)
    torch.testing.assert_close(Laplace(net, kind, samples=6).fit((x, y)).predict(x), whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_round_off_in_the_training_data_does_not_change_a_draw(kind: Any) -> None:
    net, (x, y) = half_dead().float(), examples()
    whole = Laplace(net, kind, samples=6).fit((x.float(), y)).predict(x)
    for seed in range(3):
        noise = 1 + 1e-7 * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found = Laplace(net, kind, samples=6).fit(((x * noise).float(), y)).predict(x)
        torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_data_are_read_once_in_any_batches(net: nn.Sequential, kind: Any) -> None:
    x, y = examples()
    whole = Laplace(net, kind).fit((x, y))
    parts = Laplace(net, kind).fit(iter([(x[:7], y[:7]), (x[:0], y[:0]), (x[7:], y[7:])]))
    torch.testing.assert_close(parts.covariance(), whole.covariance(), rtol=1e-10, atol=1e-13)
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)
    single = Laplace(net.float(), kind).fit((x, y))
    torch.testing.assert_close(single.covariance(), whole.covariance(), rtol=1e-4, atol=1e-5)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6), st.floats(1e-3, 1e3))
def test_the_precision_has_the_largest_evidence(values: list[float], norm: float) -> None:
    curvature = Curvature(torch.tensor([values], dtype=torch.float64))

    def evidence(delta: float) -> float:
        return -0.5 * (curvature.log_det_ratio(delta) + delta * norm)

    best = curvature.evidence_precision(norm)
    assert all(evidence(best) >= evidence(best * factor) - 1e-12 for factor in (0.5, 0.99, 1.01, 2.0))
    assert sum(v / (v + best) for v in values) == pytest.approx(best * norm, rel=1e-9)


def test_the_precision_of_the_smallest_validation_loss(net: nn.Sequential) -> None:
    x, y = examples(200)
    train, held_out = (x[:100], y[:100]), (x[100:], y[100:])
    mine = Laplace(net, "kron", "validation", link="probit").fit(train, held_out)

    def loss(precision: float) -> float:
        p = Laplace(net, "kron", precision, link="probit").fit(train).predict(x[100:])[0]
        return float(-p[torch.arange(100), y[100:]].log().mean())

    losses = [loss(float(delta)) for delta in room._GRID]
    assert loss(mine.precision) <= min(losses)
    assert max(losses) > loss(mine.precision) + 1e-3
    parts = Laplace(net, "kron", "validation").fit(train, [(x[100:130], y[100:130]), (x[130:], y[130:])])
    assert parts.precision == mine.precision


def test_round_off_between_two_points_of_the_grid_does_not_move_the_precision() -> None:
    place = room._GRID.log()
    step = float(place[1] - place[0])
    for centre in (float(place[30]) + step / 2, float(place[30]) + 0.2 * step):  # two lowest points, or one
        found = [lowest(room._GRID, (place - centre + change).square() + 3) for change in (-1e-12, 0.0, 1e-12)]
        assert found == pytest.approx([math.exp(centre)] * 3, rel=1e-9)
    assert lowest(room._GRID, place) == pytest.approx(1e-4) and lowest(room._GRID, -place) == pytest.approx(1e4)
    assert lowest(room._GRID, torch.zeros_like(place)) == pytest.approx(1e-4)


def test_the_kind_follows_from_the_size() -> None:
    assert most_exact_kind(10, 129) == "full" and most_exact_kind(10, 250) == "full"
    assert most_exact_kind(10, 251) == "kron" and most_exact_kind(1000, 2049) == "kron"
    assert most_exact_kind(21_843, 769) == "diag"
    model, data = nn.Linear(400, 12).double(), (torch.rand(5, 400), torch.arange(5))
    assert Laplace(model).fit(data)._curvature.outer is not None  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_predicts_the_same_bits(net: nn.Sequential, kind: Any, tmp_path: Path) -> None:
    x, y = examples()
    mine = Laplace(net, kind, samples=3, seed=2).fit((x, y))
    mine.save(tmp_path)
    found = posteriors.load(tmp_path, net)
    assert isinstance(found, Laplace) and torch.equal(found.predict(x), mine.predict(x))
    assert found.log_marginal_likelihood() == mine.log_marginal_likelihood()
    assert torch.equal(found.covariance(), mine.covariance()) and torch.equal(found.variance(x), mine.variance(x))
    with pytest.raises(ModelError, match="other weights"):
        posteriors.load(tmp_path, network(gain=2.0))
    with pytest.raises(InputError, match="expected a fitted Laplace"):
        Laplace(net).save(tmp_path)


class After(nn.Module):
    """A linear layer, and something after it."""

    def __init__(self, after: Any) -> None:
        super().__init__()
        self.head, self.after = nn.Linear(4, 3).double(), after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.head(x))


def test_what_is_no_last_layer_is_refused() -> None:
    data = examples()
    with pytest.raises(
        ModelError, match=r"the logits are not what 'head' \(4 to 3\) gives: the model goes on after it"
    ):
        Laplace(After(lambda z: 1.1 * z)).fit(data)
    with pytest.raises(
        ModelError, match=r"got 'head' \(4 to 3\) with .* \[40, 4\] as its input, for logits of shape \[40, 6\]"
    ):
        Laplace(After(lambda z: torch.cat([z, z], 1))).fit(data)
    with pytest.raises(ModelError, match=r"calls an nn.Linear at its end, .* got one that calls none \(Identity\)"):
        Laplace(nn.Identity()).fit(data)
    after = After(lambda z: z.relu_().view(-1, 3))  # in place: the logits are no longer W h + b
    with pytest.raises(ModelError, match="the model goes on after it"):
        Laplace(after).fit(data)
    assert Laplace(After(lambda z: z.view(-1, 3))).fit(data).precision > 0


def test_what_cannot_be_fitted_is_said(net: nn.Sequential) -> None:
    x, y = examples()
    with pytest.raises(InputError, match=r"expected a fitted Laplace, got one that was not; call \.fit\(\(x, y\)\)"):
        Laplace(net).predict(x)
    with pytest.raises(InputError, match="expected class indices below 3, as the model has 3 classes, got 3"):
        Laplace(net).fit((x, y + 1))
    with pytest.raises(InputError, match="expected training data of at least one input, got none"):
        Laplace(net).fit((x[:0], y[:0]))
    with pytest.raises(InputError, match="labels are needed here"):
        Laplace(net).fit([x])
    with pytest.raises(InputError, match="NaN or infinite"):
        Laplace(net).fit((x * torch.nan, y))
    with pytest.raises(
        InputError, match="expected validation data with prior='validation', and only then, got prior='va"
    ):
        Laplace(net, prior="validation").fit((x, y))
    with pytest.raises(InputError, match="got prior='marglik' and a tuple of 2 items"):
        Laplace(net).fit((x, y), (x, y))
    with pytest.raises(InputError, match="expected validation data of at least one input, got none"):
        Laplace(net, prior="validation").fit((x, y), (x[:0], y[:0]))
    with torch.no_grad():
        net[3].weight.zero_()
        net[3].bias.zero_()
    with pytest.raises(ModelError, match=r"the marginal likelihood has no maximum; give .* prior=1.0"):
        Laplace(net).fit((x, y))
    assert Laplace(net, prior=1.0).fit((x, y)).precision == 1.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "half"}, "expected kind to be 'auto', 'full', 'kron' or 'diag', got 'half'"),
        ({"prior": "best"}, "expected prior to be 'marglik' or 'validation', got 'best'; or give a number above 0"),
        ({"prior": 0.0}, "expected prior to be a finite number above 0, got 0.0"),
        ({"prior": math.nan}, "expected prior to be a finite number above 0, got nan"),
        ({"samples": 0}, "expected samples to be a whole number of at least 1, got 0"),
        ({"seed": -1}, "expected seed to be a whole number of at least 0, got -1"),
        ({"link": "mc"}, "expected link to be 'sample' or 'probit', got 'mc'"),
    ],
)
def test_bad_settings(net: nn.Sequential, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Laplace(net, **settings)
    assert str(caught.value).startswith(words)


def test_a_failed_fit_leaves_the_model_and_what_was_fitted_before(net: nn.Sequential) -> None:
    x, y = examples()
    mine = Laplace(net, samples=2).fit((x, y))
    before, state = mine.predict(x), torch.get_rng_state()
    with pytest.raises(InputError, match="class indices"):
        mine.fit([(x[:20], y[:20]), (x[20:], y[20:] + 5)])
    assert torch.equal(mine.predict(x), before)
    assert (
        mine.fit((x, y)).log_likelihood == Laplace(net).fit((x, y)).log_likelihood
    )  # nothing of the failed one is in it
    assert all(module.training and not module._forward_pre_hooks for module in net.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_change_of_its_settings_draws_anew(net: nn.Sequential) -> None:
    x, y = examples()
    found = Laplace(net, samples=3).fit((x, y))
    first = found.predict(x)
    found.precision *= 100
    assert not torch.equal(found.predict(x), first)
    found.precision, found.samples = found.precision / 100, 5
    assert found.predict(x).shape[0] == 5
    found.samples, found.seed = 3, 1
    assert not torch.equal(found.predict(x), first)


def test_a_parametrised_layer_counts_as_the_weight_that_it_makes(net: nn.Sequential) -> None:
    data = examples()
    plain = Laplace(net).fit(data)
    made = network()
    nn.utils.parametrizations.weight_norm(made[3])
    with torch.no_grad():
        made[3].parametrizations.weight.original1.mul_(20.0)  # whose length makes no difference
    found = Laplace(made).fit(data)
    assert found.precision == pytest.approx(plain.precision, rel=1e-9)
    assert found.log_marginal_likelihood() == pytest.approx(plain.log_marginal_likelihood(), rel=1e-9)


def test_fitting_leaves_the_vectors_of_spectral_norm_as_they_were(net: nn.Sequential) -> None:
    nn.utils.parametrizations.spectral_norm(net[3])
    before = {name: value.clone() for name, value in net.named_buffers()}
    fitted = Laplace(net)
    fitted.absorb(*examples())
    fitted.finish()
    assert all(torch.equal(before[name], value) for name, value in net.named_buffers()) and net.training
