"""Maps of logits against Captum, plain autograd and FullGrad's own sum."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from nescio import posteriors
from nescio.attribution import explain, ua_backprop
from nescio.attribution.logit_maps import added, bias_of, keeper, reader
from nescio.attribution.member_passes import Call, Run, forward, pulled
from nescio.attribution.noisy_copies import noisy
from nescio.attribution.problem import unchanged
from nescio.attribution.sampled_members import Member, members
from nescio.attribution.source import Source
from nescio.models import Classifier
from nescio.trace.backward import pull as backward
from nescio_papers import zoo

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from captum.attr import LayerGradCam, NoiseTunnel, Saliency


def bias_terms(run: Run, vector: Tensor) -> list[Tensor]:
    """∂z/∂b_l ⊙ b_l of every bias for cotangents [K, N, C], each [K, *output shape]: the terms of FullGrad's sum."""
    terms: list[Tensor] = []

    def read(call: Call | None, g: Tensor) -> None:
        terms.append(g * run.root if call is None else g * added(call.module, call.kept, g.ndim))

    run.pull(vector, read)
    return terms


def conv_net(seed: int = 0, norm: bool = True) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4) if norm else nn.Identity(), nn.ReLU(inplace=True), nn.AvgPool2d(2),
        nn.Conv2d(4, 6, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 2 * 3, 8), nn.ReLU(), nn.Linear(8, 3),
    )  # fmt: skip
    if norm:
        model[1].running_mean.normal_()
        model[1].running_var.uniform_(0.5, 2.0)
        nn.init.normal_(model[1].weight)
        nn.init.normal_(model[1].bias)
    return model.eval().double()


def pictures(count: int = 3) -> Tensor:
    return torch.randn(count, 2, 8, 10, dtype=torch.float64)


def member_of(model: nn.Module) -> Member:
    return Member(lambda: Classifier.of(model))


def logit_maps(model: nn.Module, x: Tensor, path: str) -> Tensor:
    """Maps of every logit, [C, N, ...], as they go into the softmax over places."""
    source = Source.of(x, "auto")
    maps: list[Tensor] = []
    with forward(member_of(model), x, source, unchanged, keeper(path)) as run:
        hot = torch.eye(run.logits.shape[1], dtype=x.dtype).unsqueeze(1).expand(-1, len(x), -1)
        pulled(run, hot, lambda: reader(path, run, source.places(x), maps))
    return torch.cat(maps)


@pytest.mark.parametrize("model", [conv_net(), conv_net(norm=False), zoo.resnet18_cifar(3, seed=0).eval().double()])
def test_the_terms_of_fullgrad_add_up_to_the_logit(model: nn.Module) -> None:
    """f(x) = ⟨∇f, x⟩ + Σ_l ⟨∂f/∂b_l, b_l⟩ for ReLU networks, batch norm's implicit biases among them."""
    channels = next(model.parameters()).shape[1]
    x = torch.randn(2, channels, 8, 10, dtype=torch.float64)
    z = model(x).detach()
    with forward(member_of(model), x, Source.of(x, "auto"), unchanged, bias_of) as run:
        hot = torch.eye(3, dtype=torch.float64).unsqueeze(1).expand(-1, 2, -1).contiguous()
        terms = bias_terms(run, hot)
    assert len(terms) == 1 + sum(bias_of(m) is not None for m in model.modules())
    total = torch.stack([term.flatten(2).sum(2) for term in terms]).sum(0)
    torch.testing.assert_close(total.T, z, rtol=1e-9, atol=1e-9)


def test_a_bias_that_an_activation_in_place_writes_over() -> None:
    """It changes neither the value nor the gradient of what the layer gave."""

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.act, self.head = nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.act(self.inner(x)).mean(1))

    model, x = Tokens().double(), torch.randn(2, 5, 4, dtype=torch.float64)
    with forward(member_of(model), x, Source.of(x, "auto"), unchanged, bias_of) as run:
        terms = bias_terms(run, torch.eye(3, dtype=torch.float64).unsqueeze(1).expand(-1, 2, -1).contiguous())
    total = torch.stack([term.flatten(2).sum(2) for term in terms]).sum(0)
    torch.testing.assert_close(total.T, model(x).detach(), rtol=1e-9, atol=1e-9)


