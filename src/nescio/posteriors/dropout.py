"""`MCDropout`: predictions under a model's own dropout, and nothing else of training mode.

    z^s = z(x; θ, m_s),   m_s one mask for every call of dropout, shared by all inputs

Sharing makes a prediction the same in any batch: a mask is that for a single input. Where the inputs lie in the tensors
that are dropped from is found by comparing passes for one input and for copies of it; if the copies then give what the
one gave, all inputs go through together. Otherwise (inputs folded into another dimension, or randomness from
elsewhere) they go through one by one. Batch norm and all other layers stay in eval mode.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.argument_checks import integer
from nescio.inputs import Inputs
from nescio.models import Classifier, ModelLike
from nescio.models.batch_axis import Unit, axes_from_shapes
from nescio.modes import eager, without_cudnn
from nescio.posteriors.base import PosteriorBase
from nescio.posteriors.masks import Masks, Unshared
from nescio.posteriors.saving import about, check_tensors, same, saved
from nescio.types import ModelError

_COPIES = 3  # of an input, to see where inputs lie


@saved("mc_dropout")
class MCDropout(PosteriorBase):
    """Turn on the dropout that the model was trained with for predictions (Gal & Ghahramani 2016).

    It finds `nn.Dropout` and its kin, calls of `torch.nn.functional.dropout` and its kin, and the dropout inside
    `nn.MultiheadAttention`, `nn.LSTM`, `nn.GRU` and `nn.RNN`. Other random layers, such as stochastic depth, stay off.

    Args:
        model: A PyTorch classifier, any callable that gives logits, or a `Classifier`; it is not changed.
        samples: S, the number of masks; all inputs share each of them.
        seed: Of the masks.
        output: What the model returns, as in `nescio.score`.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(4, 3))
        >>> MCDropout(model, samples=10).predict(torch.rand(5, 4)).shape
        torch.Size([10, 5, 3])
    """

    def __init__(
        self,
        model: Classifier | Callable[..., Any],
        samples: int = 100,
        seed: int = 0,
        *,
        output: str | None = None,
    ) -> None:
        self.classifiers = (Classifier.of(model, output, dense=True),)
        self.samples, self.seed = integer("samples", samples, at_least=1), integer("seed", seed, at_least=0)

    def _logits(self, x: Inputs) -> Tensor:
        parts = [part for root in self.roots for part in root.modules()]
        with eager(), without_cudnn(parts):  # compiled code would pass the masks by
            units = self._units(x)
            if units is not None:
                with suppress(Unshared):
                    return torch.stack([self._run(x, draw, units)[0] for draw in range(self.samples)])
            rows = [inputs.take(x, slice(at, at + 1)) for at in range(inputs.size(x))]
            return torch.stack([torch.cat([self._run(row, draw)[0] for row in rows]) for draw in range(self.samples)])

    def _units(self, x: Inputs) -> list[Unit] | None:
        """How masks for many inputs are laid out, so that each is treated as if it were alone; None if it cannot be."""
        one = inputs.take(x, slice(0, 1))
        alone, single = self._run(one, 0)
        if not single:
            raise ModelError(
                f"expected a model that calls dropout with a rate above 0, got {self.classifiers[0].name}, which calls "
                "none; use InsertedDropout(model), which puts one before its last linear layer"
            )
        copies = inputs.repeat(one, _COPIES)
        units = axes_from_shapes(single, self._run(copies, 0)[1], _COPIES)
        if units is None:
            return None
        together = self._run(copies, 0, units)[0]
        near = (together - alone).abs().max() <= torch.finfo(alone.dtype).eps ** 0.5 * alone.abs().max()
        return units if bool(near) else None

    def _run(self, x: Inputs, draw: int, units: list[Unit] | None = None) -> tuple[Tensor, list[torch.Size]]:
        """Logits [N, C] of a sample, and the shapes of its masks; without units as if all inputs were one."""
        masks = Masks(self.seed, draw) if units is None else Masks(self.seed, draw, inputs.size(x), units)
        with masks:
            torch.manual_seed(draw)  # for what is random besides; `predict` puts the generators back
            return self.classifiers[0].logits(x), masks.shapes

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {"samples": self.samples, "seed": self.seed, "model": about(self.classifiers[0])}, {}

    @classmethod
    def _from_state(cls, model: ModelLike, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        check_tensors(tensors, {})
        return cls(same(model, settings["model"]), settings["samples"], settings["seed"])
