"""`RegionVerdict`: which part of a picture a model does not know, with the promise that goes with it, and in words."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nescio._common.argument_checks import probability
from nescio.dense.picture_verdict import PART, PictureVerdict, holds, words
from nescio.guard import Verdict
from nescio.types import InputError


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
        predicted: The class that the model answers at most positions, int64 ``[N]``.
        confidence: The mean probability of the classes that it answers, float64 ``[N]``.

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
    predicted: Tensor
    confidence: Tensor

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
        """Return which pictures have a part that the model does not know.

        Args:
            alpha: The share of known pictures that are named by mistake.

        Returns:
            True for each such picture, bool ``[N]``.
        """
        self._check(alpha)
        return self.largest <= alpha

    def map(self, size: tuple[int, int]) -> Tensor:
        """Return the p-values as a map, to lay over the picture.

        Args:
            size: Height and width in pixels.

        Returns:
            The maps, float64 ``[N, *size]``.
        """
        return _enlarged(self.p_value, size)

    def foreignness(self, size: tuple[int, int]) -> Tensor:
        """Return −log₁₀ p as a map.

        Args:
            size: Height and width in pixels.

        Returns:
            The maps, float64 ``[N, *size]``, higher = more foreign.
        """
        return -self.map(size).log10()

    def words(self, alpha: float = 0.05) -> list[str]:
        """Return a sentence for each picture that says which part of it the model does not know.

        Args:
            alpha: As in `foreign` and `unknown`.

        Returns:
            N sentences. Where the reference has too few pictures for this level, they say so, how many are needed,
            and which part is further from the reference than all of these.
        """
        level = probability("the level", alpha)
        return words(self.whole, self.largest, self._places(alpha), self.pictures, level, level)

    def overall(self, alpha: float = 0.05) -> PictureVerdict:
        """Return one verdict for each picture, from the picture as a whole and from its most foreign region.

        Args:
            alpha: As in `foreign`, for the words about the part.

        Returns:
            A verdict as `nescio.Guard` gives, with the promise that goes with it: of pictures like the reference a
            share α at most has p ≤ α.
        """
        z = -torch.special.ndtri(self.largest.clamp(1e-300, 1.0 - 1e-9))
        less = self.pictures + 1 - (self.largest * (self.pictures + 1)).round().long()
        own, n = self.whole, len(self)
        return PictureVerdict(
            p_value=(2.0 * torch.minimum(own.p_value, self.largest)).clamp(max=1.0),
            score=own.score + z,
            witnesses={**own.witnesses, PART: z},
            votes={**own.votes, PART: z},
            beyond={**own.beyond, PART: less},
            ranks=min(own.ranks, self.pictures),
            predicted=self.predicted,
            confidence=self.confidence,
            reasons={**own.reasons, PART: "A part of it is"},
            whole=own,
            largest=self.largest,
            pictures=self.pictures,
            share=(self.p_value <= alpha).reshape(n, -1).double().mean(1),
            place=self._places(alpha),
        )

    def _places(self, alpha: float) -> Tensor:
        """The middle of the foreign regions, in shares of height and width, and their share: float64 ``[N, 3]``.

        Where too few pictures are compared with, those that are further out than all of these.
        """
        rows = []
        for flags, score in zip(self.p_value <= max(alpha, 1.0 / (self.pictures + 1)), self.score, strict=True):
            inside = flags if bool(flags.any()) else score == score.max()
            middle = (_densest(inside) + 0.5) / torch.tensor(inside.shape)
            rows.append(torch.cat([middle, inside.double().mean()[None]]))
        return torch.stack(rows) if rows else self.score.new_zeros(0, 3)

    def _check(self, alpha: float) -> None:
        probability("the level", alpha)
        if not holds(self.pictures, alpha):
            raise InputError(
                f"expected a level of at least {1 / (self.pictures + 1):.2g}, which {self.pictures} pictures can hold, "
                f"got {alpha:g}; give a reference of more pictures"
            )


def _densest(inside: Tensor) -> Tensor:
    """The middle of the marked regions where most of them lie together: row and column, in regions."""
    window = [size // 8 * 2 + 1 for size in inside.shape]  # about a quarter of each side
    around = F.avg_pool2d(inside[None].double(), window, 1, [size // 2 for size in window])[0]
    at = (around == around.max()).nonzero().double().mean(0)
    marked = inside.nonzero().double()
    near = (marked - at).abs() <= torch.tensor(window) / 2.0
    chosen = marked[near.all(1)]
    return chosen.mean(0) if len(chosen) else marked.mean(0)


def _enlarged(values: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(values[:, None], size, mode="nearest-exact")[:, 0]


def joined(parts: list[RegionVerdict], whole: Verdict) -> RegionVerdict:
    """Return the verdicts on several batches as one."""
    names = ("score", "p_value", "largest", "predicted", "confidence")
    columns = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    return RegionVerdict(**columns, pictures=parts[0].pictures, whole=whole)