def test_attention_adds_the_bias_of_its_values_too() -> None:
    attention = nn.MultiheadAttention(6, 2, batch_first=True).double().eval()
    nn.init.normal_(attention.in_proj_bias)
    nn.init.normal_(attention.out_proj.bias)
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    full = attention(x, x, x, need_weights=False)[0]
    bias = bias_of(attention)
    assert bias is not None
    with torch.no_grad():
        attention.in_proj_bias[12:] = 0.0
        attention.out_proj.bias.zero_()
    torch.testing.assert_close(full - attention(x, x, x, need_weights=False)[0], bias.expand_as(full))


def test_fullgrad_maps_against_a_loop() -> None:
    model, x = conv_net(), pictures(2)
    found = logit_maps(model, x, "fullgrad")
    x = x.clone().requires_grad_()
    a = model[0](x)
    b = model[1](a)
    c = model[4](model[3](b.relu()))
    z = model[9](model[7](c.relu().flatten(1)).relu())
    for i in range(3):
        gx, ga, gb, gc = torch.autograd.grad(z[:, i].sum(), [x, a, b, c], retain_graph=True)
        wanted = (gx * x).abs().mean(1)
        implicit = model[1].bias - model[1].weight * model[1].running_mean / (model[1].running_var + 1e-5).sqrt()
        for g, bias in ((ga, model[0].bias), (gb, implicit), (gc, model[4].bias)):
            term = (g * bias.view(-1, 1, 1)).abs().mean(1, keepdim=True)
            wanted = wanted + interpolate(term, (8, 10), mode="bilinear", align_corners=False)[:, 0]
        torch.testing.assert_close(found[i], wanted.detach(), rtol=1e-9, atol=1e-12)


def test_gradcam_is_captums() -> None:
    model, x = conv_net(), pictures()
    captum = LayerGradCam(model, model[4])
    found = logit_maps(model, x, "gradcam")
    for i in range(3):
        small = captum.attribute(x, target=i, relu_attributions=True).detach()
        wanted = interpolate(small, (8, 10), mode="bilinear", align_corners=False)[:, 0]
        torch.testing.assert_close(found[i], wanted, rtol=1e-9, atol=1e-12)
    assert found.any()


def test_gradcam_at_a_named_layer() -> None:
    ensemble, x = posteriors.DeepEnsemble([conv_net(0), conv_net(1)]), pictures()
    last, same = explain(ensemble, x, path="gradcam"), explain(ensemble, x, path="gradcam", layer="4")
    torch.testing.assert_close(last.maps, same.maps, rtol=0, atol=0)
    first = explain(ensemble, x, path="gradcam", layer="0")
    assert not torch.allclose(first.maps, last.maps)


def test_gradient_maps_are_plain_gradients() -> None:
    model, x = conv_net(), pictures()
    leaf = x.clone().requires_grad_()
    wanted = torch.stack([Saliency(model).attribute(leaf, target=i, abs=False).detach() for i in range(3)])
    torch.testing.assert_close(logit_maps(model, x, "gradient"), wanted, rtol=1e-9, atol=1e-12)


