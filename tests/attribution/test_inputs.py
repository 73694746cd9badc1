"""Kinds of inputs and states of models: texts, tables, mappings, half precision, training mode, frozen weights."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import posteriors
from nescio.attribution import METHODS, VAE, explain
from nescio.attribution.logit_maps import PATHS
from nescio.attribution.vae import Shape
from nescio.types import InputError, ModelError


class Text(nn.Module):
    """Token indices (and a mask) to logits, through an embedding and a transformer layer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(20, width), nn.Embedding(10, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        h = self.position(torch.arange(input_ids.shape[1])) + self.embed(input_ids)
        empty = None if attention_mask is None else attention_mask == 0
        h = self.layer(h, src_key_padding_mask=empty)
        if attention_mask is None:
            return self.head(h.mean(1))
        keep = attention_mask.unsqueeze(2).to(h)
        return self.head((h * keep).sum(1) / keep.sum(1))


def mlp(seed: int, features: int = 6) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def conv(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten(), nn.Linear(80, 3)
    )  # fmt: skip


def complete(found: Any, bound: float = 1e-12) -> None:
    assert bool((found.residual.abs() <= bound * found.uncertainty).all())
    assert bool((found.maps >= 0).all())


@pytest.mark.parametrize("path", ["fullgrad", "gradient", "smoothgrad", "gradcam"])
def test_texts(path: str) -> None:
    ensemble = posteriors.DeepEnsemble([Text(width).double().eval() for width in (8, 12)])
    ids = torch.randint(0, 20, (3, 7))
    found = explain(ensemble, ids, path=path)
    assert found.maps.shape == (3, 7)
    complete(found)
    assert bool((found.maps.std(1) > 0).all())
    torch.testing.assert_close(explain(ensemble, {"input_ids": ids}, path=path).maps, found.maps, rtol=1e-12, atol=0)


def test_a_token_that_does_not_count_gets_the_least() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(20, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x)[:, 2].tanh())

    found = explain(
        posteriors.DeepEnsemble([Picky().double(), Picky().double()]), torch.randint(0, 20, (4, 5)), tau2=0.02
    )
    assert bool((found.maps.argmax(1) == 2).all())
    torch.testing.assert_close(found.maps[:, 2], found.uncertainty, rtol=1e-9, atol=0)
    slope = explain(
        posteriors.DeepEnsemble([Picky().double(), Picky().double()]), torch.randint(0, 20, (4, 5)), "gradient"
    )
    assert bool((slope.maps[:, [0, 1, 3, 4]] == 0).all()) and bool((slope.maps[:, 2] > 0).all())


def test_padding_gets_nothing() -> None:
    ensemble = posteriors.DeepEnsemble([Text().double().eval(), Text().double().eval()])
    ids, mask = torch.randint(0, 20, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    found = explain(ensemble, {"input_ids": ids, "attention_mask": mask})
    complete(found)
    assert bool((found.maps[1, 4:] == 0).all()) and bool((found.maps[1, :4] > 0).all())
    short = explain(ensemble, {"input_ids": ids[1:, :4], "attention_mask": mask[1:, :4]})
    torch.testing.assert_close(found.maps[1, :4], short.maps[0], rtol=1e-6, atol=0)


def test_integrated_gradients_of_a_text_start_from_no_embedding() -> None:
    models = [Text().double().eval() for _ in range(2)]
    ids = torch.randint(0, 20, (2, 5))
    found = explain(posteriors.DeepEnsemble(models), ids, "integrated_gradients", of="total", steps=60)
    for model in models:
        model.embed.weight.data.zero_()
    start = explain(posteriors.DeepEnsemble(models), ids, "gradient", of="total").uncertainty
    torch.testing.assert_close(found.residual, -start, rtol=1e-3, atol=1e-5)


def test_embeddings_as_inputs_and_one_named_entry() -> None:
    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.inner(x).relu().mean(1))

    ensemble, x = posteriors.DeepEnsemble([Sequence().double(), Sequence().double()]), torch.randn(3, 5, 4).double()
    found = explain(ensemble, x)
    assert found.maps.shape == (3, 5)
    complete(found)
    torch.testing.assert_close(explain(ensemble, {"x": x}).maps, found.maps, rtol=0, atol=0)


