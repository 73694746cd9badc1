"""How close to the limit of the device: exact norms, bfloat16, many classes, smoothing, the other methods, and sweeps.

    python benchmarks/gpu.py                                        # one CUDA device, all parts
    python benchmarks/gpu.py --device cpu                           # a few of them in sizes for a CPU
    python benchmarks/gpu.py --device cpu --quick                   # does it run at all?
    python benchmarks/gpu.py --weights cnn=FILE resnet18=FILE --images MNIST.npz CIFAR.npz --lite FILE --pictures NPZ

One table for each part, and one JSON file that is written again after every row; with --parts the other parts of the
file stay as they are, and "later" says what the new ones were measured on. What is compared in a row was measured
in the same run on the same inputs; ``forwards`` is time over that of one forward pass of the same batch without
gradients. What is slow (the papers' loop, exact norms of 1,000 classes) is timed on a few inputs: its time an input
does not depend on the batch. A measurement that fails says why in its row. benchmarks/README.md explains the numbers.
"""

from __future__ import annotations

import argparse
import copy
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import gradients
import numpy as np
import perturbations
import torch
from measure import machine, peak_bytes, read, save, seconds, synchronize
from torch import Tensor, nn
from torch.nn import functional

import nescio
from nescio import trace
from nescio_papers import zoo

Row = dict[str, Any]
Task = tuple[Row, Callable[[], Iterator[Row]]]
"""What names a group of rows, and what measures them."""
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
STATISTICS = {1: ((0.1307,), (0.3081,)), 3: CIFAR}
"""Mean and standard deviation of pictures with values in [0, 1], by channels."""
LITE = (tuple(v / 255 for v in (123.675, 116.28, 103.53)), (57.63 / 255,) * 3)
DECAY, SIGMA = 0.3, 0.02


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    models: tuple[str, ...] = ("cnn", "resnet18", "vit")
    main: str = "resnet18"
    batches: tuple[int, ...] = (256, 16, 1)
    peers: tuple[str, ...] = ("vmap", "backpack")
    compared: int = 128
    """Inputs whose ranks are compared with float64."""
    large: tuple[str, ...] = ("resnet50", "vit_b_16", "efficientnet_b0")
    pixels: int = 224
    classes: tuple[int, ...] = (100, 1000)
    inputs: int = 16
    heavy: int = 2
    """Inputs for exact norms of the most classes."""
    pictures: int = 64
    smoothed: int = 48
    copies: tuple[int, int] = (100, 1000)
    """Noisy copies in the paper, and in the reference."""
    thousand: int = 1000
    draws: tuple[int, tuple[int, ...]] = (100, (256, 16))
    square: int = 8192
    """Side of the matrices whose product shows what the device can do."""
    sweep_batch: int = 64
    sweep: dict[str, tuple[int, ...]] = field(
        default_factory=lambda: {
            "classes": (10, 100, 1000),
            "samples": (0, 8, 32, 100),
            "batch": (1, 8, 64, 256, 1024),
            "pixels": (32, 64, 128, 224),
        }
    )


