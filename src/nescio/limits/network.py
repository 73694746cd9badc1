"""A classifier as a piecewise-linear network: its input checked and in float64, its pieces found, its passes run.

f(x + ε d) = f(x) + ε s    for small ε ≥ 0,      s the rates that a pass gives beside the values
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.arrays import Values
from nescio.inputs import describe
from nescio.limits.pieces import Site
from nescio.limits.tracked_pass import Pass
from nescio.models import Classifier, ModelLike
from nescio.modes import eager, predicting, preserved
from nescio.types import InputError, ModelError


class Network:
    """A classifier and what passes through it share."""

    def __init__(self, model: ModelLike, output: str | None = None) -> None:
        self.classifier = Classifier.of(model, output)
        self.casts: dict[int, tuple[Tensor, Tensor]] = {}

    @contextmanager
    def working(self) -> Iterator[None]:
        """The model in eval mode, without gradients and compiled code, and put back afterwards."""
        with preserved(self.classifier), predicting(self.classifier), eager():
            yield

    def checked_batch(self, x: object, what: str = "x") -> Tensor:
        """A batch of inputs, or of directions, as float64 on the model's device; checked.

        A vector is taken for a batch of one.
        """
        batch = inputs.as_inputs(x, what)
        if not isinstance(batch, Tensor) or batch.is_complex():
            raise InputError(f"expected {what} to be a tensor [N, ...] of real numbers, got {describe(x)}")
        batch = batch[None] if batch.ndim == 1 else batch
        if batch.numel() == 0:
            raise InputError(
                f"expected {what} to be a tensor [N, ...] of at least one input, got {describe(batch)}; "
                "add the first dimension of a single input with x.unsqueeze(0)"
            )
        wide = batch.detach().to(self.classifier.device, torch.float64)
        if not bool(wide.isfinite().all()):
            raise InputError(f"expected finite numbers in {what}, got NaN or infinite ones; leave those inputs out")
        return wide

    def along(self, x: Tensor, direction: Values) -> Tensor:
        """One direction for each input; a single one, with or without the first dimension, holds for all."""
        d = torch.as_tensor(direction) if not isinstance(direction, Tensor) else direction
        if d.shape == x.shape[1:]:
            d = d[None]
        d = self.checked_batch(d if d.ndim > 1 else d[None], "direction")
        if d.shape[1:] != x.shape[1:] or len(d) not in (1, len(x)):
            raise InputError(
                f"expected one direction, or one for each input, of the inputs' shape {list(x.shape[1:])}, "
                f"got {describe(direction)}"
            )
        if bool((d.flatten(1) == 0).all(1).any()):
            raise InputError("expected directions that lead somewhere, got one that is 0 in all entries; leave it out")
        return d.expand_as(x)

    def settle(
        self, x: Tensor, direction: Tensor, record: Callable[[Site, Tensor], None] | None = None
    ) -> tuple[list[Site], Tensor]:
        """The pieces on which x lies, or which x + ε·direction enters where it lies on a face; and [2, N, C].

        The two blocks are the logits and their rates along the direction.
        """
        run = Pass(self.classifier, len(x), 2, values=True, record=record, casts=self.casts)
        z = run(torch.cat([x, direction]))
        self.numbers = run.numbers // len(x)
        return run.sites, z

    def rates(
        self, sites: list[Site], tangents: Tensor, record: Callable[[Site, Tensor], None] | None = None
    ) -> Tensor:
        """Rates [K, N, C] along tangents [K, N, ...], on these pieces."""
        blocks, count = tangents.shape[:2]
        run = Pass(self.classifier, count, blocks, values=False, sites=sites, record=record, casts=self.casts)
        return run(tangents.flatten(0, 1))

    def values(self, sites: list[Site], x: Tensor, record: Callable[[Site, Tensor], None] | None = None) -> Tensor:
        """Logits [N, C] of x, on these pieces."""
        return Pass(self.classifier, len(x), 1, values=True, sites=sites, record=record, casts=self.casts)(x)[0]

    def check(self, x: Tensor, logits: Tensor) -> None:
        """Raise a ModelError unless the model itself gives these logits."""
        dtype = self.classifier.dtype or torch.float64
        own = self.classifier.logits(x.to(dtype)).double()
        scale = own.abs().max().clamp(min=1.0)
        worst = float((own - logits).abs().max() / scale)
        if worst > torch.finfo(dtype).eps ** 0.5:
            raise ModelError(
                f"expected the same logits from the model and from its linear pieces, got a difference of {worst:.1e} "
                "of the largest; the model works in place on a view, or changes from call to call. Measure it "
                "numerically: nescio.limits.audit(model, x, radius=...)"
            )
