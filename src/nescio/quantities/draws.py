"""Logits of perturbed predictions, float64 [S, N, C]: noisy inputs, noisy parameters, attacked inputs.

    inputs      z(x + σε_s; θ),           ε_s ~ N(0, 1)^{shape of one input}
    parameters  z(x; θ + σε_s),           ε_s ~ N(0, 1)^{shape of θ}, see `nescio.quantities.parameters`
    attack      z(x + ε_s·sign(∂ℓ/∂x); θ), ε_s ~ U[−a, a],  ℓ = −log p_ŷ,  ŷ the predicted class
    dropout     see `nescio.posteriors.inserted`

sign(0) = 1, and so is the sign of what round-off may have left of a 0, by the size of the input's largest gradient. Of
classes with equal logits ŷ is the first; where only round-off tells them apart, it chooses the attack.

The s-th draw is the same for every input and depends on nothing but the seed and the shapes: a prediction is the same
in any batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nescio import inputs, trace
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import predicting
from nescio.posteriors.inserted import dropped_logits
from nescio.quantities.parameters import noisy_logits
from nescio.trace.module_gradients import round_off
from nescio.trace.runtime.noise import draws, noisy_names, takes
from nescio.types import InputError, SampledLogits


def sampled_logits(classifier: Classifier, x: Inputs, request: SampledLogits, chunk: int | None) -> Tensor:
    """The logits of every draw for the prepared batch x."""
    draw = {"inputs": _noisy_inputs, "parameters": noisy_logits, "attack": _attacked, "dropout": dropped_logits}
    return draw[request.kind](classifier, x, request, chunk)


def _noisy_inputs(classifier: Classifier, x: Inputs, request: SampledLogits, chunk: int | None) -> Tensor:
    need_floating(x)
    noise: Inputs
    if isinstance(x, Tensor):
        noise = request.size * draws(x, request.samples, request.seed)
    else:
        floating = noisy_names(x)
        seeds = range(request.seed, request.seed + len(floating))
        noise = {n: request.size * draws(x[n], request.samples, s) for n, s in zip(floating, seeds, strict=True)}
    return _over_pairs(classifier, x, request, chunk, lambda draw, at: inputs.take(noise, draw))


def _attacked(classifier: Classifier, x: Inputs, request: SampledLogits, chunk: int | None) -> Tensor:
    need_floating(x)
    generator = torch.Generator("cpu").manual_seed(request.seed)
    steps = request.size * (2.0 * torch.rand(request.samples, generator=generator, dtype=torch.float64) - 1.0)

    def towards(start: int, stop: int) -> Inputs:
        gradients = trace.input_gradients(classifier, inputs.take(x, slice(start, stop)), loss_direction)
        return inputs.apply(gradients, lambda g: _signs(g[0]))

    signs = inputs.concatenate(in_chunks(inputs.size(x), at_once(x, chunk), towards))

    sample = inputs.tensors(signs)[0]
    steps = steps.to(sample)

    def shift(draw: Tensor, at: Tensor) -> Inputs:
        def scaled(sign: Tensor) -> Tensor:
            return sign * steps[draw].to(sign).view(-1, *[1] * (sign.ndim - 1))

        return inputs.apply(inputs.take(signs, at), scaled)

    return _over_pairs(classifier, x, request, chunk, shift)


def _signs(gradient: Tensor) -> Tensor:
    """−1 or 1 for every number of the gradients ``[N, ...]``; 1 for what round-off may have left of a 0."""
    largest = gradient.abs().flatten(1).amax(1).view(-1, *[1] * (gradient.ndim - 1))
    return torch.where(gradient >= -round_off(gradient) * largest, 1.0, -1.0).to(gradient)


def loss_direction(logits: Tensor) -> Tensor:
    """∂ℓ/∂z = p − e_ŷ, divided by 1 − p_ŷ: the same signs, and no underflow where the model is sure. [1, N, C]."""
    top = logits.argmax(-1, keepdim=True)
    others = logits.detach().to(torch.float64).scatter(-1, top, -torch.inf).softmax(-1)
    return others.scatter(-1, top, -1.0).to(logits.dtype)[None]


def _over_pairs(
    classifier: Classifier,
    x: Inputs,
    request: SampledLogits,
    chunk: int | None,
    shift: Callable[[Tensor, Tensor], Inputs],
) -> Tensor:
    """Logits at x[n] + shift(s, n) for every draw s and input n; a forward pass takes as many pairs as fit.

    Positions are made, and results kept, on the inputs' device: a GPU would wait for every one that crosses over.
    """
    count, device = inputs.size(x), inputs.tensors(x)[0].device

    def step(start: int, stop: int) -> Tensor:
        pair = torch.arange(start, stop, device=device)
        draw, at = pair // count, pair % count
        return classifier.logits(plus(inputs.take(x, at), shift(draw, at)))

    with predicting(classifier):
        parts = in_chunks(request.samples * count, at_once(x, chunk), step)
    return torch.cat(parts).to("cpu", torch.float64).view(request.samples, count, -1)


def plus(x: Inputs, shift: Inputs) -> Inputs:
    """The batch moved by `shift`; entries of a mapping that the shift does not have stay."""
    if isinstance(x, Tensor):
        assert isinstance(shift, Tensor)
        return x + shift
    assert not isinstance(shift, Tensor)
    return {name: value + shift[name] if name in shift else value for name, value in x.items()}


def need_floating(x: Inputs) -> None:
    """Raise an InputError for inputs that cannot be moved a little, such as tokens."""
    if not takes(x):
        raise InputError(
            f"expected floating-point inputs, to which noise can be added, got {inputs.describe(x)}; "
            "use a method without noise on its inputs: entropy, perturb_theta, or a gradient score with samples=0"
        )
