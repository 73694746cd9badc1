"""Logits under noisy parameters, z(x; θ + σε_s), at little more than the cost of the forward passes.

The noisy parameters are views into one buffer that every draw fills anew, so that a draw takes a few kernels and no new
memory. On a GPU a small batch spends its time in launching kernels. So the forward pass is recorded there once, as a
CUDA graph over the buffer, and replayed for every draw. This is done only if the model can be recorded and the replay
gives the same numbers. (Several draws at once, by `vmap` over stacked parameters, make grouped convolutions, which are
slower on a CPU.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.chunking import at_once, in_chunks
from nescio._common.seeds import derived_seed
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import predicting, preserved
from nescio.quantities.base import Budget, Request
from nescio.trace.runtime import cuda_graph
from nescio.types import ModelError

_ALIGNED = 64  # elements: 256 bytes, at which CUDA's allocator too begins a tensor
_RECORDED = 16  # draws that make up for the time of a recording


@dataclass(frozen=True)
class NoisyParameterLogits(Request):
    """Request the logits under S draws of noisy parameters, float64 ``[S, N, C]``.

    Args:
        sigma: The standard deviation of the noise on every parameter.
        samples: S, the number of draws; all inputs share each of them.
        seed: The seed of the draws.

    Examples:
        >>> request, classifier = NoisyParameterLogits(0.1, samples=5), nescio.Classifier(torch.nn.Linear(2, 3))
        >>> nescio.quantities.compute(classifier, torch.ones(4, 2), [request])[request].shape
        torch.Size([5, 4, 3])
    """

    sigma: float
    samples: int = 100
    seed: int = 0

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Compute the logits of every draw."""
        parameters = {name: parameter.detach() for name, parameter in classifier.parameters().items()}
        if not parameters:
            raise ModelError(
                "expected a model with floating-point parameters to add noise to, got one without any; "
                "use a score that needs none, such as perturb_x or entropy"
            )
        with predicting(classifier):
            one = _single(classifier, x, _Noisy(parameters, self), at_once(x, budget.chunk))
            return torch.stack([one(draw) for draw in range(self.samples)]).to("cpu", torch.float64)


class _Noisy:
    """θ + σε of one draw, always in the same memory.

    The generators, on the parameters' devices, know the seed and the draw alone. On a CPU every parameter's noise is
    drawn by itself, elsewhere all at once.
    """

    def __init__(self, parameters: dict[str, Tensor], request: NoisyParameterLogits) -> None:
        self.request, self.parameters = request, parameters
        parts: dict[str, slice] = {}
        ends: dict[torch.device, int] = {}
        for name, parameter in parameters.items():
            start = -(-ends.get(parameter.device, 0) // _ALIGNED) * _ALIGNED
            ends[parameter.device] = start + parameter.numel()
            parts[name] = slice(start, ends[parameter.device])
        self.noise = {d: torch.empty(end, dtype=torch.float32, device=d) for d, end in ends.items()}
        self.views = {n: self.noise[p.device][parts[n]].view(p.shape) for n, p in parameters.items()}
        self.values = {n: view.to(parameters[n].dtype) for n, view in self.views.items()}  # for float32 the view itself

    def fill(self, draw: int) -> dict[str, Tensor]:
        """The parameters of this draw; they last until the next call."""
        mixed = derived_seed(self.request.seed, draw)
        for device, noise in self.noise.items():
            generator = torch.Generator(device).manual_seed(mixed)
            alone = [view for view in self.views.values() if view.device == device]
            for part in alone if device.type == "cpu" else [noise]:
                part.normal_(generator=generator)
            noise.mul_(self.request.sigma)
        if cast := [n for n, value in self.values.items() if value is not self.views[n]]:
            torch._foreach_copy_([self.values[n] for n in cast], [self.views[n] for n in cast])
        torch._foreach_add_(list(self.values.values()), list(self.parameters.values()))
        return self.values


def _single(classifier: Classifier, x: Inputs, noisy: _Noisy, size: int) -> Callable[[int], Tensor]:
    """The function from a draw to its logits [N, C], in memory of their own."""
    count = inputs.size(x)

    def plain(draw: int) -> Tensor:
        values = noisy.fill(draw)

        def step(start: int, stop: int) -> Tensor:
            return classifier.functional(values, inputs.take(x, slice(start, stop)))

        return torch.cat(in_chunks(count, size, step))

    if count > size or noisy.request.samples < _RECORDED or not _is_gpu(list(noisy.noise)):
        return plain
    expected = plain(0)
    with preserved(classifier):
        replay = _recorded(lambda: classifier.functional(noisy.values, x), expected.device)
    if replay is None:
        return plain

    def replayed(draw: int) -> Tensor:
        noisy.fill(draw)
        return replay().clone()

    return replayed if _agree(replayed(0), expected) else plain


def _recorded(run: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor] | None:
    """A function that does again what `run` did on the GPU, without launching it kernel by kernel; None if none can."""
    recorded = cuda_graph.record(run, device, errors=Exception, capture_error_mode="thread_local")
    if recorded is None:
        return None
    graph, result = recorded

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


def _is_gpu(devices: list[torch.device]) -> bool:
    return len(set(devices)) == 1 and devices[0].type == "cuda"


def _agree(logits: Tensor, expected: Tensor) -> bool:
    """Whether two ways to the same logits differ by no more than float32's, or float64's, round-off."""
    scale = expected.abs().max().to(torch.float64)
    tolerance = 100 * min(torch.finfo(expected.dtype).eps, torch.finfo(torch.float32).eps)
    return logits.shape == expected.shape and bool((logits - expected).abs().max() <= tolerance * scale)