CPU = Sizes(
    batches=(16,), sweep_batch=2,
    sweep={"classes": (10, 30, 100, 300), "samples": (0, 2, 8, 32), "batch": (1, 4, 16, 64), "pixels": (32, 64, 128)},
)  # fmt: skip
QUICK = Sizes(
    models=("cnn",), main="cnn", batches=(2,), peers=(), compared=4, large=("squeezenet1_1",), pixels=32,
    classes=(4, 50), inputs=2, heavy=2, pictures=2, smoothed=2, copies=(2, 3), thousand=2, draws=(2, (2,)),
    square=64, sweep_batch=1, sweep={"classes": (4, 40), "samples": (0, 2), "batch": (1, 2), "pixels": (12, 16)},
)  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """The device, how much is measured on it, and the files that were given."""

    device: torch.device
    sizes: Sizes
    weights: dict[str, str]
    images: Sequence[str]
    lite: str
    pictures: Sequence[str]

    def subject(self, name: str, count: int, wrapped: bool = True) -> tuple[nn.Module, Tensor]:
        """A model of ten classes that takes values in [0, 1] (or, bare, normalised ones), and inputs for it.

        Given images that fit are taken in turn; without any the inputs are normal noise once they are normalised.
        """
        torch.manual_seed(0)
        make, shape = gradients.MODELS[name]
        network = make()
        if name in self.weights:
            network.load_state_dict(weights(self.weights[name]))
        mean, std = STATISTICS[shape[0]]
        model = zoo.Normalised(network, mean, std).eval().to(self.device)
        fitting = [own for file in self.images if (own := pictures(file, count)).shape[1:] == shape]
        noise = torch.randn(count, *shape, device=self.device)
        x = fitting[0].to(self.device) if fitting else model.mean + model.std * noise
        return (model, x) if wrapped else (network, (x - model.mean) / model.std)

    def made(self, name: str, classes: int, count: int, pixels: int) -> tuple[nn.Module, Tensor]:
        """A model with random weights for so many classes and pictures of this size, and normal noise for it."""
        torch.manual_seed(0)
        if name == "cnn":
            model: nn.Module = zoo.small_cnn(1, pixels, classes)
        elif name == "resnet18":
            model = zoo.resnet18_cifar(classes)
        else:
            from torchvision import models

            model = getattr(models, name)(num_classes=classes)
        for layer in model.modules():  # a transformer's last one begins with zeros, and then all gradients are zero
            if isinstance(layer, nn.Linear) and not layer.weight.any():
                nn.init.trunc_normal_(layer.weight, std=0.02)
        x = torch.randn(count, 1 if name == "cnn" else 3, pixels, pixels, device=self.device)
        return model.eval().to(self.device), x

    def forward(self, model: nn.Module, x: Tensor) -> float:
        """Seconds of one plain forward pass."""
        with torch.no_grad():
            return seconds(lambda: model(x), self.device, repeats=10, budget=1.0)

    def cost(self, run: Callable[[], Any]) -> tuple[float, float]:
        """Seconds, and GB at the peak of the first run: before anything is recorded, as memory that is taken."""
        trace.replay.clear()
        peak = peak_bytes(run, self.device)
        return seconds(run, self.device, budget=1.0), peak / 1e9

    def once(self, run: Callable[[], Any]) -> tuple[float, Any]:
        """Seconds of a single run, and its result."""
        synchronize(self.device)
        start = perf_counter()
        result = run()
        synchronize(self.device)
        return perf_counter() - start, result

    def training_gb(self, model: nn.Module, x: Tensor) -> float:
        """Memory of a training step without an optimizer: what a user of the model has had room for."""
        model = copy.deepcopy(model).train()

        def step() -> None:
            output = model(x)
            functional.cross_entropy(output, output.new_zeros(len(x), dtype=torch.long)).backward()

        return peak_bytes(step, self.device) / 1e9


def weights(file: str) -> dict[str, Tensor]:
    """A state dict in float32, whatever it was stored in; of a network with its normalisation the network's own."""
    state = torch.load(file, map_location="cpu", weights_only=True)
    if {"mean", "std"} < set(state):
        state = {name.removeprefix("network."): t for name, t in state.items() if name.startswith("network.")}
    return {name: t.float() if t.is_floating_point() else t for name, t in state.items()}


def pictures(file: str, count: int) -> Tensor:
    """The file's pictures (uint8 [N, H, W, 3] or [N, H, W]) in [0, 1], from the start again where there are too few.

    They lie in memory as a `DataLoader` hands them out, channel after channel.
    """
    with np.load(file) as archive:
        own = torch.from_numpy(archive[archive.files[0]])
    own = own.unsqueeze(3) if own.dim() == 3 else own
    return own[torch.arange(count) % len(own)].permute(0, 3, 1, 2).contiguous().float() / 255


