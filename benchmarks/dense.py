"""What maps of scores cost on segmentation networks, in forward passes (F) of the same pictures, and in memory.

    python benchmarks/dense.py                                  # results/dense-cpu.json; rows of other runs are kept
    python benchmarks/dense.py --networks unet --sizes 512
    python benchmarks/dense.py --whole                          # the whole network too, which takes long
    OMP_NUM_THREADS=1 python benchmarks/dense.py --clock cpu    # CPU time of one thread, for a machine that is busy
    python benchmarks/dense.py --device cuda --batch 1 8 --whole    # results/dense-cuda.json

Weights are random, and the last layer gives logits as large as those of a trained network: no row is uniform, and none
is sure. Every time is the median of rounds in which F and the others take turns, so that the ratios are of one machine
in one state. "Forward" is the model alone, without gradients. Memory is that at its peak beyond what was there before:
resident memory on a CPU, allocated memory on a GPU. "bounded" is with ``memory_gb=0.05`` for what maps take, and with
`WHOLE_BOUND` for the gradients of the whole network.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
import torchvision
from measure import CLOCKS, device_in_tf32, machine, peak_bytes, read, save, synchronize
from torch import Tensor, nn

import nescio

CLASSES, FEW = 21, 5
BOUND = 0.05
WHOLE_BOUND = {"cpu": 0.5, "cuda": 2.0}
METHODS: dict[str, Any] = {
    "entropy": "entropy",
    "three forward scores": ["entropy", "energy", "max_probability"],
    "exgrad": "exgrad",
    "regrad": "regrad",
    "entropy and exgrad": ["entropy", "exgrad"],
}


class UNet(nn.Module):
    """Three steps down, three up, with bridges; 1.9 million parameters and a 1×1 head at full size."""

    def __init__(self, classes: int = FEW, width: int = 32) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * b, b, 2, stride=2) for b in widths[2::-1])
        self.join = nn.ModuleList(block(2 * b, b) for b in widths[2::-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits at every pixel."""
        kept = []
        for at, layer in enumerate(self.down):
            x = layer(x if at == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for larger, layer, bridge in zip(self.up, self.join, kept[2::-1], strict=True):
            x = layer(torch.cat([bridge, larger(x)], 1))
        return self.head(x)


def block(before: int, after: int) -> nn.Sequential:
    """Two convolutions."""
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


def fcn() -> nn.Module:
    """FCN with MobileNetV3-Large behind it, as torchvision makes DeepLabV3 with it."""
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.segmentation.fcn import FCN, FCNHead

    features = torchvision.models.mobilenet_v3_large(weights=None, dilated=True).features
    last = len(features) - 1
    return FCN(IntermediateLayerGetter(features, {str(last): "out"}), FCNHead(features[-1].out_channels, CLASSES))


def torchvisions(name: str) -> nn.Module:
    """A network of torchvision without weights."""
    return getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=CLASSES)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "unet": UNet,
    "fcn_mobilenet_v3_large": fcn,
    "deeplabv3_mobilenet_v3_large": lambda: torchvisions("deeplabv3_mobilenet_v3_large"),
    "lraspp_mobilenet_v3_large": lambda: torchvisions("lraspp_mobilenet_v3_large"),
}


def network(name: str, side: int, device: torch.device) -> nn.Module:
    """A network whose statistics are those of its inputs, and whose logits spread by about 3 at this size."""
    torch.manual_seed(0)
    model = NETWORKS[name]().to(device)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
    with torch.no_grad():
        for _ in range(2):
            model.train()(pictures(128, 4).to(device))
        logits = answer(model.eval(), pictures(side).to(device))
        scale = 3.0 / float(logits.std())
        heads = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.out_channels == logits.shape[1]]
        for head in heads[-2:] if name.startswith("lraspp") else heads[-1:]:
            head.weight.mul_(scale)
    return model


def pictures(side: int, count: int = 1) -> Tensor:
    """Smooth pictures with noise on them."""
    generator = torch.Generator().manual_seed(side)
    coarse = torch.rand(count, 3, 8, 8, generator=generator)
    smooth = nn.functional.interpolate(coarse, (side, side), mode="bicubic")
    return smooth + 0.05 * torch.randn(count, 3, side, side, generator=generator)


