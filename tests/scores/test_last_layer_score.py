"""The scores that change features before the last linear layer, by hand, by their limits, and through a model."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import scores
from nescio.scores.last_layer_score import largest
from nescio.types import InputError, ModelError


def parts(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features of both signs, the layer with its bias, and the logits."""
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(9, 20, generator=generator, dtype=torch.float64)
    layer = torch.randn(3, 21, generator=generator, dtype=torch.float64)
    return h, layer, h @ layer[:, :-1].T + layer[:, -1]


def energy(h: Tensor, layer: Tensor) -> Tensor:
    return -(h @ layer[:, :-1].T + layer[:, -1]).logsumexp(1)


ROW = torch.tensor([[4.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
EYE = torch.cat([torch.eye(10, dtype=torch.float64), torch.zeros(10, 1)], 1)


@pytest.mark.parametrize(
    ("variant", "left"),
    [("p", [4.0, 3.0]), ("b", [5.0, 5.0]), ("s", [4.0 * math.exp(10 / 7), 3.0 * math.exp(10 / 7)])],
)
def test_ash_by_hand(variant: str, left: list[float]) -> None:
    """Two of ten are left above the 80th percentile: 4 and 3, of a sum of 10."""
    truth = -math.log(sum(math.exp(value) for value in left) + 8.0)
    found = scores.ASH(percentile=80, variant=variant)(ROW, ROW, EYE)
    assert found.item() == pytest.approx(truth, rel=1e-12)


def test_scale_by_hand() -> None:
    factor = math.exp(10 / 7)
    truth = -math.log(sum(math.exp(factor * float(value)) for value in ROW[0]))
    assert scores.Scale(percentile=80)(ROW, ROW, EYE).item() == pytest.approx(truth, rel=1e-12)


def test_of_the_features_above_a_percentile_there_is_one_at_least_and_ties_are_all_there() -> None:
    tied = torch.tensor([[2.0, 2.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0], [-1.0, -2.0, -3.0, -4.0]], dtype=torch.float64)
    kept, factor = largest(tied, 99.9)
    assert kept.tolist() == [[True, True, False, True], [False] * 4, [True, False, False, False]]
    assert factor[:, 0].tolist() == pytest.approx([math.exp(7 / 6), 0.0, 0.0])
    more = largest(torch.tensor([[5.0, 0.0, 0.0, 0.0]], dtype=torch.float64), 50.0)[0]
    assert more.tolist() == [[True, False, False, False]]  # two would be above, but zeros never are


@pytest.mark.parametrize("method", [scores.ASH(variant=v) for v in "sbp"] + [scores.Scale()], ids=str)
def test_features_of_nothing_or_without_a_positive_one_give_a_number(method: scores.Score) -> None:
    _, layer, _ = parts()
    h = torch.stack([torch.zeros(20), -torch.ones(20), torch.full((20,), 1e3), 1e-300 * torch.ones(20)]).double()
    found = method(h, h, layer)
    assert found.isfinite().all()
    assert found[0].item() == pytest.approx(-layer[:, -1].logsumexp(0).item(), rel=1e-12)


@pytest.mark.parametrize("method", [scores.Scale(), scores.ASH()], ids=str)
def test_the_factor_reaches_its_limit_smoothly(method: scores.Score) -> None:
    """With the largest features going to 0 from above, the score goes to that of none above."""
    _, layer, _ = parts()
    h = -torch.ones(3, 20, dtype=torch.float64)
    h[:, :3] = torch.tensor([1e-4, 1e-9, 0.0], dtype=torch.float64)[:, None]
    found = method(h, h, layer)
    torch.testing.assert_close(found, found[2].expand(3), rtol=1e-3, atol=0.0)


def test_nothing_taken_away_is_the_energy() -> None:
    h, layer, z = parts()
    truth = energy(h, layer)
    torch.testing.assert_close(scores.ASH(percentile=0, variant="p")(h, z, layer), truth, rtol=1e-12, atol=0.0)
    react = scores.ReAct(percentile=99.9999).fitted([1e9 + h, z, layer], torch.zeros(9))
    torch.testing.assert_close(react(h, z, layer), truth, rtol=1e-12, atol=0.0)


def test_react_clips_at_numpys_percentile_of_all_training_features() -> None:
    h, layer, z = parts()
    training, _, _ = parts(1)
    found = scores.ReAct(percentile=70).fitted([training, z, layer], torch.zeros(9))(h, z, layer)
    clipped = np.minimum(h.numpy(), np.percentile(training.numpy().ravel(), 70))
    truth = -np.log(np.exp(clipped @ layer[:, :-1].numpy().T + layer[:, -1].numpy()).sum(1))
    np.testing.assert_allclose(found.numpy(), truth, rtol=1e-12)
    assert (found != energy(h, layer)).all()


NAMES = ["ash", "scale", "react", "vim", "fdbd"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bias", [True, False])
def test_a_binary_model_a_mapping_and_a_head_without_bias(name: str, bias: bool) -> None:
    torch.manual_seed(0)
    body, last = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), nn.Linear(6, 1, bias=bias)

    class Named(nn.Module):
        def __init__(self, outputs: int) -> None:
            super().__init__()
            self.body, self.last = body, nn.Linear(6, outputs, bias=bias)
            with torch.no_grad():
                self.last.weight.copy_(torch.cat([torch.zeros(outputs - 1, 6), last.weight]))
                if bias:
                    self.last.bias.copy_(torch.cat([torch.zeros(outputs - 1), last.bias]))

        def forward(self, values: Tensor) -> Tensor:
            return self.last(self.body(values))

    x, y = torch.rand(30, 4), torch.arange(30) % 2
    method = scores.get(name)
    fit = {"fit": (x, y)} if method.needs_training_data else {}  # type: ignore[attr-defined]
    named = {"fit": [({"values": x}, y)]} if fit else {}
    one = nescio.score(nn.Sequential(body, last), x, name, output="binary", **fit)
    two = nescio.score(Named(2), {"values": x}, name, **named)
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_goes_on_after_its_last_linear_layer_is_refused(
    name: str, make: Callable[..., nn.Module], x: Tensor
) -> None:
    method = scores.get(name)
    fit = {"fit": (x, torch.arange(11) % 3)} if method.needs_training_data else {}  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"the model goes on after it; .* needs no last layer, such as entropy, knn"):
        nescio.score(nn.Sequential(make(), nn.Tanh()), x, name, **fit)
    with pytest.raises(ModelError, match=r"expected a model that calls an nn\.Linear"):
        nescio.score(nn.Flatten(), x, name, **fit)


@pytest.mark.parametrize("method", [scores.ViM(), scores.FDBD()], ids=str)
def test_features_of_another_model_are_said(method: scores.FittedScore) -> None:
    h, layer, z = parts()
    with pytest.raises(InputError, match=r"expected 20 features as in the training data, got 19; fit it"):
        method.fitted([h, z, layer], torch.zeros(9))(h[:, 1:], z, layer)


def test_vim_is_energy_and_the_residual_of_numpys_components() -> None:
    training, layer, _ = parts(1)
    training = torch.cat([training, parts(2)[0], parts(3)[0]])
    z = training @ layer[:, :-1].T + layer[:, -1]
    h = parts()[0]
    own = h @ layer[:, :-1].T + layer[:, -1]
    w, b = layer[:, :-1].numpy(), layer[:, -1].numpy()
    origin = -np.linalg.pinv(w) @ b
    main = np.linalg.svd(training.numpy() - origin)[2][:7]

    def residual(rows: Tensor) -> np.ndarray:
        moved = rows.numpy() - origin
        return np.linalg.norm(moved - moved @ main.T @ main, axis=1)

    alpha = z.amax(1).mean().item() / residual(training).mean()
    truth = alpha * residual(h) - own.logsumexp(1).numpy()
    method = scores.ViM(dimension=7).fitted([training, z, layer], torch.zeros(27))
    np.testing.assert_allclose(method(h, own, layer).numpy(), truth, rtol=1e-9)


def test_vim_with_few_training_inputs_dead_features_and_a_layer_that_is_not_of_full_rank() -> None:
    h, layer, _ = parts()
    layer[1] = layer[0] + 1e-8 * parts(1)[1][1]  # equal up to the round-off of float32, but for the bias
    layer[1, -1] += 1e-3
    h[:, 12:] = 0.0
    z = h @ layer[:, :-1].T + layer[:, -1]
    method = scores.ViM().fitted([h[:6], z[:6], layer], torch.zeros(6))
    origin, outside, alpha = method._state
    assert outside.shape == (20, 17) and math.isfinite(alpha) and origin.norm() < 100  # 6 directions: 3 of them main
    assert method(h, z, layer).isfinite().all()
    noisy = scores.ViM().fitted([h[:6] * (1 + 1e-9 * torch.randn(6, 20)), z[:6], layer], torch.zeros(6))
    torch.testing.assert_close(noisy(h, z, layer), method(h, z, layer), rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="vim: expected training features that fill more than 9 directions, got 6"):
        scores.ViM(dimension=9).fitted([h[:6], z[:6], layer], torch.zeros(6))
    with pytest.raises(InputError, match=r"that fill more than 0 directions, got 0 from 9 inputs"):
        bare = torch.cat([layer[:, :-1], torch.zeros(3, 1)], 1)
        scores.ViM().fitted([0 * h, 0 * z, bare], torch.zeros(9))


def test_fdbd_is_the_distance_at_which_the_answer_changes() -> None:
    """Moved by its distance along the difference of two weights, an input is as much of one class as of the other."""
    training, layer, _ = parts(1)
    h = parts()[0]
    z = h @ layer[:, :-1].T + layer[:, -1]
    distances = torch.zeros(9, dtype=torch.float64)
    for n in range(9):
        top = int(z[n].argmax())
        for c in {0, 1, 2} - {top}:
            direction = layer[c, :-1] - layer[top, :-1]
            direction = direction / direction.norm()

            def gap(t: float, n: int = n, c: int = c, top: int = top, direction: Tensor = direction) -> float:
                moved = layer[:, :-1] @ (h[n] + t * direction) + layer[:, -1]
                return float(moved[top] - moved[c])

            slope = gap(1.0) - gap(0.0)
            distances[n] += -gap(0.0) / slope / 2
    truth = -distances / (h - training.mean(0)).norm(dim=1)
    found = scores.FDBD().fitted([training, z, layer], torch.zeros(9))(h, z, layer)
    torch.testing.assert_close(found, truth, rtol=1e-9, atol=0.0)


def test_fdbd_with_equal_classes_at_the_mean_and_without_any_difference() -> None:
    training, layer, _ = parts(1)
    h, _, _ = parts()
    twice = torch.cat([layer, layer[1:2]])
    logits = [h @ one[:, :-1].T + one[:, -1] for one in (layer, twice)]
    first, second = (
        scores.FDBD().fitted([training, z, one], torch.zeros(9)) for z, one in zip(logits, (layer, twice), strict=True)
    )
    away = logits[0].argmax(1) == 1  # there the equal class does not count, elsewhere its plane counts twice
    torch.testing.assert_close(first(h, logits[0], layer)[away], second(h, logits[1], twice)[away], rtol=1e-9, atol=0.0)
    middle = training.mean(0, keepdim=True)
    at = first(middle, middle @ layer[:, :-1].T + layer[:, -1], layer)
    assert at.isfinite().all() and at < first(h, logits[0], layer).min()
    with pytest.raises(InputError, match="fdbd: expected training features that differ, got equal ones"):
        scores.FDBD().fitted([torch.ones_like(h), logits[0], layer], torch.zeros(9))
    with pytest.raises(InputError, match="fdbd: expected classes with weights of their own, got equal ones"):
        scores.FDBD().fitted([training, logits[0], layer[:1].expand(3, -1)], torch.zeros(9))