def test_smoothgrads_mean_is_captums(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same noise: Captum draws all copies of an input one after another."""
    model, x, copies = conv_net(), pictures(2), 4
    reach = (x.flatten(1).amax(1) - x.flatten(1).amin(1)).view(-1, 1, 1, 1)
    noise = torch.stack([noisy(0.1, 0, k)(x) - x for k in range(copies)])  # [copies, N, ...]
    assert torch.allclose(noise[0, 0] / reach[0], noise[0, 1] / reach[1])  # the same for all inputs
    drawn = noise.transpose(0, 1).flatten(0, 1)
    monkeypatch.setattr(torch, "normal", lambda *a, **k: drawn)
    tunnel = NoiseTunnel(Saliency(model))
    wanted = torch.stack(
        [
            tunnel.attribute(x.clone().requires_grad_(), nt_type="smoothgrad", nt_samples=copies, target=i, abs=False)
            for i in range(3)
        ]
    )
    monkeypatch.undo()
    source = Source.of(x, "auto")
    total = torch.zeros(3, *x.shape, dtype=torch.float64)
    for k in range(copies):
        with forward(member_of(model), x, source, noisy(0.1, 0, k)) as run:
            hot = torch.eye(3, dtype=torch.float64).unsqueeze(1).expand(-1, 2, -1)
            maps: list[Tensor] = []
            pulled(run, hot, lambda run=run, maps=maps: reader("smoothgrad", run, source.places(x), maps))
        total += maps[0] / copies
    torch.testing.assert_close(total, wanted.detach(), rtol=1e-9, atol=1e-12)


def test_the_whole_of_ua_backprop_against_a_loop() -> None:
    """Every step written out for one image, one member and one logit at a time."""
    models, x, tau1, tau2 = [conv_net(0), conv_net(1)], pictures(2), 0.3, 0.1
    found = explain(posteriors.DeepEnsemble(models), x, path="gradient", tau1=tau1, tau2=tau2)
    g = torch.stack([m(x).softmax(1).detach() for m in models])
    u = -g.mean(0) * g.mean(0).log() + (g * g.log()).mean(0)
    for n in range(2):
        wanted = torch.zeros(8, 10, dtype=torch.float64)
        for s, model in enumerate(models):
            for i in range(3):
                y = x[n : n + 1].clone().requires_grad_()
                (slope,) = torch.autograd.grad(model(y)[0, i], y)
                m = slope[0].abs().mean(0)
                m = ((m - m.min()) / (m.max() - m.min()) / tau2).flatten().softmax(0).view(8, 10)
                share = sum(
                    u[n, j] * ((torch.eye(3, dtype=torch.float64)[j] - g[s, n]) / tau1).softmax(0)[i] for j in range(3)
                )
                wanted += share * m / 2
        torch.testing.assert_close(found.maps[n], wanted, rtol=1e-9, atol=1e-14)


def test_patches_of_a_vision_transformer_go_to_their_pixels() -> None:
    """With a map on tokens alone, Grad-CAM, all pixels of a patch are alike, and patches are not."""
    model = zoo.small_vit(classes=3, size=16, patch=4, width=12, depth=2, heads=2, seed=0).eval().double()
    x = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    maps = logit_maps(model, x, "gradcam")
    blocks = maps.unflatten(3, (4, 4)).unflatten(2, (4, 4)).permute(0, 1, 2, 4, 3, 5).flatten(4)
    assert bool((blocks == blocks[..., :1]).all())
    assert bool((blocks[..., 0].flatten(2).std(2) > 0).any())


def test_a_non_square_vision_transformer_has_its_patches_in_rows() -> None:
    """Only the patch at row 1, column 2 reaches the logits: its pixels alone have an attribution."""

    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm, self.head = nn.Conv2d(1, 4, 2, stride=2), nn.LayerNorm(4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], 1)
            return self.head(self.norm(tokens)[:, 1 + 1 * 5 + 2])

    torch.manual_seed(0)
    model = Picky().double()
    nn.init.normal_(model.norm.bias)
    maps = logit_maps(model, torch.randn(2, 1, 6, 10, dtype=torch.float64), "fullgrad")
    inside = torch.zeros(6, 10, dtype=torch.bool)
    inside[2:4, 4:6] = True
    far = torch.ones(6, 10, dtype=torch.bool)
    far[0:6, 2:8] = False  # the convolution's own bias map is interpolated, so its neighbours have some
    assert bool((maps[..., inside] > 0).all())
    assert bool((maps[..., far] == 0).all())


def test_a_network_that_vmap_cannot_follow_takes_one_logit_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble, x = posteriors.DeepEnsemble([conv_net(0), conv_net(1)]), pictures(2)
    wanted = {path: explain(ensemble, x, path=path).maps for path in ("fullgrad", "gradcam", "gradient")}
    real: Any = backward.visit
    counts: list[int] = []

    def visit(logits: Tensor, nodes: Any, lowest: Any, vectors: Tensor, read: Any) -> None:
        counts.append(len(vectors))
        if len(vectors) > 1:
            raise backward.NotFolded("no")
        real(logits, nodes, lowest, vectors, read)

    monkeypatch.setattr(backward, "visit", visit)
    for path, maps in wanted.items():
        torch.testing.assert_close(explain(ensemble, x, path=path).maps, maps, rtol=1e-9, atol=1e-14)
    assert set(counts) == {1, 3}  # all three logits were tried together first


@pytest.mark.parametrize("path", ["fullgrad", "smoothgrad"])
def test_logits_in_several_blocks(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    ensemble, x = posteriors.DeepEnsemble([conv_net(0), conv_net(1)]), pictures(2)
    more = {"copies": 2} if path == "smoothgrad" else {}
    wanted = explain(ensemble, x, path=path, **more)
    monkeypatch.setattr(ua_backprop, "CLASSES_AT_ONCE", 2)
    torch.testing.assert_close(explain(ensemble, x, path=path, **more).maps, wanted.maps, rtol=1e-9, atol=1e-14)


def test_members_of_a_distribution_and_the_batched_backward() -> None:
    """All logits of a batch go through one backward pass of each member."""
    ensemble, x = posteriors.DeepEnsemble([conv_net(0), conv_net(1)]), pictures(5)
    assert len(members(ensemble, x)) == 2
    calls: list[tuple[int, ...]] = []
    real: Any = backward.visit

    def visit(*args: Any) -> None:
        calls.append(tuple(args[3].shape))
        real(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backward, "visit", visit)
        explain(ensemble, x)
    assert calls == [(3, 5, 3)] * 2


class TokensFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(5, 8), nn.Linear(8, 3)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(x).transpose(0, 1)).mean(0))


class Windows(nn.Module):
    """Four windows of four patches each, which lie in one dimension with the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8)
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).unflatten(3, (2, 2)).unflatten(2, (2, 2)).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, 8)
        h = h + self.inner(self.norm(h)).tanh()
        return self.head(h.reshape(len(x), -1, 8).mean(1))


