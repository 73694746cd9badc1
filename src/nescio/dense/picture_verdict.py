"""`PictureVerdict`: what a `RegionGuard` says of each picture, as a `nescio.guard.Verdict`.

A picture may be foreign as a whole or in a part. Each has a conformal p-value, and two of them make one:

    p = min(1, 2 min(p_whole, p_part))

(Bonferroni), so that of pictures like the reference a share α at most has p ≤ α.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from nescio._common.formatting import percent
from nescio.guard import Verdict

PART = "part"
"""What the most foreign region is called among the witnesses."""
_DOWN, _ACROSS = ("upper", "", "lower"), ("left", "", "right")


@dataclass(frozen=True)
class PictureVerdict(Verdict):
    """Tell what a `RegionGuard` says about N pictures; what is not named here is as in `nescio.guard.Verdict`.

    Args:
        whole: What the guard says of each picture as a whole.
        largest: The p-value of the most foreign region of each, float64 ``[N]``.
        pictures: How many pictures of the reference gave ranks to regions.
        share: The share of each that is foreign, float64 ``[N]``.
        place: The middle of that, in shares of height and width, and how much of the picture it is, ``[N, 3]``.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ELU(), torch.nn.Conv2d(4, 5, 1))
        >>> guard = nescio.dense.RegionGuard(network).fit(torch.rand(300, 3, 8, 8))
        >>> guard.check(torch.rand(2, 3, 8, 8)).overall().p_value.shape
        torch.Size([2])
    """

    whole: Verdict = field(kw_only=True)
    largest: Tensor = field(kw_only=True)
    pictures: int = field(kw_only=True)
    share: Tensor = field(kw_only=True)
    place: Tensor = field(kw_only=True)

    def ranks_of(self, witness: str) -> int:
        """Return how many pictures of the reference a witness compared each picture with."""
        return self.pictures if witness == PART else self.whole.ranks

    def words(self, alpha: float = 0.05) -> list[str]:
        """Return a sentence for each picture that says which part of it the model does not know, or what else.

        Args:
            alpha: The p-value up to which a picture is called foreign.

        Returns:
            N sentences. Where the reference has too few pictures for this level, they say so, how many are needed,
            and which part is further from the reference than all of these.
        """
        return words(self.whole, self.largest, self.place, self.pictures, alpha / 2.0, alpha)


def words(whole: Verdict, largest: Tensor, place: Tensor, pictures: int, alpha: float, named: float) -> list[str]:
    """Return a sentence for each picture, about its most foreign part or about the picture as a whole.

    Args:
        whole: What the guard says of each picture as a whole.
        largest: The p-value of the most foreign region of each, ``[N]``.
        place: As in `PictureVerdict`.
        pictures: How many pictures of the reference gave ranks to regions.
        alpha: The level at which the part, and the picture as a whole, are called foreign.
        named: The level that the sentences name.
    """
    sentences = whole.words(alpha)
    for i, (p, p_whole) in enumerate(zip(largest.tolist(), whole.p_value.tolist(), strict=True)):
        if p <= alpha:
            sentences[i] = part_words(place[i])
        elif not holds(pictures, alpha) and p_whole > alpha:
            furthest = p * (pictures + 1) < 1.5
            sentences[i] = few_words(place[i] if furthest else None, sentences[i], pictures, alpha, named)
    return sentences


def holds(pictures: int, alpha: float) -> bool:
    """Return whether so many pictures can hold a level: the smallest p-value is 1/(pictures + 1)."""
    return alpha * (pictures + 1) >= 1.0 - 1e-9


def few_words(place: Tensor | None, whole: str, pictures: int, alpha: float, named: float) -> str:
    """Return what can be said of the parts of a picture where the reference has too few pictures for a level.

    Args:
        place: As in `part_words`, where a part is further from the reference than all of its pictures; else None.
        whole: The sentence about the picture as a whole.
        pictures: How many pictures of the reference gave ranks.
        alpha: The level that they cannot hold.
        named: The level that the sentence names.

    Examples:
        >>> few_words(None, "It looks like the reference.", 12, 0.05, 0.05)
        'It looks like the reference. Its parts were compared with 12 pictures only, too few to call one foreign at a
        level of 5 %: 19 are needed, which a reference of about 38 gives.'
    """
    needed = math.ceil(1.0 / alpha - 1e-9) - 1
    rest = f"at a level of {percent(named, 2)}: {needed} are needed, which a reference of about {2 * needed} gives."
    if place is None:
        return f"{whole} Its parts were compared with {pictures} pictures only, too few to call one foreign {rest}"
    return (
        f"What is in {_where(place)} is less like the reference than anything in the {pictures} pictures it was "
        f"compared with. These are too few to call it foreign {rest}"
    )


def part_words(place: Tensor) -> str:
    """Return the sentence about the part of a picture that a model does not know.

    Args:
        place: Its middle, in shares of the height and the width, and its share of the picture.

    Examples:
        >>> part_words(torch.tensor([0.9, 0.1, 0.04]))
        'The model does not know what is in the lower left part (4 % of the picture): it is unlike the reference.'
    """
    return f"The model does not know what is in {_where(place)}: it is unlike the reference."


def _where(place: Tensor) -> str:
    down, across, share = place.tolist()
    sides = [_DOWN[min(2, int(3 * down))], _ACROSS[min(2, int(3 * across))]]
    named = " ".join(side for side in sides if side)
    return f"the {f'{named} part' if named else 'middle'} ({percent(share, 2)} of the picture)"
