"""Time of each attribution method side by side, and UA-Backprop over FullGrad against the plain way.

    python benchmarks/attribution.py                       # this machine's CPU
    python benchmarks/attribution.py --device cuda         # batches of 128

``plain`` takes one image at a time, and pulls back one logit of one member after another from one forward pass of the
member; ``separate`` is the same with a forward pass for every logit, as the public code of FullGrad is called for one
class after another. Both ask autograd for the gradients that FullGrad needs and for no weight's. Their time an image
does not depend on the batch, so they are timed on a few images, as are the slow methods on a CPU: ``images`` says on
how many. All give the same maps: ``error`` is the largest difference from the plain way, relative to the largest entry,
without TF32, which a GPU takes for convolutions otherwise.
``forwards`` is the time in forward passes of the whole ensemble over the batch, by image. UA-Backprop needs 2 + C of
them if a pass back costs as much as one forward: the logits of all members come before the first map. Ways alternate,
and the fastest of several runs counts, since others may use the machine. Memory is the peak beyond what was there
before, on a CPU sampled.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch
from gradients import CLASSES, MODELS
from measure import machine, peak_bytes, save, synchronize
from torch import Tensor, nn

from nescio import attribution, posteriors
from nescio.attribution import defaults, logit_maps, uncertainty
from nescio.attribution.source import Source

BATCHES = {"cpu": {"cnn": 32, "resnet18": 8, "vit": 8}}
"""Images of a batch on a CPU; elsewhere 128."""
CLUE = ("clue", "delta_clue")
MANY_PASSES = ("ua_backprop smoothgrad", "smoothgrad", "integrated_gradients", "blur_ig", *CLUE)
FULLGRAD = "ua_backprop fullgrad"


def plain_maps(model: nn.Module, x: Tensor, classes: Sequence[int] = range(CLASSES)) -> Tensor:
    """FullGrad's maps of logits of one image [1, C, H, W], a backward pass for each: [classes, H, W]."""
    kept: list[tuple[nn.Module, Tensor, Tensor]] = []
    grids: list[tuple[int, ...]] = []
    places = Source.of(x, "auto").places(x)

    def note(module: nn.Module, _: Any, gave: Any) -> Any:
        y = gave[0] if isinstance(gave, tuple) else gave
        if isinstance(module, nn.Conv2d):
            grids[:] = [tuple(y.shape[2:])]
        bias = logit_maps.bias_of(module)
        if bias is None or y.ndim < 3:  # dense layers have no place in a picture
            return None
        kept.append((module, y, bias))
        copy = y.clone()  # an activation in place must not reach what is kept
        return (copy, *gave[1:]) if isinstance(gave, tuple) else copy

    handles = [m.register_forward_hook(note) for m in model.modules()]
    x = x.clone().requires_grad_()
    z = model(x)
    for handle in handles:
        handle.remove()
    found = []
    for i in classes:
        slope, *slopes = torch.autograd.grad(z[0, i], [x, *(y for _, y, _ in kept)], retain_graph=True)
        total = (slope * x).abs().mean(1)
        for g, (module, _, b) in zip(slopes, kept, strict=True):
            last = isinstance(module, logit_maps.FEATURES_LAST)
            term = places.arranged(module, (g * (b if last else b.view(-1, 1, 1))).abs()[None], 1, grids[0])
            assert term is not None
            total = total + places.brought(term.mean(2), last)[0]
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


def fastest(
    ways: dict[str, Callable[[], Any]], device: torch.device, repeats: int, budget: float
) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds and peak memory of each way: the fastest of runs that alternate, `budget` seconds each."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    memory: dict[str, int] = {}
    for way, run in ways.items():  # and warms up
        start = perf_counter()
        memory[way] = peak_bytes(run, device)
        if perf_counter() - start > budget:  # of so many passes that the first ones hardly count
            times[way].append(perf_counter() - start)
    for _ in range(repeats):
        for way, run in ways.items():
            if times[way] and sum(times[way]) + times[way][-1] > budget:
                continue
            synchronize(device)
            start = perf_counter()
            run()
            synchronize(device)
            times[way].append(perf_counter() - start)
    return {way: min(found) for way, found in times.items()}, memory