def regrad(table: nescio.ClassGradients, power: int = 2) -> Tensor:
    """The score without smoothing, Σ_c √p_c (Σ_l a_l ‖g_cl‖²)^(power/2), written out."""
    steps = torch.arange(1 - table.norms.shape[2], 1, dtype=torch.float64)
    squares = (table.norms.square() * (DECAY * steps).exp()).sum(2)
    return (table.probabilities.sqrt() * squares ** (power / 2)).sum(1)


def agreement(found: Tensor, expected: Tensor) -> Row:
    """Spearman's rank correlation, and relative errors."""
    ranks = torch.stack([found, expected]).argsort(1).argsort(1).double()
    errors = (found - expected).abs() / expected.abs()
    return {
        "rho": torch.corrcoef(ranks)[0, 1].item(), "median_error": errors.quantile(0.5).item(),
        "mean_error": errors.mean().item(), "max_error": errors.max().item(),
    }  # fmt: skip


# --- exact, ten classes ----------------------------------------------------------------------------------------------


def exact(b: Bench) -> Iterator[Task]:
    """All layers, all of ten classes: nescio, the loop, and what else there is; GradNorm beside other packages' way."""
    for name in b.sizes.models:
        for batch in b.sizes.batches:
            yield {"model": name, "batch": batch}, partial(_exact, b, name, batch)
            yield {"model": name, "batch": batch}, partial(_gradnorm, b, name, batch)


def _exact(b: Bench, name: str, batch: int) -> Iterator[Row]:
    peers = [peer for peer in b.sizes.peers if peer == "vmap" or find_spec(peer)]
    found = gradients.measure(name, batch, b.device, peers)
    model, x = b.subject(name, batch, wrapped=False)
    step = b.training_gb(model, x)
    for way, own in found["ways"].items():
        if "ratio" not in own:
            yield {"way": way, "failed": own["error"]}
        elif way == "loop":  # its memory is that of one input
            yield {"way": way, **own}
        else:
            yield {"way": way, **own, "training_ratio": own["peak_gb"] / step if step else None}
    if b.device.type == "cuda":  # what recording brings: the same, launched kernel by kernel
        time = seconds(lambda: (trace.replay.clear(), gradients.engine(model, x)), b.device)
        base = batch / found["ways"]["loop"]["inputs_per_second"]
        yield {
            "way": "nescio, not recorded", "inputs_per_second": batch / time, "ratio": base / time,
            "forwards": time / found["forward_seconds"],
        }  # fmt: skip


def _gradnorm(b: Bench, name: str, batch: int) -> Iterator[Row]:
    """The last weight's L1 norm; ``ratio`` is against the original's way, one picture at a time through the model."""
    model, x = b.subject(name, batch, wrapped=False)
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    select = next(n for n, p in model.named_parameters() if p is head.weight)
    forward, few = b.forward(model, x), x[:8]
    settings: Row = {"norm": 1, "layers": "tensor", "select": select, "as_published": True}
    ways: dict[str, tuple[Tensor, Callable[[Tensor], Tensor]]] = {
        "gradnorm, one by one": (few, partial(gradnorm_one_by_one, model, head)),
        "gradnorm, OpenOOD": (x, partial(gradnorm_of_features, model, head)),
        "gradnorm, nescio": (x, lambda y: nescio.score(model, y, "gradnorm", **settings)),
        "gradnorm, pytorch-ood": (x, partial(gradnorm_vmap, model, select)),
    }
    base = None
    for way, (own, run) in ways.items():
        time, peak = b.cost(partial(run, own))
        each = time / len(own)
        base = base or (each, run(few).double().cpu())
        error = (run(few).double().cpu() / base[1] - 1).abs().max().item()
        yield {
            "way": way, "inputs_per_second": 1 / each, "ratio": base[0] / each, "forwards": each * batch / forward,
            "peak_gb": peak, "error": error,
        }  # fmt: skip


def _to_uniform(logits: Tensor) -> Tensor:
    """Cross entropy to the uniform prediction."""
    return -logits.log_softmax(-1).mean()


