"""Logits under noisy parameters, z(x; θ + σε_s), at little more than the cost of the forward passes.

The noisy parameters are views into one buffer that every draw fills anew, so that a draw takes a few kernels and no new
memory. On a GPU a small batch spends its time in launching kernels, so there

- the forward pass is recorded once as a CUDA graph over the buffer, and replayed for every draw;
- a batch of few inputs takes several draws at once with `torch.func.vmap` over stacked parameters, for as long as that
  gives the plain pass's numbers and is faster. (Convolutions become grouped ones, which may be slower. On a CPU they
  are, and it has no launches to save: it takes one draw after another.)

Both are left, for the plain loop, where a model cannot be followed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import predicting, preserved
from nescio.quantities.chunks import at_once, in_chunks
from nescio.types import ModelError, SampledLogits

_FEW = 64  # inputs: with more of them a single draw keeps a GPU busy
_STACKED = 2**26  # elements of stacked parameters at once: 256 MiB
_ALIGNED = 64  # elements: 256 bytes, at which CUDA's allocator too begins a tensor
_RECORDED = 16  # draws that make up for the time of a recording


def noisy_logits(classifier: Classifier, x: Inputs, request: SampledLogits, chunk: int | None) -> Tensor:
    """Logits under each draw of the parameters, float64 [S, N, C]."""
    parameters = {name: parameter.detach() for name, parameter in classifier.parameters().items()}
    if not parameters:
        raise ModelError(
            "expected a model with floating-point parameters to add noise to, got one without any; "
            "use a score that needs none, such as perturb_x or entropy"
        )
    with predicting(classifier):
        size = at_once(x, chunk)
        one = _single(classifier, x, _Noisy(parameters, request, 1), size)
        group = _group(x, parameters, size, request.samples)
        parts = _grouped(classifier, x, _Noisy(parameters, request, group), one) if group > 1 else []
        parts += [one(draw) for draw in range(sum(map(len, parts)), request.samples)]
        return torch.cat(parts).to("cpu", torch.float64)


class _Noisy:
    """θ + σε of several draws, stacked, always in the same memory.

    The generators, on the parameters' devices, know the seed and the draw alone. On a CPU every parameter's noise is
    drawn by itself, elsewhere all at once.
    """

    def __init__(self, parameters: dict[str, Tensor], request: SampledLogits, draws: int) -> None:
        self.request, self.draws, self.parameters = request, draws, parameters
        parts: dict[str, slice] = {}
        ends: dict[torch.device, int] = {}
        for name, parameter in parameters.items():
            start = -(-ends.get(parameter.device, 0) // _ALIGNED) * _ALIGNED
            ends[parameter.device] = start + parameter.numel()
            parts[name] = slice(start, ends[parameter.device])
        self.noise = {d: torch.empty(draws, end, dtype=torch.float32, device=d) for d, end in ends.items()}
        self.views = {n: self.noise[p.device][:, parts[n]].view(draws, *p.shape) for n, p in parameters.items()}
        self.values = {n: view.to(parameters[n].dtype) for n, view in self.views.items()}  # for float32 the view itself

    def stacked(self, first: int, stop: int) -> dict[str, Tensor]:
        """The parameters of these draws, [stop − first, ...]; they last until the next call."""
        count = stop - first
        for row, draw in enumerate(range(first, stop)):
            mixed = int(np.random.SeedSequence([self.request.seed, draw]).generate_state(1, np.uint64)[0])
            for device, noise in self.noise.items():
                generator = torch.Generator(device).manual_seed(mixed)
                alone = [view[row] for view in self.views.values() if view.device == device]
                for part in alone if device.type == "cpu" else [noise[row]]:
                    part.normal_(generator=generator)
        for noise in self.noise.values():
            noise[:count].mul_(self.request.size)
        found = {name: value[:count] for name, value in self.values.items()}
        if cast := [n for n, value in self.values.items() if value is not self.views[n]]:
            torch._foreach_copy_([found[n] for n in cast], [self.views[n][:count] for n in cast])
        if count == 1:  # of the same shapes: one kernel for many parameters
            torch._foreach_add_([value[0] for value in found.values()], list(self.parameters.values()))
        else:
            for name, value in found.items():
                value.add_(self.parameters[name])
        return found


def _single(classifier: Classifier, x: Inputs, noisy: _Noisy, size: int) -> Callable[[int], Tensor]:
    """The function from a draw to its logits [1, N, C], in memory of their own."""
    count = inputs.size(x)

    def fill(draw: int) -> dict[str, Tensor]:
        return {name: value[0] for name, value in noisy.stacked(draw, draw + 1).items()}

    def plain(draw: int) -> Tensor:
        values = fill(draw)

        def step(start: int, stop: int) -> Tensor:
            return classifier.functional(values, inputs.take(x, slice(start, stop)))

        return torch.cat(in_chunks(count, size, step))[None]

    if count > size or noisy.request.samples < _RECORDED or not _is_gpu(list(noisy.noise)):
        return plain
    values, expected = fill(0), plain(0)
    with preserved(classifier):
        replay = _recorded(lambda: classifier.functional(values, x), expected.device)
    if replay is None:
        return plain

    def replayed(draw: int) -> Tensor:
        fill(draw)
        return replay()[None].clone()

    return replayed if _agree(replayed(0), expected) else plain


def _recorded(run: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor] | None:
    """A function that does again what `run` did on the GPU, without launching it kernel by kernel; None if none can."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # libraries set themselves up on a stream before they can be recorded there
                run()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                result = run()
    except Exception:  # the model needs the host in between, or memory
        torch.cuda.synchronize(device)
        return None

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