@pytest.mark.parametrize("path", ["fullgrad", "gradient", "smoothgrad"])
def test_tables(path: str) -> None:
    models, x = [mlp(0), mlp(1)], torch.randn(4, 6).double()
    for model in models:
        model[0].weight.data[:, 3] = 0.0  # a feature that no member uses
    found = explain(posteriors.DeepEnsemble(models), x, path=path, tau2=0.02)
    assert found.maps.shape == (4, 6)
    complete(found)
    assert bool((found.maps[:, 3:4] <= found.maps).all())


def test_channels_elsewhere_and_none() -> None:
    models = [conv(0).double().eval(), conv(1).double().eval()]
    x = torch.randn(2, 3, 6, 7).double()
    last = [nn.Sequential(nn.Unflatten(1, (6, 1)), Permuted(), *m) for m in models]
    wanted = explain(posteriors.DeepEnsemble(models), x, path="gradient").maps
    found = explain(posteriors.DeepEnsemble(last), x.permute(0, 2, 3, 1), path="gradient", channels=3).maps
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=0)
    flat = [nn.Sequential(nn.Flatten(), nn.Linear(42, 3)).double() for _ in range(2)]
    assert explain(posteriors.DeepEnsemble(flat), x[:, 0], channels=None).maps.shape == (2, 6, 7)
    with pytest.raises(InputError, match="expected channels= to be a dimension from 1"):
        explain(posteriors.DeepEnsemble(models), x, channels=4)
    with pytest.raises(InputError, match="expected channels= to be 'auto'"):
        explain(posteriors.DeepEnsemble(models), x, channels="last")