def gradnorm_one_by_one(model: nn.Module, head: nn.Linear, x: Tensor) -> Tensor:
    """The original's way, and pytorch-ood's without `torch.func`: forward and backward for each picture."""
    found = []
    for picture in x:
        model.zero_grad()
        _to_uniform(model(picture[None])).backward()
        found.append(head.weight.grad.abs().sum())
    model.zero_grad()
    return torch.stack(found).cpu()


def gradnorm_vmap(model: nn.Module, select: str, x: Tensor) -> Tensor:
    """pytorch-ood's way (`GradNormKL`): per-sample gradients of all parameters with `torch.func`, then a filter."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(theta: dict[str, Tensor], picture: Tensor) -> Tensor:
        return _to_uniform(torch.func.functional_call(model, theta, (picture[None],)))

    return torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)[select].abs().sum((1, 2)).cpu()


def gradnorm_of_features(model: nn.Module, head: nn.Linear, x: Tensor) -> Tensor:
    """OpenOOD's way: features in a batch without gradients, then the last layer forward and backward one by one."""
    features: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].detach()))
    with torch.no_grad():
        model(x)
    hook.remove()
    return gradnorm_one_by_one(head, head, features[0])


# --- bfloat16 --------------------------------------------------------------------------------------------------------


def bf16(b: Bench) -> Iterator[Task]:
    """Gradients in bfloat16: how much faster, and whether the ranks hold."""
    for name in b.sizes.models:
        yield {"model": name, "batch": b.sizes.batches[0]}, partial(_bf16, b, name)


def _bf16(b: Bench, name: str) -> Iterator[Row]:
    model, x = b.subject(name, b.sizes.batches[0])
    few, forward = x[: b.sizes.compared], b.forward(model, x)
    expected = regrad(trace.class_gradients(copy.deepcopy(model).double(), few.double()))
    base = None
    for precision in (None, "bfloat16"):
        time, peak = b.cost(partial(trace.class_gradients, model, x, precision=precision))
        base = base or time
        found = regrad(trace.class_gradients(model, few, precision=precision))
        yield {
            "precision": precision or "float32", "inputs_per_second": len(x) / time, "ratio": base / time,
            "forwards": time / forward, "peak_gb": peak, "trained": name in b.weights, **agreement(found, expected),
        }  # fmt: skip


# --- many classes ----------------------------------------------------------------------------------------------------


def classes(b: Bench) -> Iterator[Task]:
    """Time by the number of classes, exact and estimated."""
    for name in b.sizes.large:
        for count in b.sizes.classes:
            yield {"model": name, "classes": count}, partial(_classes, b, name, count)


def _classes(b: Bench, name: str, count: int) -> Iterator[Row]:
    base = None
    for rows in ("exact", "auto"):
        inputs = b.sizes.heavy if rows == "exact" and count == max(b.sizes.classes) else b.sizes.inputs
        model, x = b.made(name, count, inputs, b.sizes.pixels)
        time, peak = b.cost(partial(trace.class_gradients, model, x, classes=rows))
        base = base or time / inputs
        yield {
            "rows": rows, "inputs": inputs, "ms": 1e3 * time / inputs, "ratio": base * inputs / time,
            "forwards": time / b.forward(model, x), "peak_gb": peak,
        }  # fmt: skip


def photographs(b: Bench) -> Iterator[Task]:
    """How good the estimate is for ImageNet weights and photographs, and its time beside the exact one's."""
    for photos in b.pictures:
        yield {"model": "efficientnet-lite0", "pictures": Path(photos).stem}, partial(_photographs, b, photos)


