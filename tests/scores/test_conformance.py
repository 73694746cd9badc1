"""What every method of the registry must keep, whoever wrote it."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import scores
from nescio.posteriors.inserted import InsertedDropout
from nescio.scores import FittedScore, Score
from nescio.scoring import fit
from nescio.types import InputError, ModelError

NAMES = scores.names()
FITTED = [name for name in NAMES if scores.get(name).needs_training_data]  # type: ignore[attr-defined]
OF_A_MODEL = [name for name in NAMES if scores.get(name).requires != "posterior"]  # type: ignore[attr-defined]
FEW = {"samples": 4, "k": 3}


def quick(name: str, **settings: Any) -> Any:
    """The method with few draws and neighbours."""
    own = {f.name for f in fields(scores.get(name))}
    return scores.get(name, **{key: value for key, value in FEW.items() if key in own}, **settings)


def training(x: Tensor) -> tuple[Tensor, Tensor]:
    """Training data like x."""
    generator = torch.Generator().manual_seed(8)
    return torch.rand(40, *x.shape[1:], generator=generator, dtype=torch.float64).to(x.dtype), torch.arange(40) % 3


def score(model: nn.Module, data: Any, method: Any, **more: Any) -> Any:
    """`nescio.score` with all that the method needs: training data, or a posterior in the place of the model."""
    listed = method if isinstance(method, list) else [method]
    if any(one.needs_training_data for one in listed):
        more["fit"] = training(data if isinstance(data, Tensor) else data[0])
    source = InsertedDropout(model, samples=4) if listed[0].requires == "posterior" else model
    return nescio.score(source, data, method, **more)


def is_random(name: str) -> bool:
    return "seed" in {f.name for f in fields(scores.get(name))}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_registry_holds_what_the_papers_ask_for() -> None:
    gradient = {"negrad", "ungrad", "gradnorm", "exgrad", "regrad", "squared"}
    draws = {"perturb_x", "perturb_theta", "mc_aa", "inserted_dropout", "odin", "shift_entropy"}
    forward = {"entropy", "exgrad_v", "max_probability", "energy", "gen", "max_logit", "ash", "scale"}
    fitted = {"laplace", "mahalanobis", "knn", "relative_mahalanobis", "vim", "fdbd", "nnguide", "react", "she"}
    assert set(NAMES) >= gradient | draws | forward | fitted | {"mutual_information"}
    assert set(FITTED) == fitted


def test_the_card_is_complete(name: str) -> None:
    method = scores.get(name)
    assert isinstance(method, Score) and is_dataclass(method)
    assert method.name == name and re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert method.summary.endswith(".") and method.paper and method.sign.startswith("higher = more uncertain")
    assert method.requires in {"forward", "gradients", "draws", "posterior"}
    assert method.needs_training_data == isinstance(method, FittedScore) and isinstance(method.composes, tuple)
    assert re.fullmatch(r"[CNh0-9+·() ]+", method.cost)
    cost = eval(method.cost.replace("·", "*"), {"C": 10, "N": 100, "h": 0.01})
    assert cost >= 1
    assert type(method).__doc__ and len(method.needs) >= 1
    assert hash(method) == hash(scores.get(name))


def test_one_finite_float64_on_the_cpu_for_each_input(name: str, model: nn.Module, x: Tensor) -> None:
    u = score(model, x, quick(name))
    assert u.dtype == torch.float64 and u.shape == (11,) and u.device.type == "cpu"
    assert u.isfinite().all() and not u.requires_grad
    if name != "negrad":
        assert u.unique().numel() == 11


def test_permuted_inputs_have_permuted_scores(name: str, model: nn.Module, x: Tensor) -> None:
    order = torch.randperm(11)
    torch.testing.assert_close(
        score(model, x[order], quick(name)), score(model, x, quick(name))[order], rtol=1e-9, atol=1e-14
    )


# Draws are compared with each other: what float32 loses in a prediction weighs more the less they differ. Thus large σ.
FLOAT32 = {"forward": 1e-6, "gradients": 1e-5, "draws": 1e-4, "posterior": 1e-4}
LARGE = {"perturb_x": {"sigma": 0.2}, "perturb_theta": {"sigma": 0.1}, "mc_aa": {"a": 0.2}}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_batches_of_any_size_give_the_same_scores(
    name: str, dtype: torch.dtype, make: Callable[..., nn.Module], x: Tensor
) -> None:
    method = quick(name, **(LARGE.get(name, {}) if dtype == torch.float32 else {}))
    model, x = make(dtype), x[:7].to(dtype)
    whole = score(model, x, method)
    if name == "negrad":  # its scores are round-off, which is nowhere the same
        tolerance = {"rtol": 0.0, "atol": 1e-13 if dtype == torch.float64 else 1e-5}
    else:
        single = 1e-4 if method.needs_training_data else FLOAT32[method.requires]  # distances are differences too
        tolerance = {"rtol": 1e-9 if dtype == torch.float64 else single, "atol": 0.0}
        if name == "relative_mahalanobis":  # a difference of two such distances, which may be near 0
            tolerance["atol"] = tolerance["rtol"] * float(whole.abs().max())
    torch.testing.assert_close(score(model, x[3:4], method), whole[3:4], **tolerance)
    for size in (1, 2, 5):
        torch.testing.assert_close(score(model, list(x.split(size)), method), whole, **tolerance)
        torch.testing.assert_close(score(model, x, method, chunk=size), whole, **tolerance)


def test_the_last_bits_of_the_data_change_the_last_digits_of_a_score(
    name: str, make: Callable[..., nn.Module], x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another machine would have them: inputs and training data differ by round-off, in float32."""
    model, x, known = make(torch.float32), x.float(), training(x.float())
    method = quick(name, **LARGE.get(name, {}))
    whole = score(model, x, method)
    for seed in range(2):
        random = torch.Generator().manual_seed(seed)
        inputs, given = (part * (1 + 1e-7 * torch.randn(part.shape, generator=random)) for part in (x, known[0]))
        assert not torch.equal(inputs, x)
        monkeypatch.setitem(score.__globals__, "training", lambda _, given=given: (given, known[1]))
        tolerance = {"rtol": 0.0, "atol": 1e-5} if name == "negrad" else {"rtol": 1e-3, "atol": 0.0}
        torch.testing.assert_close(score(model, inputs, method), whole, **tolerance)


