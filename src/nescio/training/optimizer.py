"""Steps down a gradient, by the functions that `torch.optim` itself is made of.

Its classes load torch's compiler when the first is made, which takes seconds; the functions do not. On a GPU all
parameters are stepped by one fused kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from nescio.training.recipe import Recipe


class Optimizer:
    """SGD, Adam or AdamW over these weights. `state` is what a checkpoint must hold."""

    def __init__(self, weights: Sequence[nn.Parameter], recipe: Recipe) -> None:
        self.weights, self.recipe = list(weights), recipe
        kinds = ("momentum",) if recipe.optimizer == "sgd" else ("mean", "square")
        self.state = {kind: [torch.zeros_like(weight, requires_grad=False) for weight in weights] for kind in kinds}
        self.fused = all(weight.is_cuda for weight in weights)
        if recipe.optimizer != "sgd":
            self.state["steps"] = [torch.zeros((), device=w.device if self.fused else "cpu") for w in weights]

    @torch.no_grad()
    def step(self, loss: Tensor, lr: float) -> None:
        """One step down the gradient of the loss; nothing is left in `.grad`."""
        self.clear()
        # not autograd.grad: a gradient in `.grad` has the layout of its weight, which the fused kernels ask for
        loss.backward(inputs=self.weights)
        by_weight = [weight.grad for weight in self.weights]
        self.clear()
        used = [place for place, gradient in enumerate(by_weight) if gradient is not None]
        gradients = [gradient for gradient in by_weight if gradient is not None]
        weights: list[Tensor] = [self.weights[place] for place in used]
        state = {kind: [values[place] for place in used] for kind, values in self.state.items()}
        recipe = self.recipe
        if recipe.clip is not None and gradients:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            torch._foreach_mul_(gradients, (recipe.clip / (norm + 1e-6)).clamp(max=1.0))
        how: Any = {"lr": lr, "weight_decay": recipe.weight_decay, "maximize": False, "foreach": False}
        how["fused"] = self.fused
        if recipe.optimizer == "sgd":
            more: Any = {"momentum": recipe.momentum, "nesterov": recipe.nesterov, "dampening": 0.0}
            sgd(weights, gradients, list(state["momentum"]), **more, **how)
            return
        function = adam if recipe.optimizer == "adam" else adamw
        more = {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
        function(weights, gradients, state["mean"], state["square"], [], state["steps"], **more, **how)

    def clear(self) -> None:
        """Leave no gradient behind."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def restore(self, saved: dict[str, list[Tensor]]) -> None:
        """Go on from a saved `state`; values are copied, so that the layout in memory stays that of the weights."""
        for kind, values in self.state.items():
            for now, then in zip(values, saved[kind], strict=True):
                now.copy_(then)
