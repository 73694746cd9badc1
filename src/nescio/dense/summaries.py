"""`DenseScores`: maps of a score with what does not count left out, and one number for each input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nescio._common.argument_checks import choice, probability
from nescio._common.arrays import Values
from nescio.inputs import Inputs, describe
from nescio.types import InputError

How = Literal["mean", "max", "quantile"]


@dataclass(frozen=True, init=False)
class DenseScores:
    """Hold the maps of a score, ``[N, *positions]``, higher = more uncertain; NaN where a position does not count.

    Args:
        maps: What `nescio.score` gives of a model that answers at every position.
        mask: Where positions count, bool ``[N, *positions]``; None: everywhere.
        labels: Class indices ``[N, *positions]``, for `ignore_index`.
        ignore_index: A label; positions with it do not count.

    Raises:
        InputError: The shapes differ.

    Examples:
        >>> scores = DenseScores(torch.tensor([[[0.0, 1.0], [2.0, 9.0]]]), mask=torch.tensor([[[1, 1], [1, 0]]]) > 0)
        >>> scores.summary("mean"), scores.summary("max")
        (tensor([1.], dtype=torch.float64), tensor([2.], dtype=torch.float64))
    """

    maps: Tensor

    def __init__(
        self, maps: Any, mask: Values | None = None, labels: Values | None = None, ignore_index: int | None = None
    ) -> None:
        given = torch.as_tensor(maps).detach().to("cpu", torch.float64)
        if given.ndim < 2:
            raise InputError(f"expected maps [N, *positions], got {describe(given)}; these are scores already")
        counts = counting(given.shape, mask, labels, ignore_index)
        object.__setattr__(self, "maps", given.masked_fill(~counts, torch.nan))

    @property
    def mask(self) -> Tensor:
        """Where positions count, bool ``[N, *positions]``."""
        return ~self.maps.isnan()

    def __len__(self) -> int:
        return len(self.maps)

    def summary(self, how: How = "mean", q: float = 0.95) -> Tensor:
        """Return one number for each input, over the positions that count.

        Args:
            how: "mean", "max", or "quantile": of all positions a share `q` has at most this score.
            q: The share.

        Returns:
            float64 ``[N]``; NaN for an input none of whose positions count.
        """
        choice("how", how, ("mean", "max", "quantile"))
        flat = self.maps.flatten(1)
        if how == "mean":
            return flat.nanmean(1)
        if how == "max":
            none = flat.isnan().all(1)
            return torch.where(none, torch.nan, flat.nan_to_num(nan=-torch.inf, posinf=torch.inf).amax(1))
        q = probability("q", q)
        # of numpy: torch.nanquantile takes 16 million numbers at most
        rows = [row[~row.isnan()].numpy() for row in flat]
        return torch.tensor(
            [float(np.quantile(row, q)) if row.size else torch.nan for row in rows], dtype=torch.float64
        )


def counted(maps: Tensor, x: Inputs) -> DenseScores:
    """Return maps in which padding does not count: where an attention mask of their shape is 0.

    Args:
        maps: ``[N, *positions]``.
        x: The batch that they are of.

    Returns:
        The scores at the positions that count.

    Examples:
        >>> x = {"input_ids": torch.ones(1, 3), "attention_mask": torch.tensor([[1, 1, 0]])}
        >>> counted(torch.tensor([[1.0, 3.0, 9.0]]), x).summary()
        tensor([2.], dtype=torch.float64)
    """
    mask = x.get("attention_mask") if isinstance(x, Mapping) else None
    return DenseScores(maps, mask if isinstance(mask, Tensor) and mask.shape == maps.shape else None)


def counting(shape: torch.Size, mask: Values | None, labels: Values | None, ignore_index: int | None) -> Tensor:
    """Return where positions count, bool of this shape.

    Args:
        shape: ``[N, *positions]``.
        mask: As in `DenseScores`; so are labels and ignore_index.
        labels: Class indices.
        ignore_index: A label.

    Returns:
        The mask and the labels together.

    Examples:
        >>> counting(torch.Size([1, 3]), None, torch.tensor([[0, 255, 1]]), 255)
        tensor([[ True, False,  True]])
    """
    counts = torch.ones(shape, dtype=torch.bool)
    if (labels is None) != (ignore_index is None):
        raise InputError("expected labels and ignore_index together, got one of them; give both, or a mask")
    for name, given, left_out in (("mask", mask, 0), ("labels", labels, ignore_index)):
        if given is None:
            continue
        value = torch.as_tensor(given).detach().cpu()
        if value.shape != shape:
            raise InputError(f"expected {name} of shape {list(shape)}, one for each position, got {describe(value)}")
        counts &= value != left_out
    return counts


def flatten(
    labels: Values, *values: Values, mask: Values | None = None, ignore_index: int | None = None
) -> tuple[Tensor, ...]:
    """Return labels, and what else is known of each position, in one row for each position that counts.

    So every metric of `nescio.evaluate`, and `Temperature.fit_logits`, is one over positions.

    Args:
        labels: Class indices ``[N, *positions]``.
        values: Tensors ``[N, *positions]`` such as maps, or ``[N, *positions, C]`` such as probabilities.
        mask: Where positions count; None: everywhere.
        ignore_index: A label; positions with it do not count.

    Returns:
        Labels ``[M]`` of the positions that count, and each of the values, ``[M]`` or ``[M, C]``.

    Raises:
        InputError: The shapes differ.

    Examples:
        >>> p = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]])
        >>> y, p = flatten(torch.tensor([[0, 1, 255]]), p, ignore_index=255)
        >>> round(nescio.evaluate.ece(p, y), 3)
        0.15
    """
    y = torch.as_tensor(labels).detach().cpu()
    counts = counting(y.shape, mask, None if ignore_index is None else y, ignore_index)
    rows = [y[counts]]
    for given in values:
        value = torch.as_tensor(given).detach().cpu()
        if value.shape[: y.ndim] != y.shape or value.ndim > y.ndim + 1:
            raise InputError(
                f"expected values of shape {list(y.shape)}, or with the classes after that, got {describe(value)}"
            )
        rows.append(value[counts])
    return tuple(rows)