def measure(
    name: str, batch: int, device: torch.device, methods: list[str], args: argparse.Namespace
) -> dict[str, Any]:
    """All methods on one ensemble and one batch."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    models = [make().eval().to(device) for _ in range(args.members)]
    ensemble = posteriors.DeepEnsemble(models)
    x = torch.rand(batch, *shape, device=device)
    few = x[: min(batch, args.few)]

    def forward() -> None:
        with torch.no_grad():
            for model in models:
                model(x)

    runs: dict[str, Callable[[], Any]] = {
        "forward": forward,
        "plain": lambda: plain(models, few, "epistemic"),
        "separate": lambda: plain(models, few, "epistemic", separate_maps),
    }
    images = {"forward": batch, "plain": len(few), "separate": len(few)}
    ways: dict[str, dict[str, Any]] = {f"ua_backprop {path}": {"path": path} for path in logit_maps.PATHS}
    ways = ways if "ua_backprop" in methods else {}
    ways |= {method: {} for method in methods if method != "ua_backprop"}
    for way, settings in ways.items():
        method = way.partition(" ")[0]
        if method in CLUE:
            settings = {"vae": attribution.VAE(attribution.vae.Shape(shape)).to(device)}
        given = few if device.type == "cpu" and way in MANY_PASSES else x
        images[way] = len(given)
        runs[way] = lambda m=method, s=settings, g=given: attribution.explain(ensemble, g, m, progress=False, **s)
        if device.type != "cpu":  # a first call compiles kernels
            attribution.explain(ensemble, few, method, progress=False, **settings)
    times, memory = fastest(runs, device, args.repeats, args.budget)
    base = {way: times[way] / images[way] for way in runs}
    rows: dict[str, Any] = {
        way: {
            "ms": 1e3 * base[way],
            "forwards": base[way] / base["forward"],
            "ratio_plain": base["plain"] / base[way],
            "ratio_separate": base["separate"] / base[way],
            "images": images[way],
            "memory_mib": memory[way] / 2**20,
        }
        for way in runs
    }
    if FULLGRAD in rows:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            found, wanted = attribution.explain(ensemble, few, progress=False), plain(models, few, "epistemic")
        rows[FULLGRAD] |= {
            "error": float((found.maps - wanted).abs().max() / wanted.max()),
            "residual": float((found.residual / found.uncertainty).abs().max()),
        }
    return {"model": name, "batch": batch, "members": args.members, "ways": rows}


def table(result: dict[str, Any]) -> str:
    """A result for people."""
    lines = [
        f"{result['model']}, {result['members']} members, batch {result['batch']}",
        f"{'':<26}{'ms/image':>10}{'forwards':>10}{'x plain':>9}{'x separate':>12}{'MiB':>8}{'images':>8}",
    ]
    for way, v in result["ways"].items():
        ratios = f"{v['ratio_plain']:>9.1f}{v['ratio_separate']:>12.1f}" if way == FULLGRAD else f"{'':>21}"
        more = f"   error {v['error']:.0e}, residual {v['residual']:.0e}" if "error" in v else ""
        size = f"{v['memory_mib']:>8.0f}{v['images']:>8}"
        lines.append(f"{way:<26}{v['ms']:>10.3f}{v['forwards']:>10.1f}{ratios}{size}{more}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    quick = [method for method in attribution.METHODS if method not in CLUE]
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--methods", nargs="+", default=quick, choices=quick)
    parser.add_argument("--clue", action="store_true", help="CLUE and δ-CLUE too, which take hundreds of passes")
    parser.add_argument("--batch", type=int, help="images; default: 128 on a GPU, 8 to 32 on a CPU")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--few", type=int, default=2, help="images for the plain way, and on a CPU for slow methods")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--budget", type=float, help="seconds for the repeats of a way; default: 2 on a GPU, 5 on a CPU"
    )
    parser.add_argument("--name", help="name of the result file; default: attribution-DEVICE")
    args = parser.parse_args()
    device = torch.device(args.device)
    args.budget = args.budget or (5.0 if device.type == "cpu" else 2.0)
    methods = [*args.methods, *(CLUE if args.clue else ())]
    results: list[dict[str, Any]] = []
    result = {"machine": machine(device), "classes": CLASSES, "results": results}
    for model in args.models:
        batch = args.batch or BATCHES.get(device.type, {}).get(model, 128)
        results.append(measure(model, batch, device, methods, args))
        path = save(args.name or f"attribution-{device.type}", result)
        print(table(results[-1]), flush=True)
    print("saved", path)


if __name__ == "__main__":
    main()