def _grouped(classifier: Classifier, x: Inputs, noisy: _Noisy, one: Callable[[int], Tensor]) -> list[Tensor]:
    """Logits of the first draws, several at once, for as long as that is right and faster than one at a time."""
    group, samples, device = noisy.draws, noisy.request.samples, next(iter(noisy.noise))
    parts: list[Tensor] = []

    def vmapped(first: int, stop: int) -> Tensor:
        return torch.func.vmap(lambda values: classifier.functional(values, x))(noisy.stacked(first, stop)).clone()

    def run(first: int, stop: int) -> list[Tensor]:
        return in_chunks(stop - first, group, lambda a, b: vmapped(first + a, first + b))

    with preserved(classifier), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        with suppress(Exception):  # vmap cannot follow the model, or not even one draw fits so: the plain loop goes on
            found = run(0, group)
            if not _agree(found[-1][-1:], one(group - 1)):
                return []
            parts += found
            second = min(2 * group, samples)
            together = _seconds(lambda: parts.extend(run(group, second)), device)
            if second < samples and together / (second - group) < _seconds(lambda: one(0), device):
                parts += run(second, samples)
    return parts


def _group(x: Inputs, parameters: dict[str, Tensor], size: int, samples: int) -> int:
    """How many draws to try at once, a quarter of them at most; 1 where that cannot be faster."""
    each = list(parameters.values())
    if inputs.size(x) > _FEW or not _is_gpu([p.device for p in each]):
        return 1
    return max(1, min(samples // 4, size // inputs.size(x), _STACKED // max(1, sum(p.numel() for p in each))))


def _is_gpu(devices: list[torch.device]) -> bool:
    return len(set(devices)) == 1 and devices[0].type == "cuda"


def _agree(found: Tensor, expected: Tensor) -> bool:
    """Whether two ways to the same logits differ by no more than float32's, or float64's, round-off."""
    scale = expected.abs().max().to(torch.float64)
    tolerance = 100 * min(torch.finfo(expected.dtype).eps, torch.finfo(torch.float32).eps)
    return found.shape == expected.shape and bool((found - expected).abs().max() <= tolerance * scale)


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return perf_counter()

    start = now()
    run()
    return now() - start
