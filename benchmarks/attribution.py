"""Time of each attribution method side by side, and UA-Backprop over FullGrad against the plain way.

    python benchmarks/attribution.py                       # this machine's CPU
    python benchmarks/attribution.py --device cuda --batch 256

The plain way takes one image at a time, and pulls back one logit of one member after another from one forward pass of
the member; ``separate`` is the same with a forward pass for every logit, as the public code of FullGrad is called for
one class after another. They are timed on a few images. All give the same maps: ``error`` is the largest difference,
relative to the largest entry. ``forwards`` is the time in forward passes of the whole ensemble over the same batch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
from measure import machine, save, seconds
from torch import Tensor, nn
from torch.nn.functional import interpolate

from nescio import attribution, posteriors, zoo
from nescio.attribution import defaults, paths, uncertainty

CLASSES = 10
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (lambda: zoo.small_cnn(1, 28, CLASSES), (1, 28, 28)),
    "resnet18": (lambda: zoo.resnet18_cifar(CLASSES), (3, 32, 32)),
}
SLOW = ("clue", "delta_clue")


def plain_maps(model: nn.Module, x: Tensor, classes: Sequence[int] = range(CLASSES)) -> Tensor:
    """FullGrad's maps of logits of one image [1, C, H, W], a backward pass for each: [classes, H, W]."""
    kept: list[tuple[nn.Module, Tensor]] = []

    def note(module: nn.Module, _: Any, y: Tensor) -> Tensor:
        y = y.clone()
        kept.append((module, y))
        return y.clone()  # an activation in place must not reach what is kept

    kinds = (nn.Conv2d, nn.BatchNorm2d)
    handles = [m.register_forward_hook(note) for m in model.modules() if isinstance(m, kinds)]
    x = x.clone().requires_grad_()
    z = model(x)
    for handle in handles:
        handle.remove()
    biases = [(at, b) for at, (m, _) in enumerate(kept) if (b := paths.bias_of(m)) is not None]
    found = []
    for i in classes:
        slope, *slopes = torch.autograd.grad(z[0, i], [x, *(kept[at][1] for at, _ in biases)], retain_graph=True)
        total = (slope * x).abs().mean(1)
        for g, (_, b) in zip(slopes, biases, strict=True):
            term = (g * b.view(1, -1, 1, 1)).abs().mean(1, keepdim=True)
            total = total + interpolate(term, x.shape[2:], mode="bilinear", align_corners=False)[:, 0]
        found.append(total[0].detach())
    return torch.stack(found)


def separate_maps(model: nn.Module, x: Tensor) -> Tensor:
    """The same with a forward pass for each logit."""
    return torch.cat([plain_maps(model, x, [i]) for i in range(CLASSES)])


def plain(models: list[nn.Module], x: Tensor, of: str, maps: Callable[..., Tensor] = plain_maps) -> Tensor:
    """UA-Backprop over FullGrad, one image, one member and one logit at a time: [N, H, W]."""
    found = []
    for one in x.split(1):
        with torch.no_grad():
            z = torch.stack([model(one) for model in models]).double().cpu()
        shares = uncertainty.by_logit(z, uncertainty.by_class(z, of), defaults.TAU1)[:, 0] / len(models)
        total = torch.zeros(one.shape[2:], dtype=torch.float64)
        for model, share in zip(models, shares, strict=True):
            for weight, m in zip(share, maps(model, one), strict=True):
                flat = (m - m.min()) / (m.max() - m.min())
                total += weight * (flat / defaults.TAU2).flatten().softmax(0).view_as(m).double().cpu()
        found.append(total)
    return torch.stack(found)


def measure(name: str, batch: int, members: int, device: torch.device, methods: list[str], few: int) -> dict[str, Any]:
    """All methods on one ensemble and one batch."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    models = [make().eval().to(device) for _ in range(members)]
    ensemble = posteriors.DeepEnsemble(models)
    x = torch.rand(batch, *shape, device=device)
    with torch.no_grad():
        forward = seconds(lambda: [model(x) for model in models], device, repeats=10)
    some = x[:few]
    base = seconds(lambda: plain(models, some, "epistemic"), device, repeats=3) / len(some)
    wanted = plain(models, some, "epistemic")
    apart = seconds(lambda: plain(models, some, "epistemic", separate_maps), device, repeats=3) / len(some)
    rows: dict[str, Any] = {
        way: {"ms": 1e3 * time, "ratio": base / time, "forwards": time * batch / forward}
        for way, time in (("plain", base), ("separate", apart))
    }
    ways = {f"ua_backprop {path}": {"path": path} for path in paths.PATHS if "ua_backprop" in methods}
    ways |= {method: {} for method in methods if method != "ua_backprop"}
    for way, settings in ways.items():
        method = way.partition(" ")[0]
        if method in SLOW:
            settings = {"vae": attribution.VAE(attribution.vae.Shape(shape)).to(device)}
        run = lambda m=method, s=settings: attribution.explain(ensemble, x, m, progress=False, **s)  # noqa: E731
        kept: list[attribution.Attribution] = []
        time = seconds(lambda run=run, kept=kept: kept.append(run()), device, repeats=3)
        rows[way] = {"ms": 1e3 * time / batch, "ratio": base * batch / time, "forwards": time / forward}
        if way == "ua_backprop fullgrad":
            error = (kept[0].maps[:few] - wanted).abs().max() / wanted.max()
            rows[way] |= {
                "error": error.item(),
                "residual": float((kept[0].residual / kept[0].uncertainty).abs().max()),
            }
    return {"model": name, "batch": batch, "members": members, "forward_ms": 1e3 * forward / batch, "ways": rows}


def table(result: dict[str, Any]) -> str:
    """A result for people."""
    head = f"{result['model']}, {result['members']} members, batch {result['batch']}: a forward pass of all members "
    lines = [
        f"{head}takes {result['forward_ms']:.3f} ms an image",
        f"{'':<26}{'ms/image':>10}{'x plain':>9}{'forwards':>10}",
    ]
    for way, v in result["ways"].items():
        more = f"   error {v['error']:.0e}, residual {v['residual']:.0e}" if "error" in v else ""
        ratio = f"{v['ratio']:>9.1f}" if way in ("plain", "separate", "ua_backprop fullgrad") else f"{'':>9}"
        more = f", {v['ratio_separate']:.1f} x separate{more}" if "ratio_separate" in v else more
        lines.append(f"{way:<26}{v['ms']:>10.2f}{ratio}{v['forwards']:>10.1f}{more}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--methods", nargs="+", default=list(attribution.METHODS), choices=list(attribution.METHODS))
    parser.add_argument("--batch", nargs="+", type=int, default=[32])
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--few", type=int, default=3, help="images for the plain way")
    parser.add_argument("--name", help="name of the result file; default: attribution-DEVICE")
    args = parser.parse_args()
    device = torch.device(args.device)
    results: list[dict[str, Any]] = []
    result = {"machine": machine(device), "classes": CLASSES, "results": results}
    for model, batch in ((m, b) for m in args.models for b in args.batch):
        results.append(measure(model, batch, args.members, device, args.methods, args.few))
        path = save(args.name or f"attribution-{device.type}", result)
        print(table(results[-1]), flush=True)
    print("saved", path)


if __name__ == "__main__":
    main()