class Permuted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.squeeze(2).permute(0, 3, 1, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("path", PATHS)
def test_half_precision(dtype: torch.dtype, path: str) -> None:
    models = [conv(0).eval(), conv(1).eval()]
    x = torch.rand(2, 3, 6, 7)
    found = explain(posteriors.DeepEnsemble([deepcopy(m).to(dtype) for m in models]), x, of="total", path=path)
    complete(found, 1e-6)
    full = explain(posteriors.DeepEnsemble(models), x, of="total", path=path)
    torch.testing.assert_close(found.uncertainty, full.uncertainty, rtol=2e-2, atol=0)


def test_training_mode_and_frozen_weights_make_no_difference() -> None:
    models, x = [conv(0).eval(), conv(1).eval()], torch.rand(2, 3, 6, 7)
    wanted = explain(posteriors.DeepEnsemble(models), x).maps
    changed = [deepcopy(m).train().requires_grad_(False) for m in models]
    torch.testing.assert_close(explain(posteriors.DeepEnsemble(changed), x).maps, wanted, rtol=0, atol=0)
    assert all(m.training for m in changed)


def settings(name: str) -> dict[str, Any]:
    few = {"smoothgrad": {"copies": 2}, "integrated_gradients": {"steps": 2}, "blur_ig": {"steps": 2}}
    if "clue" in name:
        torch.manual_seed(0)
        return {"vae": VAE(Shape((3, 6, 7), 4, 4)), "steps": 2} | ({"starts": 2} if name == "delta_clue" else {})
    return few.get(name, {})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_leaves_models_and_generators_alone_and_knows_no_batch(name: str) -> None:
    models, x = [conv(0).train(), conv(1).eval()], torch.rand(5, 3, 6, 7)
    models[0][0].weight.requires_grad_(False)
    models[1][5].weight.grad = torch.ones_like(models[1][5].weight)
    before = [deepcopy(m.state_dict()) for m in models]
    ensemble, more = posteriors.DeepEnsemble(models), settings(name)
    random, given = torch.get_rng_state(), x.clone()
    found = explain(ensemble, x, name, **more)
    assert torch.equal(torch.get_rng_state(), random) and torch.equal(x, given)
    assert [m.training for m in models] == [True, False]
    assert not models[0][0].weight.requires_grad and models[0][5].weight.requires_grad
    assert models[0][5].weight.grad is None and bool((models[1][5].weight.grad == 1).all())
    for model, state in zip(models, before, strict=True):
        assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    for other in (
        explain(ensemble, x, name, chunk=2, **more),
        explain(ensemble, [x[:1], x[1:]], name, **more),
    ):
        torch.testing.assert_close(other.maps, found.maps, rtol=2e-3, atol=1e-6 * float(found.maps.abs().max()))
    turned = explain(ensemble, x.flip(0), name, **more)
    torch.testing.assert_close(turned.maps.flip(0), found.maps, rtol=2e-3, atol=1e-6 * float(found.maps.abs().max()))


def test_models_are_put_back_after_a_failure() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                raise RuntimeError("broken on purpose")
            return self.head(x)

    models = [Fails().train(), Fails().train()]
    with pytest.raises(RuntimeError, match="broken on purpose"):
        explain(posteriors.DeepEnsemble(models), torch.randn(2, 4))
    assert all(m.training and not m.head._forward_hooks for m in models)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("name", "settings"), [("ua_backprop", {}), ("gradient", {}), ("integrated_gradients", {"steps": 5})]
)
def test_inputs_made_in_inference_mode(name: str, settings: dict[str, Any], inside: bool) -> None:
    x = torch.randint(0, 20, (3, 5), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    for ensemble, given in (
        (posteriors.DeepEnsemble([mlp(0), mlp(1)]), torch.randn(3, 6).double()),
        (posteriors.DeepEnsemble([Text(), Text()]), x),
    ):
        wanted = explain(ensemble, given, name, **settings)
        with torch.inference_mode():
            made = given.clone()
            found = explain(ensemble, made, name, **settings) if inside else None
        found = found or explain(ensemble, made, name, **settings)
        torch.testing.assert_close(found.maps, wanted.maps, rtol=0, atol=0)


def test_errors() -> None:
    ensemble, x = posteriors.DeepEnsemble([mlp(0), mlp(1)]), torch.randn(3, 6).double()
    with pytest.raises(InputError, match="expected method= to be one of ua_backprop, gradient"):
        explain(ensemble, x, "lime")
    with pytest.raises(InputError, match="expected of= to be one of 'epistemic', 'aleatoric', 'total', got 'all'"):
        explain(ensemble, x, of="all")  # type: ignore[arg-type]
    for nothing in (None, 3, [None], [["total"]]):
        with pytest.raises(InputError, match="expected of= to be one of 'epistemic', 'aleatoric', 'total'"):
            explain(ensemble, x, of=nothing)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="expected path= to be one of"):
        explain(ensemble, x, path="lrp")
    with pytest.raises(InputError, match="expected settings of 'ua_backprop', got 'tau'; it has path, tau1, tau2"):
        explain(ensemble, x, tau=1.0)
    with pytest.raises(InputError, match="it has none"):
        explain(ensemble, x, "gradient", steps=3)
    with pytest.raises(InputError, match="expected tau2 to be a finite number above 1e-06"):
        explain(ensemble, x, tau2=1e-46)
    with pytest.raises(InputError, match="for Grad-CAM"):
        explain(ensemble, x, path="gradcam")
    with pytest.raises(InputError, match="expected layer= to name a module of the network, got 'conv'"):
        explain(ensemble, x, path="gradcam", layer="conv")
    with pytest.raises(InputError, match="expected layer= with path='gradcam' only"):
        explain(ensemble, x, layer="0")
    with pytest.raises(InputError, match="parts=True with method='ua_backprop' only"):
        explain(ensemble, x, "gradient", parts=True)
    with pytest.raises(InputError, match="NaN or infinite"):
        explain(ensemble, x * torch.nan)
    with pytest.raises(InputError, match="at least one input"):
        explain(ensemble, x[:0])
    with pytest.raises(InputError, match="expected chunk to be a whole number"):
        explain(ensemble, x, chunk=0)
    with pytest.raises(InputError, match="settings in UABackprop"):
        explain(ensemble, x, METHODS["ua_backprop"](), path="gradient")
    with pytest.raises(ModelError, match="same classes"):
        explain(posteriors.DeepEnsemble([mlp(0), nn.Linear(6, 4).double()]), x)
    with pytest.raises(ModelError, match="looks up the token indices"):
        explain(posteriors.DeepEnsemble([Blind(), Blind()]), torch.ones(2, 4, dtype=torch.long))
    with pytest.raises(InputError, match="expected one floating-point entry, or token indices"):
        explain(ensemble, {"a": x, "b": x})
    with pytest.raises(ModelError, match="expected logits with a gradient at the input"):
        explain(posteriors.DeepEnsemble([Detached(), Detached()]), torch.randn(2, 4))


class Blind(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.float())


class Detached(Blind):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.detach()).detach()
