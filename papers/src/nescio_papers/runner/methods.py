"""From a row to a method: settings filled in, and the few scores that only studies need.

paired_regrad   REGrad with a chosen number of paired copies x ± σε
closed          functions of p and ‖h‖ alone; h is the input of the last linear layer, (h, 1) has the bias's input too:
‖∂ log p_c/∂(W, b)‖ = ‖e_c − p‖ ‖(h, 1)‖ for the last layer, so its gradient scores need no gradient
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from nescio import scores
from nescio.quantities import Features, GradientNorms, Logits, Request
from nescio.scores import REGrad, Score
from nescio.scores.gradients import GradientScore
from nescio.types import InputError
from nescio_papers.runner.scale import Scale
from nescio_papers.runner.study import Row

ENSEMBLE = "ensemble"


@dataclass(frozen=True, kw_only=True)
class PairedREGrad(REGrad):
    """REGrad with `copies` copies in pairs x ± σε, and without the input itself."""

    copies: int = 8

    name = "paired_regrad"

    @property
    def needs(self) -> tuple[GradientNorms]:
        """The norms over paired copies."""
        (request,) = REGrad(**{one.name: getattr(self, one.name) for one in fields(REGrad)} | {"samples": 1}).needs
        return (replace(request, samples=self.copies, pairs=True),)


def _distance(p: Tensor) -> Tensor:
    """‖e_c − p‖ for every class, [N, C], with 1 − p_c summed from the others, so that sure predictions keep digits."""
    others = p.unsqueeze(1) * (1 - torch.eye(p.shape[1], dtype=p.dtype))
    return (others.sum(2).square() + others.square().sum(2)).sqrt()


@dataclass(frozen=True, kw_only=True)
class Closed(Score):
    """A function of the probabilities and of the features' norm."""

    form: str = "p_exgrad"

    name = "closed"
    summary = "A function of the probabilities and of the norm of the features."
    requires = "forward"
    cost = "1"
    paper = "–"

    @property
    def needs(self) -> tuple[Request, ...]:
        """Logits and features."""
        return Logits(), Features()

    def __call__(self, logits: Tensor, features: Tensor) -> Tensor:
        """The function named by `form`."""
        p, norm = logits.softmax(1), features.norm(dim=1)
        kind, _, form = self.form.rpartition("_")
        if self.form in ("h", "minus_h"):
            return norm if self.form == "h" else -norm
        if self.form == "entropy_over_h":
            return torch.special.entr(p).sum(1) / norm.clamp(min=1e-12)
        size = (norm.square() + 1).sqrt()[:, None] if kind == "h" else 1.0
        strength = _distance(p) * size
        if form == "exgrad":
            return (p * strength).sum(1)
        if form in ("regrad1", "regrad2"):
            return (p.sqrt() * strength ** int(form[-1])).sum(1)
        raise InputError(f"closed: expected a form such as h_regrad2, got {self.form!r}")


_OWN: Mapping[str, type[Score]] = {"paired_regrad": PairedREGrad, "closed": Closed}


def made(row: Row, known: str, scale: Scale, seed: int, layers: Sequence[str] = ()) -> Any:
    """Return the method of a row for a known data set; `layers` are the names of the model's layers in forward order.

    Random draws are those of `seed`, moved on by the row's own seed where it has one.
    """
    settings = scale.samples(row.settings_for(known))
    kind = _OWN.get(row.method) or type(scores.get(row.method))
    own = set(getattr(kind, "__dataclass_fields__", ()))
    if "last" in settings:
        names = layers[-settings.pop("last") :]
        settings["select"] = tuple(f"{name}.weight" if settings.get("layers") == "tensor" else name for name in names)
    if issubclass(kind, GradientScore) and scale.exact:
        settings = {"classes": "exact", "tolerance": 0.0, **settings}
    elif issubclass(kind, GradientScore) and scale.classes is not None:
        settings = {"classes": scale.classes, **settings}
    if "seed" in own:
        settings["seed"] = seed + 1000 * settings.get("seed", 0)
    return kind(**settings)


def needs_training_data(row: Row) -> bool:
    """Return whether the method of a row has to be fitted first."""
    return row.method not in _OWN and bool(getattr(scores.get(row.method), "needs_training_data", False))


def described(method: Any) -> dict[str, Any]:
    """Return name and settings of a method, as plain values."""
    values = {one.name: getattr(method, one.name) for one in fields(method)}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {"method": method.name, **plain}