def answer(model: nn.Module, x: Tensor) -> Tensor:
    """The logits."""
    out = model(x)
    return out["out"] if isinstance(out, dict) else out


def taking_turns(
    runs: dict[str, Callable[[], Any]], rounds: int, device: torch.device, clock: str
) -> dict[str, list[float]]:
    """Seconds of each run in each round, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    now = CLOCKS[clock]
    for at in range(rounds + 1):
        for name, run in runs.items():
            synchronize(device)
            start = now()
            run()
            synchronize(device)
            if at:
                times[name].append(now() - start)
    return times


def peak_mb(run: Callable[[], Any], device: torch.device) -> float:
    """Memory at the peak of a run; what earlier runs left to the allocator of a CPU is given back first."""
    if device.type == "cpu" and sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return peak_bytes(run, device) / 1e6


def row(name: str, side: int, args: argparse.Namespace, batch: int) -> dict[str, Any]:
    """Measure one network at one size."""
    device = torch.device(args.device)
    model, x = network(name, side, device), pictures(side, batch).to(device)

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def scored(method: Any, **settings: Any) -> Callable[[], Any]:
        return lambda: nescio.score(model, x, method, progress=False, **settings)

    def whole(**settings: Any) -> Callable[[], Any]:
        return lambda: nescio.dense.whole_network(model, x[:1], "exgrad", **settings)

    runs: dict[str, Callable[[], Any]] = {"forward": forward} | {key: scored(one) for key, one in METHODS.items()}
    runs["exgrad, bounded"] = scored("exgrad", memory_gb=BOUND)
    times = taking_turns(runs, args.rounds, device, args.clock)
    if args.whole and batch == 1:
        more = {"whole network": whole(), "whole network, bounded": whole(memory_gb=WHOLE_BOUND[device.type])}
        times |= taking_turns(more, 1, device, args.clock)
        runs |= more
    middle = {key: statistics.median(values) for key, values in times.items()}
    ratios = {key: [a / b for a, b in zip(values, times["forward"], strict=False)] for key, values in times.items()}
    with torch.no_grad():
        logits = answer(model, x[:1])
    return {
        "network": name, "side": side, "batch": batch, "classes": logits.shape[1], "positions": logits[0, 0].numel(),
        "rounds": args.rounds, "clock": args.clock, "logits_std": float(logits.std()),
        "seconds": middle,
        "forward_passes": {key: statistics.median(values) for key, values in ratios.items()},
        "range_of_forward_passes": {key: [min(values), max(values)] for key, values in ratios.items()},
        "peak_mb": {key: peak_mb(run, device) for key, run in runs.items()},
        "bound_mb": {"exgrad, bounded": 1e3 * BOUND, "whole network, bounded": 1e3 * WHOLE_BOUND[device.type]},
    }  # fmt: skip


def main() -> None:
    """Measure what was asked for, and put it beside what was measured before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--sizes", nargs="*", type=int, default=[512, 1024])
    parser.add_argument("--batch", nargs="*", type=int, default=[1], help="pictures at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="the gradients of the whole network too")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--name", help="name of the result file; default: dense-DEVICE")
    args = parser.parse_args()
    device = device_in_tf32(args.device)
    file = args.name or f"dense-{device.type}"
    rows = {(one["network"], one["side"], one.get("batch", 1)): one for one in read(file).get("rows", [])}
    for name, side, batch in itertools.product(args.networks, args.sizes, args.batch):
        one = {**row(name, side, args, batch), "machine": machine(device)}
        rows[name, side, batch] = one
        told = {key: round(value, 2) for key, value in one["forward_passes"].items()}
        print(name, side, batch, f"F = {one['seconds']['forward']:.3f} s", told, flush=True)
        print("    MB", {key: round(value) for key, value in one["peak_mb"].items()}, flush=True)
        order = sorted(rows, key=lambda key: (list(NETWORKS).index(key[0]), *key[1:]))
        save(file, {"machine": machine(device), "rows": [rows[key] for key in order]})


if __name__ == "__main__":
    main()
