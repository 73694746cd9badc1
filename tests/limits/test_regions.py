"""The affine map and the polytope against autograd and against finite probing."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio import limits
from nescio.types import InputError, ModelError
from tests.limits.networks import SmallResNet, Wrapped, mlp


def jacobian(model: nn.Module, x: Tensor) -> Tensor:
    rows = [torch.autograd.functional.jacobian(lambda one: model(one[None])[0], one).flatten(1) for one in x]
    return torch.stack(rows).detach()


def check(model: nn.Module, x: Tensor) -> limits.Region:
    """V is the Jacobian, V x + a the logits, x in its own polytope, and the map holds up to the nearest face."""
    found = limits.region(model, x)
    with torch.no_grad():
        assert torch.allclose(found.V, jacobian(model, x), rtol=0, atol=1e-12)
        flat = x.flatten(1)
        assert torch.allclose(torch.einsum("ncd,nd->nc", found.V, flat) + found.a, model(x), rtol=0, atol=1e-12)
        torch.manual_seed(5)
        step = torch.randn_like(flat)
        step = step / step.norm(dim=1, keepdim=True) * found.distance[:, None].clamp(max=10.0) * 0.999
        inside = flat + step
        mapped = torch.einsum("ncd,nd->nc", found.V, inside) + found.a
        assert torch.allclose(mapped, model(inside.view_as(x)), rtol=0, atol=1e-10)
    return found


def test_mlp_and_residual_network() -> None:
    torch.manual_seed(1)
    check(mlp(5, 16, 16, 3), torch.randn(7, 5).double())
    check(SmallResNet(), torch.randn(3, 1, 6, 6).double())


@pytest.mark.parametrize(
    "inner",
    [
        nn.ReLU(inplace=True), nn.LeakyReLU(0.2), nn.PReLU(3, init=-0.5), nn.Hardtanh(-0.3, 0.4), nn.ReLU6(),
        nn.RReLU(), nn.MaxPool2d(2), nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.MaxPool2d(2, stride=1, dilation=2), nn.AdaptiveMaxPool2d((2, 4)), nn.AvgPool2d(3, 2, padding=1),
        nn.AdaptiveAvgPool2d(2), nn.BatchNorm2d(3), nn.Identity(), nn.Dropout2d(0.5),
        nn.Sequential(nn.Flatten(2), nn.Conv1d(3, 4, 3), nn.ReLU(), nn.MaxPool1d(3)),
        nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"), nn.ReLU(), nn.Upsample(scale_factor=2)),
    ],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_every_layer(inner: nn.Module) -> None:
    torch.manual_seed(2)
    check(Wrapped(inner), torch.randn(2, 2, 6, 6).double())


@pytest.mark.parametrize(
    "inner",
    [
        lambda h: h.clamp(min=-0.2, max=0.7),
        lambda h: abs(h) - h.abs().mean(1, keepdim=True),
        lambda h: 1.5 - 2 * F.relu(h) / 3 + torch.ones(6, dtype=torch.float64),
        lambda h: torch.cat([h, torch.relu(h) - h], 1)[:, 1:4],
        lambda h: -h.permute(0, 2, 3, 1).reshape(h.shape[0], -1).add_(1.0).relu_(),
        lambda h: torch.cat(h.chunk(3, dim=1)[:2], 1).sum(-1).unsqueeze(1),
        lambda h: h.transpose(1, 3).transpose(-1, -2).relu().transpose(dim0=2, dim1=1),
        lambda h: torch.cat([h.split(2, -1)[0], h.split([1, 5], dim=2)[1].transpose(2, 3).relu()], 3),
        lambda h: F.pad(h[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1)) @ torch.ones(3, 2, dtype=torch.float64),
    ],
)
def test_functional_calls(inner: object) -> None:
    torch.manual_seed(2)
    check(Wrapped(inner), torch.randn(2, 2, 6, 6).double())


def test_half_spaces_are_the_faces() -> None:
    model, x = mlp(3, 8, 8, 2), torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double()
    found = limits.region(model, x)
    normals, offsets = found.halfspaces()
    assert normals.shape == (4, 16, 3)
    margins = torch.einsum("nud,nd->nu", normals, x) + offsets
    assert (margins >= 0).all()
    distances = margins / normals.norm(dim=2)
    assert torch.allclose(distances.nan_to_num(torch.inf).amin(1), found.distance, atol=1e-14)
    nearest = distances.nan_to_num(torch.inf).argmin(1)
    normal = normals[torch.arange(4), nearest]
    out = -normal / normal.norm(dim=1, keepdim=True)
    assert torch.allclose(found.reach(out), found.distance)  # straight to the face
    beyond = limits.region(model, x + out * found.distance[:, None] * (1 + 1e-9))
    same = limits.region(model, x + out * found.distance[:, None] * (1 - 1e-9))
    assert torch.allclose(same.V, found.V, atol=1e-14)
    assert not any(torch.allclose(a, b, atol=1e-14) for a, b in zip(beyond.V, found.V, strict=True))


def test_unbounded_along_a_direction() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
    found = limits.region(model, torch.tensor([[1.0, 2.0]]))
    assert found.distance.item() == 1.0
    assert found.unbounded([1.0, 0.0]).item() and not found.unbounded([-1.0, 0.0]).item()
    assert found.reach([0.0, -1.0]).item() == 2.0
    assert found.unbounded(torch.tensor([0.0, 1.0])).item()


def test_a_point_on_a_face_is_in_a_region_that_meets_it() -> None:
    model = mlp(2, 6, 3)
    with torch.no_grad():
        model[0].bias.zero_()
        model[0].weight[1] = -model[0].weight[0]  # both off, or both on, would be a region without an inside
    found = limits.region(model, torch.zeros(1, 2).double())  # all six faces meet here
    assert found.distance.item() == 0.0
    assert torch.allclose(found.a, model(torch.zeros(1, 2).double()), atol=1e-15)
    normals, offsets = found.halfspaces()
    z = torch.randn(4000, 2, generator=torch.Generator().manual_seed(1)).double()
    inside = (z @ normals[0].T + offsets[0] >= 0).all(1)
    assert 0 < inside.sum() < len(z)  # it has an inside, on which the map holds
    assert torch.allclose(z[inside] @ found.V[0].T + found.a[0], model(z[inside]), atol=1e-12)


def test_dead_units_duplicate_rows_and_linear_models() -> None:
    model = mlp(3, 5, 5, 2)
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
        model[2].bias.zero_()
    x = torch.randn(1, 3).double().repeat(3, 1)
    found = limits.region(model, x)
    assert (found.V == 0).all() and torch.allclose(found.a, model(x))
    assert torch.equal(found.distance[:1].expand(3), found.distance) and found.distance[0].isfinite()
    straight = limits.region(nn.Linear(3, 2), x)
    assert straight.distance.isinf().all() and straight.unbounded(torch.ones(3)).all()
    assert straight.halfspaces()[0].shape == (3, 0, 3)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.GELU(), r"gelu in '1' \(GELU\)"),
        (nn.Sigmoid(), r"sigmoid in '1' \(Sigmoid\)"),
        (nn.Softmax(1), r"softmax in '1' \(Softmax\)"),
        (nn.LayerNorm(4), r"layer_norm in '1' \(LayerNorm\)"),
        (nn.BatchNorm1d(4, track_running_stats=False), r"batch-norm without running statistics in '1'"),
        (nn.Sequential(nn.ReLU(), nn.Sequential(nn.Softplus())), r"softplus in '1.1.0' \(Softplus\)"),
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), r"in '1.*', which is not|in '1"),
    ],
)
def test_what_is_not_piecewise_linear_is_named(layer: nn.Module, words: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 2)).double().eval()
    with pytest.raises(ModelError, match=words) as error:
        limits.region(model, torch.ones(2, 3))
    assert "nescio.limits.audit" in str(error.value) or isinstance(layer, nn.BatchNorm1d)


def test_products_of_inputs_and_batch_mixing_are_refused() -> None:
    for function, words in (
        (lambda x: x * x, "mul of two things"),
        (lambda x: x / x.sum(1, keepdim=True), "of two things|depends on the input"),
        (lambda x: x - x.mean(0), "mean over the inputs of the batch"),
        (lambda x: x.t().t(), "not"),
        (lambda x: x[:1].expand(len(x), -1), "getitem"),
        (lambda x: torch.from_numpy(x.detach().numpy()), "numpy"),
    ):
        with pytest.raises(ModelError, match=words):
            limits.region(function, torch.rand(3, 3).double() + 1)


@pytest.mark.parametrize(
    "moved",
    [
        lambda x: x.transpose(0, 1), lambda x: x.transpose(1, -2), lambda x: x.transpose(dim0=1, dim1=0),
        lambda x: x.permute(1, 0), lambda x: x.permute(dims=(-1, 0)), lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: torch.cat(x.split(1)), lambda x: torch.cat(x.chunk(3, 0)), lambda x: torch.cat(x.split(1, dim=-2)),
    ],
)  # fmt: skip
def test_inputs_stay_in_the_first_dimension(moved: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ModelError, match="which moves the inputs out of the first dimension"):
        limits.region(moved, torch.rand(3, 3).double())  # as many inputs as features: the shape does not tell


def test_a_model_in_training_mode_and_float32_is_left_as_it_was() -> None:
    model = SmallResNet().float().train()
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(2, 1, 6, 6)
    found = limits.region(model, x)
    limits.ray(model, x, torch.ones(1, 6, 6))
    assert model.training and all(module.training for module in model.modules())
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert torch.allclose(found.V, jacobian(model.double().eval(), x.double()), atol=1e-10)


def test_closing_softmax_and_one_logit() -> None:
    x = torch.randn(2, 3).double()
    model = mlp(3, 6, 4)
    closed = limits.region(nn.Sequential(model, nn.Softmax(1)), x, output="probabilities")
    assert torch.equal(closed.V, limits.region(model, x).V)
    one = limits.region(nn.Sequential(mlp(3, 6, 1), nn.Sigmoid()), x, output="binary")
    assert (one.V[:, 0] == 0).all() and one.V.shape == (2, 2, 3)


def test_errors_on_inputs() -> None:
    model = mlp(3, 4, 2)
    for x, words in (
        (torch.full((1, 3), torch.nan), "finite"), (torch.ones(0, 3), "at least one"),
        ({"x": torch.ones(1, 3)}, "tensor"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            limits.region(model, x)


def test_a_vector_is_a_batch_of_one() -> None:
    model, x = mlp(3, 4, 2), torch.randn(3).double()
    found = limits.region(model, x)
    assert found.V.shape == (1, 2, 3) and torch.equal(found.V, limits.region(model, x[None]).V)
    torch.testing.assert_close((found.V @ x + found.a)[0], model.double()(x), rtol=1e-12, atol=1e-12)
    (breakpoints,) = limits.ray(model, x, torch.ones(3)).breakpoints
    assert torch.equal(breakpoints, limits.ray(model, x[None], torch.ones(1, 3)).breakpoints[0])


def test_work_on_a_view_in_place_is_noticed() -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 1
        y[:, :2].relu_()
        return y

    with pytest.raises(ModelError, match="works in place on a view"):
        limits.region(model, -torch.ones(1, 3).double())
