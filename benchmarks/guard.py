"""What a verdict of the guard costs: `Guard.check` beside the forward pass alone, in one run.

    python benchmarks/guard.py [--device cuda]          # results/guard-cpu.json, or guard-cuda.json

Networks of torchvision with random weights at 1,000 classes, pictures of noise: the cost does not depend on either.
All are timed in turn, and the median of the ratios is reported: to a forward pass that leaves the model as it was,
which is what a score of the logits costs, and to a call of the bare model. Both take the batch as a whole; a check
takes as many pictures at once as suit the machine, so that on a CPU it can take less time than a forward pass.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
import torchvision
from measure import machine, save, synchronize

import nescio
from nescio.modes import predicting, preserved

NETWORKS = ("resnet18", "resnet50", "vit_b_16", "convnext_tiny", "efficientnet_b0", "swin_t")


def timed(work: Callable[[], None], device: torch.device) -> float:
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def measured(name: str, device: torch.device, batch: int, references: int, rounds: int) -> dict[str, object]:
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).eval().to(device)
    classifier = nescio.Classifier(model)
    reference = torch.rand(references, 3, 224, 224)
    began = time.perf_counter()
    guard = nescio.Guard(classifier).fit(reference.split(64), nuisances=None, progress=False)
    fit = time.perf_counter() - began
    x = torch.rand(batch, 3, 224, 224, device=device)

    def forward() -> None:
        with preserved(classifier), predicting(classifier):
            classifier.logits(x).cpu()

    def plain() -> None:
        with torch.no_grad():
            model(x).cpu()

    def check() -> None:
        guard.check(x, progress=False)

    plain(), forward(), check()
    rows = [(timed(forward, device), timed(check, device), timed(plain, device)) for _ in range(rounds)]
    ratios = [b / a for a, b, _ in rows]
    return {
        "network": name,
        "batch": batch,
        "reference": references,
        "fit_seconds": fit,
        "plain_seconds": statistics.median(c for _, _, c in rows),
        "forward_seconds": statistics.median(a for a, _, _ in rows),
        "check_seconds": statistics.median(b for _, b, _ in rows),
        "forward_passes": statistics.median(ratios),
        "plain_forward_passes": statistics.median(b / c for _, b, c in rows),
        "ratios": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--reference", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    batch, references = args.batch or (256 if on_gpu else 16), args.reference or (1000 if on_gpu else 400)
    rows = []
    for name in args.networks:
        rows.append(measured(name, device, batch, references, args.rounds))
        shown = rows[-1]
        print(
            f"{name:16} forward {1e3 * shown['forward_seconds']:8.1f} ms   check {1e3 * shown['check_seconds']:8.1f} ms"
            f"   {shown['forward_passes']:.2f} forward passes, {shown['plain_forward_passes']:.2f} of the bare model"
            f"   fit {shown['fit_seconds']:.1f} s",
            flush=True,
        )
        save(f"guard-{device.type}", {"machine": machine(device), "rows": rows})


if __name__ == "__main__":
    main()
