"""Breakpoints against a dense scan; Propositions 1 and 2 and Lemmas 4 to 7 of Ulmer & Cinà (2021)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from nescio import limits
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.posteriors import DeepEnsemble, Deterministic, MCDropout, PosteriorBase, Temperature
from nescio.posteriors.base import ScaledNetwork
from nescio.types import InputError, ModelError
from tests.limits.networks import SmallResNet, Wrapped, mlp, pattern


def scan(model: nn.Module, x: Tensor, d: Tensor, breakpoints: Tensor, points: int = 4001) -> None:
    """The pattern of a dense grid changes exactly in those cells in which there is a breakpoint."""
    ends = float(breakpoints[-1]) * 1.2
    # dense where breakpoints are dense: a grid even in their number
    grid = torch.cat(
        [torch.linspace(0, ends, points).double(), torch.quantile(breakpoints, torch.linspace(0, 1, points).double())]
    )
    grid = grid.unique()
    grid = grid[((grid[:, None] - breakpoints).abs() > 1e-9 * ends).all(1)]  # not on a face
    seen = pattern(model, x + grid.view(-1, *[1] * x.ndim) * d)
    changed = (seen[1:] != seen[:-1]).any(1)
    inside = torch.searchsorted(breakpoints, grid[1:]) - torch.searchsorted(breakpoints, grid[:-1])
    assert inside.sum() == len(breakpoints) - int((breakpoints < grid[0]).sum())
    assert (inside[changed] > 0).all(), "a change of pieces without a breakpoint"
    assert changed[inside == 1].all(), "a breakpoint without a change of pieces"
    far = pattern(model, x + (ends * 10.0 ** torch.arange(1, 6)).view(-1, *[1] * x.ndim) * d)
    assert (far == seen[-1]).all(), "a change behind the last breakpoint"


def test_all_breakpoints_of_a_perceptron() -> None:
    model = mlp(6, 20, 20, 20, 3)
    torch.manual_seed(1)
    x, d = torch.randn(6, 6).double(), torch.randn(6, 6).double()
    found = limits.ray(model, x, d)
    for at in range(6):
        assert len(found.breakpoints[at]) > 10
        scan(model, x[at], d[at], found.breakpoints[at])
        alpha = torch.cat([torch.linspace(0, 5, 50).double(), found.breakpoints[at], torch.tensor([1e3]).double()])
        with torch.no_grad():
            direct = model(x[at] + alpha[:, None] * d[at])
        assert torch.allclose(found.logits(alpha)[0, at], direct, rtol=1e-10, atol=1e-10)


def test_all_breakpoints_of_a_residual_network() -> None:
    model = SmallResNet()
    torch.manual_seed(2)
    x, d = torch.randn(2, 1, 6, 6).double(), torch.randn(2, 1, 6, 6).double()
    found = limits.ray(model, x, d)
    for at in range(2):
        assert len(found.breakpoints[at]) > 50
        scan(model, x[at], d[at], found.breakpoints[at])
        alpha = torch.linspace(0, 20, 200).double()
        with torch.no_grad():
            direct = model(x[at] + alpha.view(-1, 1, 1, 1) * d[at])
        assert torch.allclose(found.logits(alpha)[0, at], direct, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "inner",
    [
        nn.LeakyReLU(-0.5), nn.PReLU(3, init=-0.5), nn.Hardtanh(-0.3, 0.4), nn.ReLU6(), nn.AvgPool2d(3, 2, padding=1),
        nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), nn.AdaptiveMaxPool2d((2, 4)), nn.BatchNorm2d(3),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.Hardtanh()), torch.abs,
        lambda h: torch.cat([h.clamp(min=-0.2, max=0.7), F.relu(h) - h], 1),
    ],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_rays_through_every_layer(inner: object) -> None:
    """From anywhere, and from pictures of one colour, on which all entries of a window tie."""
    model = Wrapped(inner)
    torch.manual_seed(1)
    x, d = torch.zeros(3, 2, 6, 6).double(), torch.randn(3, 2, 6, 6).double()
    x[0] = torch.randn(2, 6, 6)
    d[2] = 1.0
    found = limits.ray(model, x, d)
    end = 3 * max([1.0, *(float(b[-1]) for b in found.breakpoints if len(b))])
    alpha = torch.cat([torch.linspace(0, end, 300), torch.logspace(-6, 5, 50)]).double()
    with torch.no_grad():
        direct = torch.stack([model(x[n] + alpha.view(-1, 1, 1, 1) * d[n]) for n in range(3)])
    assert ((found.logits(alpha)[0] - direct).abs() / (1 + direct.abs())).max() < 1e-10


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 3), st.booleans())
def test_proposition_2_the_softmax_becomes_that_of_the_last_region(
    seed: int, classes: int, depth: int, leaky: bool
) -> None:
    model = mlp(3, *[8] * depth, classes, seed=seed, activation=nn.LeakyReLU if leaky else nn.ReLU)
    torch.manual_seed(seed + 1)
    x, d = torch.randn(3, 3).double(), torch.randn(3, 3).double()
    found = limits.ray(model, x, d)
    behind = torch.stack([b[-1] if len(b) else torch.tensor(0.0).double() for b in found.breakpoints]) * 1.5 + 1
    last = limits.region(model, x + behind[:, None] * d)
    assert last.unbounded(d).all()
    slopes = torch.einsum("ncd,nd->nc", last.V, d)
    assert torch.allclose(slopes, found.slopes[0], rtol=0, atol=1e-12)
    top = slopes.sort(1, descending=True).values
    clear = top[:, 0] - top[:, 1] > 1e-6 * top.abs().amax(1)
    expected = torch.nn.functional.one_hot(slopes.argmax(1), classes).double()
    assert (found.probabilities - expected)[clear].abs().max() <= 1e-9 if clear.any() else True
    far = behind + 60 / (top[:, 0] - top[:, 1]).clamp(min=1e-9)
    with torch.no_grad():
        p = model(x + far[:, None] * d).softmax(1)
    assert (p - found.probabilities)[clear].abs().max() <= 1e-9 if clear.any() else True


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_propositions_and_lemmas_gradients_vanish_along_rays(seed: int) -> None:
    models = [mlp(2, 10, 10, 3, seed=seed + at) for at in range(3)]
    torch.manual_seed(seed)
    x, d = torch.randn(1, 2).double(), torch.randn(1, 2).double()
    found = limits.ray(models, x, d)
    gap = found.slopes.sort(2, descending=True).values
    if (gap[..., 0] - gap[..., 1]).min() < 1e-4:  # the propositions ask for entries of V that differ
        return
    far = found.breakpoints[0][-1] + 100 / (gap[..., 0] - gap[..., 1]).min()
    for name in ("max_probability", "entropy", "variance", "mutual_information", "aleatoric"):
        value = limits.uncertainty(models, name)
        norms = []
        for alpha in (float(far), float(2 * far)):
            at = (x + alpha * d).requires_grad_(True)
            (slope,) = torch.autograd.grad(value(at).sum(), at)
            norms.append(slope.norm().item())
            limit = getattr(found.limits, {"entropy": "total", "mutual_information": "epistemic"}.get(name, name))
            assert abs(value(at).item() - limit.item()) <= 1e-9
        assert max(norms) <= 1e-9
    single = limits.uncertainty(models[0], "max_probability")
    at = x.clone().requires_grad_(True)
    assert torch.autograd.grad(single(at).sum(), at)[0].norm() > 1e-4  # and do not at the data


def test_ties_share_the_limit() -> None:
    model = mlp(2, 6, 3)
    with torch.no_grad():
        model[2].weight[1] = model[2].weight[0]
        model[2].bias.copy_(torch.tensor([0.0, 1.0, 5.0]))
        model[2].weight[2] = model[2].weight[0] - 1.0
    found = limits.ray(model, torch.zeros(1, 2), torch.ones(2))
    assert found.tied[0, 0].tolist() == [True, True, False]
    e = torch.tensor(1.0).exp().item()
    assert torch.allclose(found.probabilities[0], torch.tensor([1 / (1 + e), e / (1 + e), 0.0]).double(), atol=1e-12)
    assert found.limits.total.item() == pytest.approx(0.5822, abs=1e-4)
    stays = found.settles("entropy", 1e-3).item()
    value = limits.uncertainty(model, "entropy")
    alphas = stays + torch.linspace(0, 50, 2000).double()
    assert ((value(alphas[:, None] * torch.ones(2).double()) - found.limits.total).abs() <= 1e-3 + 1e-12).all()


def test_a_dead_network_keeps_its_probabilities() -> None:
    model = mlp(2, 5, 5, 3)
    with torch.no_grad():
        model[2].weight.copy_(-model[2].weight.abs())
        model[2].bias.fill_(-1.0)
    found = limits.ray(model, torch.randn(4, 2), torch.randn(4, 2))
    assert (found.slopes == 0).all() and found.tied.all()
    assert torch.allclose(found.probabilities, model[4].bias.double().softmax(0).expand(4, -1), atol=1e-14)
    assert (found.settles("entropy") == 0).all()


def test_units_that_die_on_the_way_leave_no_trace_in_the_last_slopes() -> None:
    """Forty changes of the slopes add up to round-off, which must not choose a class where all of them tie at 0."""
    random = torch.Generator().manual_seed(0)
    model = mlp(1, 40, 3)
    with torch.no_grad():
        model[0].weight.copy_(-0.1 - torch.rand(40, 1, dtype=torch.float64, generator=random))
        model[0].bias.copy_(1 + 10 * torch.rand(40, dtype=torch.float64, generator=random))
        model[2].weight.copy_(torch.randn(3, 40, dtype=torch.float64, generator=random))
    found = limits.ray(model, torch.zeros(1, 1), torch.ones(1))
    assert len(found.breakpoints[0]) == 40 and (found.slopes == 0).all() and found.tied.all()
    assert torch.allclose(found.probabilities[0], model[2].bias.softmax(0), rtol=0, atol=1e-12)


def test_slopes_that_differ_by_round_off_alone_tie() -> None:
    model = nn.Linear(1, 3).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [1.0 + 4e-16], [1.0 - 1e-6]]))
        model.bias.copy_(torch.tensor([0.3, 0.0, 0.0]))
    found = limits.ray(model, torch.zeros(1, 1).double(), torch.ones(1))
    assert found.tied.tolist() == [[[True, True, False]]]
    assert found.probabilities[0, 0].item() == pytest.approx(1 / (1 + math.exp(-0.3)))


def test_a_slow_unit_is_not_lost_behind_a_fast_one() -> None:
    """What counts as round-off follows the rates as they are, not those of a unit that is dead by then."""
    model = mlp(1, 2, 2, 2)
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model[0].bias.copy_(torch.tensor([1.0, 0.0]))
        model[2].weight.copy_(torch.tensor([[1e13, 0.0], [0.0, -0.1]]))
        model[2].bias.copy_(torch.tensor([0.0, 5.0]))
    found = limits.ray(model, torch.zeros(1, 1), torch.ones(1))
    assert found.breakpoints[0].tolist() == pytest.approx([1.0, 50.0])  # h = 5 − 0.1 α


def test_zero_biases_hold_units_at_zero_until_something_moves_them() -> None:
    """A unit behind dead ones is 0 exactly, and must wake up when one of them does."""
    model = mlp(1, 2, 1, 2)
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [1.0]]))
        model[0].bias.copy_(torch.tensor([-1.0, -2.0]))
        model[2].weight.copy_(torch.tensor([[1.0, -3.0]]))
        model[2].bias.zero_()
    found = limits.ray(model, torch.zeros(1, 1), torch.ones(1))
    assert found.breakpoints[0].tolist() == pytest.approx([1.0, 2.0, 2.5])  # h = (α−1) − 3(α−2) is 0 at 2.5


def test_start_on_a_face_and_faces_that_are_met_together() -> None:
    model = mlp(2, 4, 4, 3)
    with torch.no_grad():
        model[0].weight[1] = model[0].weight[0]
        model[0].bias[1] = model[0].bias[0]  # two units with one face
        w, b = model[0].weight[0], model[0].bias[0]
        x = -b * w / w.square().sum()
    for d in (w, -w):
        found = limits.ray(model, x[None].detach(), d.detach())
        alpha = torch.linspace(0, 30, 500).double()
        with torch.no_grad():
            assert torch.allclose(found.logits(alpha)[0, 0], model(x + alpha[:, None] * d), atol=1e-10)
        assert (found.breakpoints[0] > 0).all() and (found.breakpoints[0].diff() > 0).all()
    through = limits.ray(model, (x - w)[None].detach(), w.detach())
    assert (through.breakpoints[0] - 1).abs().min() < 1e-12
    assert ((through.breakpoints[0] - 1).abs() < 1e-6).sum() == 1  # once, though two units change


def test_many_rays_are_what_each_is_alone() -> None:
    model = mlp(4, 12, 12, 3)
    torch.manual_seed(4)
    x, d = torch.randn(140, 4).double(), torch.randn(140, 4).double()
    x[1], d[1] = x[0], d[0]
    together = limits.ray(model, x, d)
    assert torch.equal(together.breakpoints[0], together.breakpoints[1])
    for at in (0, 70, 139):
        alone = limits.ray(model, x[at : at + 1], d[at])
        assert len(alone.breakpoints[0]) == len(together.breakpoints[at])
        assert torch.allclose(alone.breakpoints[0], together.breakpoints[at], rtol=1e-10)
        assert torch.allclose(alone.probabilities[0], together.probabilities[at], atol=1e-12)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["max_probability", "entropy", "mutual_information", "variance"]))
def test_behind_its_alpha_a_score_stays_near_its_limit(seed: int, name: str) -> None:
    models = [mlp(2, 8, 8, 3, seed=seed + at) for at in range(2)]
    torch.manual_seed(seed)
    x, d = torch.randn(1, 2).double(), torch.randn(1, 2).double()
    found = limits.ray(models, x, d)
    stays = found.settles(name, 0.02).item()
    limit = getattr(found.limits, {"entropy": "total", "mutual_information": "epistemic"}.get(name, name)).item()
    value = limits.uncertainty(models, name)
    after = stays * (1 + torch.logspace(-9, 3, 3000).double())
    assert ((value(x + after[:, None] * d) - limit).abs() <= 0.02 + 1e-4).all()
    if stays > 0:  # and not much before
        assert abs(value(x + stays * (1 - 1e-6) * d).item() - limit) > 0.02 - 1e-6


def test_ensembles_and_temperatures() -> None:
    models = [mlp(2, 8, 3, seed=at) for at in range(3)]
    x, d = torch.randn(2, 2).double(), torch.ones(2).double()
    listed = limits.ray(models, x, d)
    assert torch.equal(limits.ray(DeepEnsemble(models), x, d).samples, listed.samples)
    assert listed.probabilities.sum(1).allclose(torch.ones(2).double())
    assert len(listed.breakpoints[0]) == sum(len(paths[0].breakpoints) for paths in listed.paths)
    single = limits.ray(Deterministic(models[0]), x, d)
    cooled = Temperature(models[0]).fit_logits(torch.randn(20, 3), torch.arange(20) % 3)
    assert cooled.temperature is not None
    warm = limits.ray(cooled, x, d)
    assert torch.allclose(warm.slopes, single.slopes / cooled.temperature)
    assert torch.equal(warm.samples, single.samples)  # no temperature saves a one-hot limit
    assert torch.allclose(warm.logits([3.0])[:, :, 0], cooled.logits(x + 3 * d))
    shifted = Temperature(models[0], "platt").fit_logits(torch.randn(20, 3), torch.arange(20) % 3)
    for scaled in (shifted, Temperature(shifted).fit_logits(torch.randn(20, 3), torch.arange(20) % 3)):
        assert torch.allclose(limits.ray(scaled, x, d).logits([3.0])[:, :, 0], scaled.logits(x + 3 * d))
    twice = Temperature(cooled, "platt").fit_logits(torch.randn(20, 3), torch.arange(20) % 3)
    assert torch.allclose(limits.ray(twice, x, d).logits([3.0])[:, :, 0], twice.logits(x + 3 * d))
    with pytest.raises(InputError, match="expected a temperature that was fitted, got none"):
        limits.ray(Temperature(models[0]), x, d)
    dropped = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(ModelError, match=r"got a MCDropout.*audit"):
        limits.ray(MCDropout(dropped), x, d)


def test_a_distribution_of_ones_own_names_its_networks() -> None:
    network = mlp(2, 6, 3)

    class Halved(PosteriorBase):
        classifiers = (Classifier.of(network),)

        def networks(self) -> list[ScaledNetwork]:
            return [ScaledNetwork(self.classifiers[0], scale=0.5, shift=1.0)]

        def _logits(self, x: Inputs) -> Tensor:
            return self.classifiers[0].logits(x)[None] / 2 + 1.0

    x, direction = torch.randn(1, 2).double(), torch.randn(2).double()
    own, plain = limits.ray(Halved(), x, direction), limits.ray(network, x, direction)
    assert torch.equal(own.paths[0][0].logits, plain.paths[0][0].logits / 2 + 1.0)
    assert torch.equal(own.paths[0][0].slope, plain.paths[0][0].slope / 2)


def test_errors() -> None:
    model, x = mlp(2, 4, 2), torch.ones(2, 2)
    with pytest.raises(InputError, match="lead somewhere"):
        limits.ray(model, x, torch.zeros(2))
    with pytest.raises(InputError, match="lead somewhere"):
        limits.ray(model, x, torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    with pytest.raises(InputError, match="of the inputs' shape"):
        limits.ray(model, x, torch.ones(3))
    with pytest.raises(InputError, match="finite numbers in direction"):
        limits.ray(model, x, torch.tensor([1.0, torch.inf]))
    with pytest.raises(ModelError, match="at most 1 breakpoints"):
        limits.ray(mlp(2, 300, 2), x, torch.ones(2), most=1)
    with pytest.raises(InputError, match="empty list"):
        limits.ray([], x, torch.ones(2))
    found = limits.ray(model, x, torch.ones(2))
    with pytest.raises(InputError, match="score among"):
        found.settles("regrad")
    with pytest.raises(InputError, match="between 0 and 1"):
        found.settles(within=2.0)
    with pytest.raises(InputError, match="at least 0"):
        found.logits([-1.0])


def test_doubt_between_two_breakpoints_is_not_passed_over() -> None:
    # certain of the second class at the start, of the first in the end, and in doubt on the way: z = (0, 10 − α)
    model = nn.Linear(1, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [-1.0]]))
        model.bias.copy_(torch.tensor([0.0, 10.0]))
    found = limits.ray(model, torch.zeros(1, 1).double(), torch.ones(1))
    assert len(found.breakpoints[0]) == 0 and found.probabilities.tolist() == [[1.0, 0.0]]
    assert found.settles("max_probability", 0.01).item() == pytest.approx(10 + math.log(99), abs=1e-6)


def test_a_bar_counts_the_faces_that_are_crossed(capsys):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    x, d = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    crossed = sum(len(found) for found in limits.ray(model, x, d, progress=True).breakpoints)
    assert f"{crossed} face" in capsys.readouterr().err
    limits.ray(model, x, d)
    assert not capsys.readouterr().err  # not a terminal


def test_a_bar_counts_the_rays_along_which_a_score_is_followed(capsys):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    found = limits.ray(model, x, torch.ones(3, dtype=torch.float64), progress=False)
    found.settles("entropy", progress=True)
    assert "following entropy: 100%" in (shown := capsys.readouterr().err) and "4/4" in shown
    limits.audit(model, x, "random", "max_probability", starts=2, count=2, progress=True)
    assert "following max_probability: 100%" in capsys.readouterr().err
