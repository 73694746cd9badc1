"""Noisy copies in pairs on both sides of an input."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from nescio.trace.runtime import noise
from tests.trace.estimate.helpers import deep, pictures, tables


def test_pairs_are_copies_on_both_sides_without_the_input() -> None:
    x = pictures(3)
    both = noise.copies(x, 0.1, 4, 5, pairs=True).unflatten(0, (3, 4))
    torch.testing.assert_close(both.mean(1), x)
    torch.testing.assert_close(both[:, 0] - x, x - both[:, 1])
    torch.testing.assert_close(both[:, ::2] - x.unsqueeze(1), 0.1 * noise.draws(x, 2, 5).expand(3, -1, -1))


@pytest.mark.parametrize("smoothing", ["log", "mean"])
def test_gradients_of_pairs_are_averaged_over_them_alone(smoothing: Any) -> None:
    model, x = deep(4, 3), pictures(3)
    found = tables(model, x, sigma=0.3, samples=4, seed=5, pairs=True, smoothing=smoothing)
    torch.testing.assert_close(found.probabilities, model(x).softmax(1).detach())
    layers = [m for m in model if isinstance(m, nn.Linear)]
    for i in range(3):
        log_p = model(noise.copies(x[i : i + 1], 0.3, 4, 5, pairs=True)).log_softmax(1)
        ell = log_p.mean(0) if smoothing == "log" else log_p.logsumexp(0) - math.log(4)
        for c in range(4):
            for number, layer in enumerate(layers):
                grads = torch.autograd.grad(ell[c], list(layer.parameters()), retain_graph=True)
                wanted = torch.cat([g.flatten() for g in grads]).norm()
                torch.testing.assert_close(found.norms[i, c, number], wanted, rtol=1e-9, atol=0)
