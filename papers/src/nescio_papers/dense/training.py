"""How a network of the study of pixels is trained: by cross-entropy, with Adam and one cycle of learning rates.

    python -m nescio_papers.dense.training unet --seeds 0 1 2 --scale quick --data DATA --work WORK --device cuda

trains networks alone, where there is a GPU; `nescio reproduce segmentation --work WORK` finds them anywhere. After each
epoch all that is needed to go on lies in WORK: the same command goes on from there. Where a machine is lent for a short
time, `--seconds` says when a network has to be ready: the cycle is then run through in that time, with fewer steps if
need be.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from nescio.data import replacing
from nescio.training import Recipe
from nescio_papers.dense import network, samples
from nescio_papers.dense.samples import Size
from nescio_papers.dense.scenes import EDGE, Scenes
from nescio_papers.runner.cells import State, digest, kept_tensors
from nescio_papers.runner.parts import Parts
from nescio_papers.runner.scale import get, size_of

RATE = 3e-3
SIZES = {"unet": samples.UNET, "fcn": samples.FCN}


def trained(
    kind: str,
    parts: Parts,
    work: Path,
    seed: int,
    say: Callable[[str], object],
    check: Callable[[], None] = lambda: None,
    seconds: float | None = None,
    bfloat16: bool = False,
) -> tuple[nn.Module, float]:
    """Return a trained network on the CPU and the seconds it took; it is read where it was trained before.

    Args:
        kind: "unet" or "fcn".
        parts: Data, scale and device.
        work: Where networks are kept.
        seed: Of the pictures, the first weights and the order.
        say: Is told how it goes.
        check: Raises when the time is over.
        seconds: As in `train`, the drawing of its pictures included.
        bfloat16: As in `train`.
    """
    size = size_of(SIZES[kind], parts.scale)
    file = folder(kind, parts, work) / f"{kind}-{seed}.pt"

    def make() -> State:
        now = _clock(parts.device)
        began = now()
        pictures = samples.training(parts, size, seed)
        left = None if seconds is None else max(seconds - (now() - began), 1.0)
        part = file.with_suffix(".part")
        return train(kind, pictures, size, seed, say, parts.device, part, left, bfloat16).state_dict()

    state, took = kept_tensors(file, make, check)
    file.with_suffix(".part").unlink(missing_ok=True)
    ready = network.made(kind, size.width)
    ready.load_state_dict(state)
    return ready.eval(), took


def _clock(device: str) -> Callable[[], float]:
    """The clock that `seconds` are counted by: on a processor that of its own time."""
    return time.perf_counter if torch.device(device).type == "cuda" else time.process_time


def steps(network: nn.Module) -> int:
    """Return how many steps a network was trained for, which its norms have counted."""
    return next(int(value) for name, value in network.state_dict().items() if name.endswith("num_batches_tracked"))


def folder(kind: str, parts: Parts, work: Path) -> Path:
    """Return where the networks of a kind and a scale are kept."""
    size = size_of(SIZES[kind], parts.scale)
    return work / "segmentation" / f"{kind}-{digest(str(size), str(parts.scale.bundled))}"


def train(
    kind: str,
    data: Scenes,
    size: Size,
    seed: int,
    say: Callable[[str], object],
    device: str = "cpu",
    part: Path | None = None,
    seconds: float | None = None,
    bfloat16: bool = False,
) -> nn.Module:
    """Train a network.

    Args:
        kind: "unet" or "fcn".
        data: What it learns from; bytes go to the device, and become numbers there batch by batch.
        size: How long, and in which batches.
        seed: Of the first weights and of the order.
        say: Is told how it goes.
        device: Where it is trained.
        part: A file in which the state after each epoch is kept; None keeps nothing.
        seconds: After which it has to be ready: the cycle of learning rates goes by the time where that is further on
            than the steps; on a processor these are seconds of its own time, which others do not take away. None: it
            takes the time that it takes.
        bfloat16: Whether convolutions are rounded to bfloat16, which some processors multiply several times faster.
    """
    now = _clock(device)
    with torch.random.fork_rng(devices=[device] if torch.device(device).type == "cuda" else []):
        torch.manual_seed(seed)
        model = network.made(kind, size.width).train().to(device).to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(model.parameters(), RATE)
        recipe = Recipe(epochs=size.epochs, lr=RATE, schedule="one-cycle")
        of_epoch = len(data) // size.batch
        parts: dict[str, Any] = {"model": model, "optimizer": optimizer}
        begin, before = 0, 0.0
        if part is not None and part.exists():
            kept = torch.load(part, weights_only=True)
            begin, before = kept.pop("epochs"), kept.pop("seconds")
            for name, state in kept.items():
                parts[name].load_state_dict(state)
        x = data.x.to(device).contiguous(memory_format=torch.channels_last)
        y = data.y.to(torch.uint8).to(device)  # classes and 255
        began = now() - before
        for epoch in range(begin, size.epochs):
            order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1000 * seed + epoch))
            total, made = torch.zeros((), device=device), 0
            for rows in order.to(device).split(size.batch)[:of_epoch]:
                share = 0.0 if seconds is None else (now() - began) / seconds
                if share >= 1.0:
                    break
                at = max(epoch * of_epoch + made, int(share * size.epochs * of_epoch))
                for group in optimizer.param_groups:
                    group["lr"] = recipe.rate(at, of_epoch)
                with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bfloat16):
                    logits = model(x[rows].float() / 255)
                loss = F.cross_entropy(logits.float(), y[rows].long(), ignore_index=EDGE)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
                made += 1
            if not made:
                break
            say(f"  epoch {epoch + 1} of {size.epochs}: loss {float(total) / made:.4f}")
            if part is not None:
                part.parent.mkdir(parents=True, exist_ok=True)
                states = {name: one.state_dict() for name, one in parts.items()}
                with replacing(part) as file:
                    torch.save({"epochs": epoch + 1, "seconds": now() - began, **states}, file)
    return model.eval()


def main(arguments: list[str] | None = None) -> None:
    """Train networks from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=tuple(SIZES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--scale", default="quick")
    parser.add_argument("--data", help="folder of data sets (default: NESCIO_DATA)")
    parser.add_argument("--work", required=True, help="where networks are kept")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, help="when a network has to be ready (default: no limit)")
    parser.add_argument("--bfloat16", action="store_true", help="convolutions in bfloat16")
    args = parser.parse_args(arguments)
    parts = Parts(get(args.scale), args.data, Path(args.work), args.device, False)
    for seed in args.seeds:
        made, took = trained(
            args.kind,
            parts,
            Path(args.work),
            seed,
            lambda line: print(line, file=sys.stderr),
            seconds=args.seconds,
            bfloat16=args.bfloat16,
        )
        print(f"{args.kind} {seed}: {steps(made):,} steps, {took:.1f} s", flush=True)


if __name__ == "__main__":
    main()
