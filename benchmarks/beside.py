"""nescio beside what else there is, in one run: the loop, vmap, BackPACK, Opacus, pytorch-ood, one forward pass.

    python benchmarks/beside.py                                # two cores: results/beside-cpu.json
    python benchmarks/beside.py --device cuda --batch 256      # results/beside-cuda.json
    python benchmarks/beside.py --clock cpu                    # CPU time, on a machine that others use too

Three questions, each asked of every package that can answer it, on the same network and the same batch:

    classes       norms of ∂ log p_c/∂θ for every input, class and parameter tensor
    one           the norm of one gradient an input over all parameters, that of the mean log-probability of all classes
    gradnorm      GradNorm: the L1 norm of that gradient at the last weight

Every answer is compared with the loop in float64 on a few inputs. A package that is missing, or cannot take a network,
is left out with the reason. ``forwards`` is time over that of one forward pass without gradients.
"""

from __future__ import annotations

import argparse
import copy
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from gradients import CLASSES, MODELS, _vmap_chunk, backpack, engine, extended_for_backpack, loop, vmap
from measure import device_in_tf32, machine, read, save, synchronize
from torch import Tensor, nn

import nescio
from nescio import trace
from nescio.types import NormSettings

FEW = 1
"""Inputs that the loop is timed on; its time an input does not depend on the batch."""
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def least(run: Callable[[], Any], device: torch.device, clock: Callable[[], float], repeats: int) -> float:
    """The least time of a few runs after one to warm up; a single run where that one takes seconds."""
    times = []
    for _ in range(repeats + 1):
        synchronize(device)
        start = clock()
        run()
        synchronize(device)
        times.append(clock() - start)
        if times[0] > 5:
            break
    return min(times[1:] or times)


def uniform_loss(logits: Tensor) -> Tensor:
    """Minus the mean log-probability of all classes, added up over inputs."""
    return -logits.log_softmax(1).mean(1).sum()