def test_a_list_gives_what_the_methods_give_alone(model: nn.Module, x: Tensor) -> None:
    together = score(model, x, [quick(name) for name in OF_A_MODEL])
    assert list(together) == OF_A_MODEL
    for name in OF_A_MODEL:
        torch.testing.assert_close(together[name], score(model, x, quick(name)), rtol=1e-12, atol=1e-14)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(name: str, model: nn.Module, x: Tensor) -> None:
    noisy = {"sigma": 0.1} if "sigma" in {f.name for f in fields(scores.get(name))} else {}
    torch.manual_seed(1)
    first = score(model, x, quick(name, **noisy))
    torch.manual_seed(2)
    assert torch.equal(first, score(model, x, quick(name, **noisy)))
    if is_random(name):
        assert not torch.equal(first, score(model, x, quick(name, seed=7, **noisy)))


class Bomb(torch.autograd.Function):
    """The identity, whose backward pass fails."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        raise ArithmeticError("backward")


def failing(error: type[BaseException], after: int) -> Callable[[Tensor], Tensor]:
    calls = 0

    def step(h: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > after:
            raise error("forward")
        return h

    return step


def snapshot(model: nn.Module) -> Iterator[Any]:
    """All that must not change, tensors as (object, value)."""
    for name, module in model.named_modules():
        yield name, module.training
        yield [dict(v) for k, v in sorted(vars(module).items()) if k.endswith("hooks")]
        yield {k: (id(b), b.clone()) for k, b in module.named_buffers(recurse=False)}
        for key, p in module.named_parameters(recurse=False):
            yield (
                key,
                id(p),
                p.requires_grad,
                id(p.grad),
                p.detach().clone(),
                None if p.grad is None else p.grad.clone(),
            )
    yield torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    yield torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


CASES: dict[str, tuple[Callable[[], Callable[[Tensor], Tensor]], type[BaseException] | None]] = {
    "success": (lambda: lambda h: h, None),
    "exception in the first forward": (lambda: failing(ArithmeticError, 0), ArithmeticError),
    "exception in the second forward": (lambda: failing(ArithmeticError, 1), ArithmeticError),
    "keyboard interrupt": (lambda: failing(KeyboardInterrupt, 1), KeyboardInterrupt),
    "exception in backward": (lambda: Bomb.apply, ArithmeticError),
}


@pytest.mark.parametrize("case", CASES)
def test_the_model_is_left_as_it_was(name: str, case: str, make: Callable[..., nn.Module], x: Tensor) -> None:
    step, error = CASES[case]
    model = make()
    model.norm.eval()
    model.conv.requires_grad_(False)
    model.hidden.weight.grad = torch.ones_like(model.hidden.weight)
    model.head.register_forward_hook(lambda *_: None)
    model.before_head = step()
    before = list(snapshot(model))
    method = quick(name)
    if case == "exception in backward" and not (method.requires == "gradients" or name in {"mc_aa", "odin"}):
        error = None  # it never goes backward
    data = [x[:5], x[5:]]  # two batches: the second forward comes for every method
    if error is None:
        score(model, data, method)
    else:
        with pytest.raises(error):
            score(model, data, method)
    assert all(same(a, b) for a, b in zip(before, snapshot(model), strict=True))


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("after", [0, 1])
def test_fitting_leaves_the_model_as_it_was_and_a_method_that_is_not_fitted_says_so(
    name: str, after: int, make: Callable[..., nn.Module], x: Tensor
) -> None:
    method = quick(name)
    model = make()
    model.head.register_forward_hook(lambda *_: None)
    before = list(snapshot(model))
    with pytest.raises(InputError, match=f"expected training data for '{name}', got none; give .* fit="):
        nescio.score(model, x, method)
    fitted = fit(model, method, training(x))
    assert (
        fitted.is_fitted
        and not method.is_fitted
        and torch.equal(score(model, x, method), nescio.score(model, x, fitted))
    )
    assert all(same(a, b) for a, b in zip(before, snapshot(model), strict=True))
    model.before_head = failing(KeyboardInterrupt, after)
    parts = list(zip(*(part.split(20) for part in training(x)), strict=True))
    with pytest.raises(KeyboardInterrupt):
        fit(model, method, parts)
    assert all(same(a, b) for a, b in zip(before, snapshot(model), strict=True))


@pytest.mark.parametrize("name", FITTED)
def test_training_data_in_any_batches_give_the_same_scores(name: str, model: nn.Module, x: Tensor) -> None:
    method = quick(name)
    whole = score(model, x, method)
    order = torch.randperm(40)
    for data in [
        list(zip(*(part.split(7) for part in training(x)), strict=True)),
        iter([tuple(part[order] for part in training(x))]),
    ]:
        torch.testing.assert_close(nescio.score(model, x, method, fit=data), whole, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(nescio.score(model, x, method, fit=training(x), chunk=3), whole, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(OF_A_MODEL)))
def test_a_method_for_a_posterior_wants_one(name: str, model: nn.Module, x: Tensor) -> None:
    with pytest.raises(ModelError, match=rf"expected a posterior for '{name}', got the model SmallNet; give one"):
        nescio.score(model, x, quick(name))


def test_the_snapshot_sees_what_it_should(model: nn.Module) -> None:
    def differs(change: Callable[[], Any]) -> bool:
        before = list(snapshot(model))
        change()
        return not all(same(a, b) for a, b in zip(before, snapshot(model), strict=True))

    assert not differs(lambda: None)
    assert differs(lambda: model.drop.eval())
    assert differs(lambda: model.norm.running_mean.add_(1.0))
    assert differs(lambda: model.head.bias.requires_grad_(False))
    assert differs(lambda: setattr(model.head.weight, "grad", torch.zeros_like(model.head.weight)))
    assert differs(lambda: model.conv.register_forward_hook(lambda *_: None))
    assert differs(lambda: torch.rand(1))
    assert differs(lambda: np.random.rand())
