"""`PictureVerdict`: what a `RegionGuard` says of each picture, as a `nescio.guard.Verdict`.

A picture may be foreign as a whole or in a part. Each has a conformal p-value, and two of them make one:

    p = min(1, 2 min(p_whole, p_part))

(Bonferroni), so that of pictures like the reference a share α at most has p ≤ α.
"""

from __future__ import annotations

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
            N sentences.
        """
        part, whole = (self.largest <= alpha / 2.0).tolist(), self.whole.words(alpha / 2.0)
        return [part_words(self.place[i]) if part[i] else whole[i] for i in range(len(self))]


def part_words(place: Tensor) -> str:
    """Return the sentence about the part of a picture that a model does not know.

    Args:
        place: Its middle, in shares of the height and the width, and its share of the picture.

    Examples:
        >>> part_words(torch.tensor([0.9, 0.1, 0.04]))
        'The model does not know what is in the lower left part (4 % of the picture): it is unlike the reference.'
    """
    down, across, share = place.tolist()
    words = [_DOWN[min(2, int(3 * down))], _ACROSS[min(2, int(3 * across))]]
    named = " ".join(word for word in words if word)
    where = f"{named} part" if named else "middle"
    much = f"{percent(share, 2)} of the picture"
    return f"The model does not know what is in the {where} ({much}): it is unlike the reference."