def one_by_one(model: nn.Module, x: Tensor, wanted: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Gradients of each input alone, by autograd."""
    return [torch.autograd.grad(uniform_loss(model(x[i : i + 1])), list(wanted)) for i in range(len(x))]


def looped_norm(model: nn.Module, x: Tensor, wanted: Sequence[Tensor]) -> Tensor:
    """The norm over all parameters, [N]."""
    return torch.stack([torch.cat([g.flatten() for g in own]).norm() for own in one_by_one(model, x, wanted)])


def looped_gradnorm(model: nn.Module, x: Tensor) -> Tensor:
    """GradNorm as its authors wrote it, [N]."""
    return torch.stack([g[0].abs().sum() for g in one_by_one(model, x, [last_weight(model)[1]])])


def last_weight(model: nn.Module) -> tuple[str, Tensor]:
    """The weight of the last linear layer."""
    return [(f"{name}.weight", part.weight) for name, part in model.named_modules() if isinstance(part, nn.Linear)][-1]


def engine_norm(model: nn.Module, x: Tensor, exclude: Sequence[str]) -> Tensor:
    """Ours, of one cotangent."""
    request = NormSettings("uniform", layers="tensor", exclude=tuple(exclude) or None)
    norms = trace.gradient_norms(nescio.Classifier(model), x, request)["uniform"].norms
    return norms[:, 0].square().sum(1).sqrt()


def watched_by_opacus(model: nn.Module) -> Any:
    """A copy that Opacus watches. It has no per-input gradients of batch norm, whose parameters are frozen there."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    copied = copy.deepcopy(model).train()
    for part in copied.modules():
        if isinstance(part, NORMS):
            part.eval().requires_grad_(False)
        elif isinstance(part, nn.Dropout):
            part.eval()
        if hasattr(part, "inplace"):
            part.inplace = False
    logging.getLogger("opacus").setLevel(logging.ERROR)
    return GradSampleModuleFastGradientClipping(copied, loss_reduction="sum", strict=False)


def opacus_norm(watched: Any, x: Tensor) -> Tensor:
    """Opacus's fast gradient clipping (ghost clipping): norms without the gradients of inputs."""
    uniform_loss(watched(x)).backward()
    norms = watched.get_norm_sample()
    watched.zero_grad()
    return norms


def pytorch_ood_gradnorm(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """GradNorm of pytorch-ood, of the last weight as in the paper; larger means a larger norm here."""
    from pytorch_ood.detector import GradNorm

    detector = GradNorm(model, param_filter=lambda name: name == last_weight(model)[0])
    return lambda x: -detector.predict(x)


class Bench:
    """One network and one batch: runs each way and writes a row of it."""

    def __init__(self, name: str, batch: int, device: torch.device, clock: Callable[[], float], repeats: int) -> None:
        torch.manual_seed(0)
        make, shape = MODELS[name]
        self.model = make().eval().to(device)
        self.x = torch.randn(batch, *shape, device=device)
        self.few = self.x[:FEW]
        self.double = copy.deepcopy(self.model).double()
        self.name, self.device, self.clock, self.repeats = name, device, clock, repeats
        self.rows: list[dict[str, Any]] = []

    def forward(self) -> None:
        """Time one forward pass."""
        with torch.no_grad():
            self.unit = least(lambda: self.model(self.x), self.device, self.clock, 3 * self.repeats)
        self._add("", "forward", self.unit, None)

    def looped(self, question: str, run: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """Time the loop on a few inputs, and return what it finds in float64."""
        each = least(lambda: run(self.model, self.few), self.device, self.clock, self.repeats) / len(self.few)
        self.base = each * len(self.x)
        self._add(question, "loop", self.base, 0.0)
        return run(self.double, self.few.double())

    def way(self, question: str, name: str, prepare: Callable[[], Callable[[], Tensor]], wanted: Tensor) -> None:
        """Time one way; ``prepare`` makes what is run."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = prepare()
                found = run().detach()[: len(wanted)].double().to(wanted)
                error = float((found - wanted).abs().amax() / wanted.abs().amax())
                spent = least(run, self.device, self.clock, self.repeats)
        except Exception as reason:
            text = " ".join(str(reason).split())[:160]
            self.rows.append(self._named(question, name) | {"left_out": f"{type(reason).__name__}: {text}"})
        else:
            self._add(question, name, spent, error)

    def _named(self, question: str, way: str) -> dict[str, Any]:
        return {"network": self.name, "batch": len(self.x), "question": question, "way": way}

    def _add(self, question: str, way: str, spent: float, error: float | None) -> None:
        row = self._named(question, way) | {"seconds": spent, "forwards": spent / self.unit}
        if error is not None:
            row |= {"times_the_loop": self.base / spent, "error": error}
        self.rows.append(row)


def measure(name: str, batch: int, device: torch.device, clock: Callable[[], float], repeats: int = 2) -> Any:
    """All ways on one network."""
    bench = Bench(name, batch, device, clock, repeats)
    model, x = bench.model, bench.x
    bench.forward()

    names = [n for n, _ in model.named_parameters()]
    order = trace.class_gradients(model, bench.few, layers="tensor").layers
    places = [names.index(n) for n in order]
    wanted = bench.looped("classes", loop)
    bench.way("classes", "nescio", lambda: lambda: engine(model, x), wanted)
    bench.way("classes", "vmap", lambda: lambda: vmap(model, x, _vmap_chunk(model, device))[:, :, places], wanted)

    def backpacked() -> Callable[[], Tensor]:
        watched = extended_for_backpack(model)
        return lambda: backpack(watched, x)[:, :, places]

    bench.way("classes", "backpack", backpacked, wanted)

    frozen = [n for n, part in model.named_modules() if isinstance(part, NORMS)]
    left = [f"{n}.{p}" for n in frozen for p in ("weight", "bias")]

    def chosen(m: nn.Module) -> list[Tensor]:
        return [p for n, p in m.named_parameters() if n not in left]

    wanted = bench.looped("one", lambda m, y: looped_norm(m, y, chosen(m)))
    bench.way("one", "nescio", lambda: lambda: engine_norm(model, x, left), wanted)

    def opacus() -> Callable[[], Tensor]:
        watched = watched_by_opacus(model)
        return lambda: opacus_norm(watched, x)

    bench.way("one", "opacus", opacus, wanted)

    wanted = bench.looped("gradnorm", looped_gradnorm)
    settings: dict[str, Any] = {"norm": 1, "layers": "tensor", "select": last_weight(model)[0], "progress": False}
    bench.way("gradnorm", "nescio", lambda: lambda: -nescio.score(model, x, "gradnorm", **settings), wanted)

    def detected() -> Callable[[], Tensor]:
        detect = pytorch_ood_gradnorm(model)
        return lambda: detect(x)

    bench.way("gradnorm", "pytorch-ood", detected, wanted)
    return bench.rows


def main(given: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--batch", type=int, help="inputs (default: 256 on a GPU, 8 on a CPU)")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="time that passes, or CPU time")
    parser.add_argument("--repeats", type=int, default=2, help="runs after one to warm up; the least counts")
    args = parser.parse_args(given)
    device = device_in_tf32(args.device)
    batch = args.batch or (256 if device.type == "cuda" else 8)
    clock = time.process_time if args.clock == "cpu" and device.type == "cpu" else time.perf_counter
    file = f"beside-{device.type}"
    before = read(file)  # networks that are not measured again stay
    for name in args.networks:
        own = measure(name, batch, device, clock, args.repeats)
        for row in own:
            print({key: round(v, 7) if isinstance(v, float) else v for key, v in row.items()}, flush=True)
        machines = before.get("machines", {}) | {name: machine(device) | {"clock": clock.__name__}}
        rows = [row for row in before.get("rows", []) if row["network"] != name] + own
        before = {"classes": CLASSES, "machines": machines, "rows": rows}
        save(file, before)


if __name__ == "__main__":
    main()