def _photographs(b: Bench, photos: str) -> Iterator[Row]:
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(weights(b.lite))
    model = zoo.Normalised(network, *LITE).eval().to(b.device)
    x = pictures(photos, b.sizes.pictures).to(b.device)
    truth: list[nescio.Scored] = []
    base = 0.0
    for rows in ("exact", "auto", 32, 48):
        settings: Row = {"layer_decay": DECAY, "samples": 0, "classes": rows}
        methods = [nescio.scores.get("regrad", power=power, **settings) for power in (2, 1)]
        run = partial(nescio.score, model, x, methods, report=True)
        found = list(run().values())  # warms up; a second run records
        time = b.once(run)[0] if rows == "exact" else seconds(run, b.device)
        truth, base = truth or found, base or time
        for power, own, expected in zip((2, 1), found, truth, strict=True):
            row = {"rows": rows, "power": power, "inputs": len(x), "ms": 1e3 * time / len(x), "ratio": base / time}
            if own.error is not None:
                row |= {"reported_median": own.error.median().item(), "reported_max": own.error.max().item()}
            yield {**row, **agreement(own.scores, expected.scores)}


# --- smoothing -------------------------------------------------------------------------------------------------------


def smoothing(b: Bench) -> Iterator[Task]:
    """The default score against one with 1,000 copies, and its time."""
    for wrapped in (True, False):
        key = {"model": b.sizes.main, "inputs are": "in [0, 1]" if wrapped else "normalised"}
        yield key, partial(_smoothing, b, wrapped)


def _smoothing(b: Bench, wrapped: bool) -> Iterator[Row]:
    few, many = b.sizes.copies
    model, x = b.subject(b.sizes.main, b.sizes.smoothed, wrapped)
    plain: Row = {"layer_decay": DECAY, "sigma": SIGMA, "classes": "exact", "tolerance": 0.0}
    reference = nescio.score(model, x, "regrad", samples=many, seed=7, **plain)
    forward = b.forward(model, x)
    for seed in (0, 1):  # the first warms up
        time, found = b.once(partial(nescio.score, model, x, "regrad", samples=few, seed=seed, **plain))
        yield {
            "way": f"{few} copies, seed {seed}", "forwards": time / forward, **agreement(found, reference),
            "seconds_1000": 1e3 * time / len(x),
        }  # fmt: skip
    default = partial(nescio.score, model, method="regrad", sigma=SIGMA)  # as it comes but for the paper's noise
    found = default(x=x)
    y = b.subject(b.sizes.main, b.sizes.batches[0], wrapped)[1]
    forwards = b.cost(partial(default, x=y))[0] / b.forward(model, y)
    y = y[torch.arange(b.sizes.thousand, device=b.device) % len(y)]
    default(x=y)
    time = b.once(partial(default, x=y))[0] * 1e3 / len(y)
    yield {"way": "default", "forwards": forwards, **agreement(found, reference), "seconds_1000": time}
    if wrapped:
        loop = partial(trace.reference.class_gradients, model, x[:1], sigma=SIGMA, samples=few)
        yield {"way": "the loop", "seconds_1000": 1e3 * seconds(loop, b.device, budget=1.0)}


def tolerance(b: Bench) -> Iterator[Task]:
    """Layers of little weight left to an estimate, without noisy copies; errors against every layer exact."""
    yield {"model": b.sizes.main, "batch": b.sizes.batches[0]}, partial(_tolerance, b)


def _tolerance(b: Bench) -> Iterator[Row]:
    model, x = b.subject(b.sizes.main, b.sizes.batches[0])
    loop = seconds(partial(trace.reference.class_gradients, model, x[:2]), b.device, budget=10.0) / len(x[:2])
    forward, exact = b.forward(model, x), None
    for limit in (0.0, 2e-2):
        run = partial(nescio.score, model, x, "regrad", layer_decay=DECAY, samples=0, tolerance=limit, report=True)
        time = seconds(run, b.device, budget=10.0)
        found = run()
        exact = found.scores if exact is None else exact
        row: Row = {"way": f"no copies, tolerance {limit:g}", "forwards": time / forward}
        if found.check is not None:
            row |= {"checked": found.check.inputs, "checked_worst": found.check.worst, "exact": found.check.exact}
        yield {**row, "ratio": loop * len(x) / time, **agreement(found.scores, exact)}


# --- the other methods -----------------------------------------------------------------------------------------------


