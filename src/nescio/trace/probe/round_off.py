"""How far a model's own gradients move when every parameter moves by its last digit.

A deep network with many kinks may turn a last digit into a thousandth: one ReLU more that is open. Two right ways to
its gradient then differ by as much, and the difference says nothing against either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.trace.probe.leaves import leaf
from nescio.trace.probe.parameter_gradients import plain_norms
from nescio.trace.runtime.engine_gradients import engine_gradients

TIMES = 8.0
"""Every operation rounds, and here the parameters alone are moved, twice."""
SHARES = (0.6180339887498949, 0.7548776662466927)
MOST = 5e-2
"""The largest share that counts as round-off: a rule that is further off is wrong."""


def round_off(
    classifier: Classifier,
    x: Inputs,
    cotangent: Tensor,
    truth: Mapping[str, Sequence[float]],
    places: Sequence[int] | None = None,
) -> dict[str, list[float]]:
    """Return for each parameter and input by what share of its norm the gradient's norm may be off by round-off.

    Args:
        classifier: The model.
        x: A few inputs.
        cotangent: What is pulled back from the logits of each input, ``[C]``.
        truth: The norms of the gradients of some parameters, for each input alone.
        places: The inputs of which it is asked (None: all).

    Returns:
        For these parameters a share for each input, at most `MOST`, and 0 for the inputs that were not asked about.
        Nothing where the parameters cannot be moved.
    """
    parameters = {name: p for name, p in classifier.parameters().items() if p.is_floating_point()}
    found = {name: [0.0] * len(norms) for name, norms in truth.items() if name in parameters}
    for turn in range(len(SHARES)):
        try:
            moved = {name: _moved(p, turn) for name, p in parameters.items()}
            for i in range(inputs.size(x)) if places is None else places:
                logits = classifier.functional(moved, leaf(inputs.take(x, slice(i, i + 1)))[0])
                own = engine_gradients([logits], [moved[name] for name in found], [cotangent.unsqueeze(0)])
                for name, after in zip(found, plain_norms(own, logits.device).tolist(), strict=True):
                    share = TIMES * abs(after - truth[name][i]) / max(truth[name][i], 1e-300)
                    found[name][i] = min(MOST, max(found[name][i], share))
        except RuntimeError:  # of TorchScript, or no memory for them: no difference is laid to round-off
            return {}
    return found


def _moved(p: Tensor, turn: int) -> Tensor:
    """The parameter, each number up or down by about its last digit, in a pattern that has no period of its own."""
    places = torch.arange(1, p.numel() + 1, device=p.device, dtype=torch.float64)
    sign = ((places * SHARES[turn]).frac() - 0.5).sign().view(p.shape)
    return (p.detach() * (1 + torch.finfo(p.dtype).eps * sign).to(p.dtype)).requires_grad_()
