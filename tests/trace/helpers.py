"""What the tests of the engine share: comparisons with the oracle, a model's plan, and all of its state."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nescio import modes, trace
from nescio.models import Classifier
from nescio.trace.probe import passes
from nescio.trace.probe.plan import Plan

SMOOTH: dict[str, Any] = {"sigma": 0.2, "samples": 2, "seed": 3}


def error(ours: Tensor, wanted: Tensor) -> float:
    """The largest relative error; a norm that is nothing but round-off is held against the input's largest."""
    assert ours.dtype == torch.float64
    assert ours.shape == wanted.shape
    assert wanted.isfinite().all()
    largest = wanted.flatten(1).amax(1).view(-1, 1, 1)
    return float(((ours - wanted).abs() / (wanted + 1e-6 * largest)).nan_to_num(0.0, torch.inf).max())


def close(ours: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> None:
    assert error(ours, wanted) <= tolerance


def same_as_reference(model: Any, x: Any, **settings: Any) -> Tensor:
    """The engine's norms [N, C, L], one layer a tensor, after they were found equal to those of the loop."""
    settings = {"layers": "tensor"} | settings
    ours = trace.class_gradients(model, x, **settings)
    wanted = trace.reference.class_gradients(model, x, **settings)
    assert ours.layers == wanted.layers
    torch.testing.assert_close(ours.probabilities, wanted.probabilities, rtol=1e-9, atol=1e-12)
    assert wanted.norms.amax() > 1e-6
    close(ours.norms, wanted.norms)
    return ours.norms


def plan(model: nn.Module, x: Any) -> Plan:
    """What the engine means to do with each parameter."""
    classifier = Classifier.of(model)
    with modes.preserved(classifier), modes.tracing(classifier):
        return passes.forward(classifier, classifier.prepare(x)).plan


def slow(model: nn.Module, x: Any) -> set[str]:
    """The parameters that take the general path."""
    return set(Classifier.of(model).parameters()) - set(plan(model, x).fast)


def ready(model: nn.Module) -> Any:
    """In float64 and eval mode, every parameter at random, batch norms as if they had seen data."""
    model = model.double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * (0.5 if p.dim() > 1 else 0.3) + (0.0 if p.dim() > 1 else 0.7))
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.normal_(0, 0.3)
            elif name.endswith("running_var"):
                b.uniform_(0.5, 2)
    return model


class Then(nn.Module):
    """A body, its output summed up nonlinearly to one vector an input, and a linear head."""

    def __init__(self, body: nn.Module, width: int, batch: int = 0, classes: int = 3) -> None:
        super().__init__()
        self.body, self.batch, self.head = body, batch, nn.Linear(width, classes)

    def forward(self, *x: Tensor, **named: Tensor) -> Tensor:
        y = self.body(*x, **named)
        y = (y[0] if isinstance(y, tuple) else y).movedim(self.batch, 0)
        return self.head(torch.tanh(y).flatten(1))


def state(model: nn.Module) -> dict[str, Any]:
    """All that must be as it was: values, gradients (the objects), flags, hooks, attributes, and random states."""
    hooks = [n for n in vars(model) if n.endswith("_hooks")]
    return {
        "values": {k: (id(v), v.detach().clone()) for k, v in model.state_dict(keep_vars=True).items()},
        "grads": {k: (id(p.grad), None if p.grad is None else p.grad.clone()) for k, p in model.named_parameters()},
        "requires": {k: p.requires_grad for k, p in model.named_parameters()},
        "training": {k: m.training for k, m in model.named_modules()},
        "hooks": {(k, h): dict(getattr(m, h)) for k, m in model.named_modules() for h in hooks},
        "tensor hooks": {k: dict(p._backward_hooks or {}) for k, p in model.named_parameters()},
        "attributes": {k: sorted(vars(m)) for k, m in model.named_modules()},
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),
        "python": random.getstate(),
        "grad mode": torch.is_grad_enabled(),
    }


def identical(before: Any, after: Any) -> bool:
    """Whether two states are the same to the last bit."""
    if isinstance(before, Tensor):
        return before.dtype == after.dtype and before.shape == after.shape and bytes_of(before) == bytes_of(after)
    if isinstance(before, np.ndarray):
        return bool(np.array_equal(before, after))
    if isinstance(before, Mapping):
        return before.keys() == after.keys() and all(identical(before[k], after[k]) for k in before)
    if isinstance(before, tuple | list):
        return len(before) == len(after) and all(identical(a, b) for a, b in zip(before, after, strict=True))
    return bool(before == after)


def bytes_of(t: Tensor) -> bytes:
    return t.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
