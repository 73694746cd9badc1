"""Exact norms at ten classes: how many inputs a second, in how many forward passes (F), and one input by itself.

    python benchmarks/exact.py                      # two cores: results/exact-cpu.json
    python benchmarks/exact.py --device cuda        # results/exact-cuda.json

ResNet18 at 32² (its aim on an H200: 10,000 inputs a second in bfloat16, 7,500 in TF32, one input in 5 ms) and the
networks whose attention looks through windows (aim: 12 F), with a plain vision transformer beside them. Inputs lie
channels last, as the engine takes them, and as they come; ``forwards`` is over the forward pass of the same inputs.
With ``bfloat16`` the gradients are in that type, and ``rank_correlation`` compares REGrad with float32's. With
``--trained`` (and NESCIO_DATA) ranks are also compared on a ResNet18 that is trained here, for half a minute on a GPU,
with the first 9,000 pictures of CIFAR-10's test set, on ``batch`` of the other thousand, with float64's.
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import torch
from measure import CLOCKS, device_in_tf32, machine, save, seconds
from torch import Tensor, nn

import nescio
from nescio import trace

SMALL = "resnet18"
LARGE = ("swin_t", "maxvit_t", "vit_b_32")


def network(name: str) -> nn.Module:
    """Build a network of ten classes with random weights."""
    torch.manual_seed(0)
    if name == SMALL:
        from nescio_papers import zoo

        return zoo.resnet18_cifar(10).eval()
    from torchvision import models

    model = models.get_model(name, weights=None, num_classes=10).eval()
    for head in (part for part in model.modules() if isinstance(part, nn.Linear) and not part.weight.any()):
        nn.init.normal_(head.weight, std=0.02)  # a head of zeros has gradients of zero below it
    return model


def row(name: str, x: Tensor, precision: str | None, repeats: int, clock: str) -> dict[str, Any]:
    """Measure one network on one batch."""
    model = network(name).to(x.device)
    settings: dict[str, Any] = {"precision": precision}

    def forward() -> None:
        with torch.no_grad():
            model(x)

    one = seconds(forward, x.device, 3 * repeats, clock=clock)
    spent = seconds(lambda: trace.class_gradients(model, x, **settings), x.device, repeats, clock=clock)
    numbers = {
        "network": name, "batch": len(x), "pixels": x.shape[-1], "precision": precision or "float32",
        "channels_last": x.is_contiguous(memory_format=torch.channels_last),
        "forward_ms": 1e3 * one, "ms": 1e3 * spent, "inputs_per_second": len(x) / spent, "forwards": spent / one,
    }  # fmt: skip
    if precision and len(x) > 1:
        scores = [
            nescio.score(model, x, "regrad", precision=p, tolerance=0.0, progress=False) for p in (precision, None)
        ]
        numbers["rank_correlation"] = correlation(*scores)
    return numbers


def ranks(batch: int, epochs: int, device: torch.device) -> dict[str, Any]:
    """REGrad of a trained network on pictures that it has not seen, in each type, beside that in float64."""
    from nescio import training
    from nescio_papers.datasets import load_set

    data = load_set("cifar10")
    x, y = ((data.x.float() - 127) / 64).to(device), data.y.to(device)
    model = network(SMALL).to(device)
    augment = training.augment.compose(training.augment.random_crop(4), training.augment.horizontal_flip())
    recipe = training.Recipe(epochs=epochs, lr=2e-3, schedule="one-cycle", augment=augment)
    training.train(model, (x[:9000], y[:9000]), recipe=recipe, progress=False)
    own, exact = x[9000 : 9000 + batch], copy.deepcopy(model).double()
    wanted = nescio.score(exact, own.double(), "regrad", tolerance=0.0, progress=False)
    numbers: dict[str, Any] = {
        "network": f"{SMALL}, trained", "batch": batch, "pixels": 32, "epochs": epochs,
        "accuracy": training.accuracy(model, x[9000:], y[9000:]),
    }  # fmt: skip
    for name, precision in (("float32", None), ("bfloat16", "bfloat16")):
        found = nescio.score(model, own, "regrad", precision=precision, tolerance=0.0, progress=False)
        numbers[f"rank_correlation_{name}"] = correlation(found, wanted)
        numbers[f"median_error_{name}"] = float((found / wanted - 1).abs().median())
        numbers[f"largest_error_{name}"] = float((found / wanted - 1).abs().max())
    return numbers


def correlation(a: Tensor, b: Tensor) -> float:
    """Rank correlation."""
    places = torch.stack([a.double(), b.double()]).argsort(1).argsort(1).double()
    return float(torch.corrcoef(places)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="*", default=[SMALL, *LARGE])
    parser.add_argument("--batch", type=int, help="inputs (default: 256 at 32², 32 at 224²; on a CPU 16, 2)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall", help="time that passes, or CPU time")
    parser.add_argument("--trained", type=int, metavar="EPOCHS", help="compare ranks on a network trained so long")
    args = parser.parse_args()
    device = device_in_tf32(args.device)
    gpu = device.type == "cuda"
    rows: list[dict[str, Any]] = []
    for name in args.networks:
        small = name == SMALL
        batch = args.batch or ((256 if gpu else 16) if small else (32 if gpu else 2))
        side = 32 if small else 224
        x = torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(0)).to(device)
        last = x.contiguous(memory_format=torch.channels_last)
        runs = [(last, None), (x, None)] if small else [(x, None)]
        if small and gpu:
            runs = [(last, "bfloat16"), *runs]
        if small:
            runs.append((x[:1], None))
        for own, precision in runs:
            rows.append(row(name, own, precision, args.repeats, args.clock))
            print({key: round(v, 4) if isinstance(v, float) else v for key, v in rows[-1].items()}, flush=True)
            save(f"exact-{device.type}", {"machine": machine(device), "clock": args.clock, "rows": rows})
    if args.trained:
        rows.append(ranks(args.batch or (512 if gpu else 16), args.trained, device))
        print(rows[-1], flush=True)
        save(f"exact-{device.type}", {"machine": machine(device), "clock": args.clock, "rows": rows})


if __name__ == "__main__":
    main()