def others(b: Bench) -> Iterator[Task]:
    """Scores from draws beside the forward passes that they cannot do without."""
    draws, batches = b.sizes.draws
    for name in b.sizes.models:
        for batch in batches:
            yield {"model": name, "batch": batch, "draws": draws}, partial(_others, b, name, batch, draws)


def _others(b: Bench, name: str, batch: int, draws: int) -> Iterator[Row]:
    for method, own in perturbations.measure(name, batch, draws, b.device)["methods"].items():
        yield {"method": method, **own}


# --- for the plot ----------------------------------------------------------------------------------------------------


def sweeps(b: Bench) -> Iterator[Task]:
    """Time an input against classes, noisy copies, batch and the pictures' size, one at a time."""
    for against, values in b.sizes.sweep.items():
        for value in values:
            yield {"against": against, "value": value}, partial(_sweep, b, **{against: value})


def _sweep(
    b: Bench, classes: int | None = None, samples: int = 0, batch: int | None = None, pixels: int | None = None
) -> Iterator[Row]:
    count = batch or b.sizes.sweep_batch
    model, x = b.made(b.sizes.main, classes or gradients.CLASSES, count, pixels or b.sizes.sweep["pixels"][0])
    forward = b.forward(model, x)
    for rows in ("exact", 32) if classes else ("exact",):
        run = partial(trace.class_gradients, model, x, classes=rows, sigma=SIGMA, samples=samples)
        time, _ = b.cost(run)
        yield {"rows": rows, "ms": 1e3 * time / count, "forward_ms": 1e3 * forward / count, "forwards": time / forward}


# --- memory, rates, kernels ------------------------------------------------------------------------------------------


def memory(b: Bench) -> Iterator[Task]:
    """Peak memory of exact norms beside that of a training step."""
    ten = (b.sizes.main, gradients.CLASSES, b.sizes.batches[0], b.sizes.sweep["pixels"][0])
    many = (b.sizes.large[0], max(b.sizes.classes), b.sizes.heavy, b.sizes.pixels)
    for name, count, batch, pixels in (ten, many):
        key = {"model": name, "classes": count, "batch": batch}
        yield key, partial(_memory, b, name, count, batch, pixels)


def _memory(b: Bench, name: str, count: int, batch: int, pixels: int) -> Iterator[Row]:
    model, x = b.made(name, count, batch, pixels)
    step = b.training_gb(model, x)
    for limit in (None, 1.5 * step or None):
        peak = peak_bytes(partial(trace.class_gradients, model, x, memory_gb=limit), b.device) / 1e9
        yield {
            "memory_gb": limit,
            "peak_gb": peak,
            "training_gb": step,
            "training_ratio": peak / step if step else None,
        }


def rates(b: Bench) -> Iterator[Task]:
    """Arithmetic a second: of a large matrix product, of a forward pass, and of exact norms by what they need."""
    yield {"model": b.sizes.main, "batch": b.sizes.batches[0]}, partial(_rates, b)


def _rates(b: Bench) -> Iterator[Row]:
    from torch.utils.flop_counter import FlopCounterMode

    model, x = b.subject(b.sizes.main, b.sizes.batches[0], wrapped=False)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    once, needed = counter.get_total_flops(), 1 + 1.4 * gradients.CLASSES
    square = torch.randn(b.sizes.square, b.sizes.square, device=b.device)
    work = {
        "matrix product": (2 * b.sizes.square**3, seconds(lambda: square @ square, b.device, repeats=10, budget=1.0)),
        "forward": (once, b.forward(model, x)),
        "exact norms": (needed * once, b.cost(partial(trace.class_gradients, model, x))[0]),
    }
    for what, (flops, time) in work.items():
        yield {"what": what, "tflop": flops / 1e12, "tflop_per_second": flops / time / 1e12}


def profile(b: Bench) -> Iterator[Task]:
    """Where the time of exact norms goes: the kernels (on a CPU: operations) that take most of it."""
    yield {"model": b.sizes.main, "batch": b.sizes.batches[0]}, partial(_profile, b)