@pytest.mark.parametrize("path", ["fullgrad", "gradcam"])
@pytest.mark.parametrize(("kind", "shape"), [(TokensFirst, (4, 5)), (Windows, (3, 8, 8))])
def test_as_many_inputs_as_tokens(kind: type[nn.Module], shape: tuple[int, ...], path: Any) -> None:
    """Maps do not depend on the size of the batch, where that is a number of tokens by chance."""
    torch.manual_seed(0)
    models = [kind().double() for _ in range(2)]
    for p in [p for model in models for name, p in model.named_parameters() if name.endswith("bias")]:
        nn.init.normal_(p)
    ensemble, x = posteriors.DeepEnsemble(models), torch.randn(4, *shape, dtype=torch.float64)
    alone = explain(ensemble, x, path=path, chunk=1).maps
    torch.testing.assert_close(explain(ensemble, x, path=path).maps, alone, rtol=1e-9, atol=1e-15)
    full = [explain(ensemble, x, "fullgrad", chunk=chunk).maps for chunk in (None, 1)]
    torch.testing.assert_close(full[0], full[1], rtol=1e-9, atol=1e-15)


def test_a_map_that_is_flat_but_for_round_off_stays_flat() -> None:
    """Of pixels that all count the same no one is shown, whatever their last digits are."""
    places = Source.of(pictures(), "auto").places(pictures())
    for dtype in (torch.float32, torch.float64):
        last = torch.finfo(dtype).eps * torch.randint(-8, 9, (2, 3, 8, 10))
        assert (places.shares(0.3 * (1 + last.to(dtype)), 0.05) == 1).all()
        steps = 1 + 1e-4 * torch.rand(2, 3, 8, 10, dtype=dtype)
        assert (places.shares(steps, 0.05).amin(2) < 1e-8).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_grad_cam_takes_no_weight_from_round_off(dtype: torch.dtype) -> None:
    """Behind a norm over places the slopes of a channel add up to zero, and so do the weights of Grad-CAM."""
    ends = nn.Conv2d(2, 4, 3).to(dtype), nn.Linear(4 * 6 * 8, 3).to(dtype)
    x = pictures().to(dtype)
    for norm in (nn.InstanceNorm2d(4), nn.Identity()):
        model = nn.Sequential(ends[0], norm, nn.Tanh(), nn.Flatten(), ends[1])
        assert logit_maps(model, x, "gradcam").any() == isinstance(norm, nn.Identity)
