"""`RegionVerdict`: which part of a picture a model does not know, with the promise that goes with it, and in words."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nescio._common.argument_checks import probability
from nescio._common.formatting import percent
from nescio.guard import Verdict
from nescio.types import InputError

_DOWN, _ACROSS = ("upper", "", "lower"), ("left", "", "right")


@dataclass(frozen=True)
class RegionVerdict:
    """Tell what a `RegionGuard` says about N pictures, each of h × w regions. All tensors lie on the CPU.

    Args:
        score: How unlike the reference each region is, float64 ``[N, h, w]``, higher = more foreign.
        p_value: float64 ``[N, h, w]``. Of the regions of a picture like the reference, a share α at most has p ≤ α, on
            average over such pictures.
        largest: The p-value of the most foreign region of each picture, float64 ``[N]``: of pictures like the
            reference, a share α at most has one ≤ α.
        pictures: How many pictures of the reference gave ranks.
        whole: What the guard says of each picture as a whole.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ELU(), torch.nn.Conv2d(4, 5, 1))
        >>> guard = nescio.dense.RegionGuard(network).fit(torch.rand(300, 3, 8, 8))
        >>> guard.check(torch.rand(2, 3, 8, 8)).p_value.shape
        torch.Size([2, 8, 8])
    """

    score: Tensor
    p_value: Tensor
    largest: Tensor
    pictures: int
    whole: Verdict

    def __len__(self) -> int:
        return len(self.score)

    def foreign(self, alpha: float = 0.05, size: tuple[int, int] | None = None) -> Tensor:
        """Return which regions are foreign.

        Args:
            alpha: The share of the regions of known pictures that may be flagged by mistake, on average.
            size: Height and width of the map; None for one entry for each region.

        Returns:
            bool ``[N, h, w]``, or ``[N, *size]``.

        Raises:
            InputError: The reference is too small for this level.
        """
        self._check(alpha)
        flags = self.p_value <= alpha
        return flags if size is None else _enlarged(flags.double(), size) > 0.5

    def unknown(self, alpha: float = 0.05) -> Tensor:
        """Return which pictures have a part that the model does not know, bool ``[N]``; a share `alpha` by mistake."""
        self._check(alpha)
        return self.largest <= alpha

    def map(self, size: tuple[int, int]) -> Tensor:
        """Return the p-values as a map of this height and width, float64 ``[N, *size]``, to lay over the picture."""
        return _enlarged(self.p_value, size)

    def words(self, alpha: float = 0.05) -> list[str]:
        """Return a sentence for each picture that says which part of it the model does not know.

        Args:
            alpha: As in `foreign` and `unknown`.

        Returns:
            N sentences.
        """
        flags, unknown = self.foreign(alpha), self.unknown(alpha).tolist()
        whole = self.whole.words(alpha)
        return [self._sentence(flags[i], self.score[i], unknown[i], whole[i]) for i in range(len(self))]

    def _sentence(self, flags: Tensor, score: Tensor, unknown: bool, whole: str) -> str:
        if not unknown:
            return whole
        inside = flags if bool(flags.any()) else score == score.max()
        height, width = inside.shape
        rows, columns = (one.double().mean() for one in inside.nonzero().unbind(1))
        place = _place((float(rows) + 0.5) / height, (float(columns) + 0.5) / width)
        share = percent(float(inside.double().mean()), 2)
        return f"The model does not know what is in the {place} ({share} of the picture): it is unlike the reference."

    def _check(self, alpha: float) -> None:
        probability("the level", alpha)
        if alpha * (self.pictures + 1) < 1.0 - 1e-9:
            raise InputError(
                f"expected a level of at least {1 / (self.pictures + 1):.2g}, which {self.pictures} pictures can hold, "
                f"got {alpha:g}; give a reference of more pictures"
            )


def _place(down: float, across: float) -> str:
    """A part of the picture in words, from its middle in shares of the height and the width."""
    words = [_DOWN[min(2, int(3 * down))], _ACROSS[min(2, int(3 * across))]]
    named = " ".join(word for word in words if word)
    return f"{named} part" if named else "middle"


def _enlarged(values: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(values[:, None], size, mode="nearest-exact")[:, 0]


def joined(parts: list[RegionVerdict], whole: Verdict) -> RegionVerdict:
    """Return the verdicts on several batches as one."""
    score, p, largest = (torch.cat([getattr(part, name) for part in parts]) for name in ("score", "p_value", "largest"))
    return RegionVerdict(score, p, largest, parts[0].pictures, whole)