def _profile(b: Bench) -> Iterator[Row]:
    from torch.profiler import ProfilerActivity

    model, x = b.subject(b.sizes.main, b.sizes.batches[0], wrapped=False)
    run = partial(trace.class_gradients, model, x)
    b.cost(run)  # warms up, and records
    on_gpu = b.device.type == "cuda"
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as found:
        b.once(run)
    times = {e.key: (e.self_device_time_total if on_gpu else e.self_cpu_time_total) for e in found.key_averages()}
    total = sum(times.values())
    for kernel, time in sorted(times.items(), key=lambda item: -item[1])[:15]:
        yield {"kernel": kernel[:90], "ms": time / 1e3, "share": time / total}


PARTS: dict[str, Callable[[Bench], Iterator[Task]]] = {
    "exact": exact, "smoothing": smoothing, "tolerance": tolerance, "bf16": bf16, "memory": memory,
    "classes": classes, "photographs": photographs, "sweeps": sweeps, "others": others,
    "rates": rates, "profile": profile,
}  # fmt: skip


def collect(key: Row, measure: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """The rows with what names them; an error becomes a row and ends them."""
    try:
        for row in measure():
            yield {**key, **row}
    except Exception as error:
        yield {**key, "failed": f"{type(error).__name__}: {str(error)[:300]}"}
    trace.replay.clear()
    gc.collect()
    torch.cuda.empty_cache()


def table(rows: list[Row]) -> str:
    """Rows for people."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    lines = [heads, *([_cell(row.get(head)) for head in heads] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join("  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else str(value)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), help="default: all, on a CPU tolerance and sweeps")
    parser.add_argument("--quick", action="store_true", help="tiny models and few inputs: does it run?")
    parser.add_argument("--name", help="name of the result file; default: gpu or cpu")
    parser.add_argument(
        "--weights", nargs="*", default=os.environ.get("NESCIO_WEIGHTS", "").split(), metavar="MODEL=FILE",
        help="state dicts of trained networks (or in NESCIO_WEIGHTS)",
    )  # fmt: skip
    parser.add_argument(
        "--images", nargs="*", default=[], help="pictures for them: .npz with uint8 [N, 32, 32, 3] or [N, 28, 28]"
    )
    parser.add_argument("--lite", default="", help="weights of EfficientNet-Lite0 (package efficientnet_lite_pytorch)")
    parser.add_argument("--pictures", nargs="*", default=[], help="pictures for it: .npz with uint8 [N, 224, 224, 3]")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    given = dict(pair.split("=", 1) for pair in args.weights)
    on_gpu = device.type == "cuda"
    sizes = QUICK if args.quick else Sizes() if on_gpu else CPU
    names = args.parts or (list(PARTS) if on_gpu or args.quick else ["tolerance", "sweeps"])
    bench = Bench(device, sizes, given, args.images, args.lite, args.pictures)
    name = args.name or device.type.replace("cuda", "gpu")
    own = machine(device)
    kept = read(name) if args.parts else {}
    parts: dict[str, list[Row]] = kept.get("parts", {})
    took: dict[str, float] = kept.get("seconds", {})
    later: Row = kept.get("later", {})
    result = {
        "machine": kept.get("machine", own), "later": later, "quick": args.quick, "sweep_batch": sizes.sweep_batch,
        "seconds": took, "parts": parts,
    }  # fmt: skip
    for part in names:
        start = perf_counter()
        rows = parts[part] = []
        if kept:
            later[part] = own
        for key, measure in PARTS[part](bench):
            for row in collect(key, measure):
                rows.append(row)
                took[part] = perf_counter() - start
                save(name, result)  # what is measured is kept, whatever comes
        print(f"\n{part}, {perf_counter() - start:.0f} s: {PARTS[part].__doc__}\n{table(rows)}", flush=True)
    print("\nsaved", save(name, result))


if __name__ == "__main__":
    main()
