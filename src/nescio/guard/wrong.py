"""Is this answer wrong? The share of wrong answers among labelled reference inputs that were as doubtful.

The inputs of the reference are put in the order of their doubt (1 − the largest probability) and cut into groups of
equal size; neighbouring groups in which the share of wrong answers does not rise are joined (isotonic regression). An
input gets the share of its group, with the exact binomial interval (Clopper and Pearson).

This is another question than whether the input is foreign: for inputs unlike the reference it says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nescio.decide.binomial import upper_bound

LEAST = 20  # inputs in a group, and labelled inputs at all
LEVEL = 0.9  # of the intervals


@dataclass(frozen=True)
class Wrong:
    """Tell how likely it is that each answer is wrong, with a 90 % interval.

    Args:
        probability: The estimate, float64 ``[N]``.
        low: The lower end of the interval, float64 ``[N]``.
        high: Its upper end.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> x, y = torch.randn(400, 4), torch.randint(0, 3, (400,))
        >>> wrong = nescio.Guard(torch.nn.Linear(4, 3)).fit((x, y)).check(x[:5]).wrong
        >>> bool((wrong.low <= wrong.probability).all()), wrong.high.shape
        (True, torch.Size([5]))
    """

    probability: Tensor
    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class Mistakes:
    """Groups of reference inputs by their doubt: the largest doubt in each but the last, wrong answers, and sizes."""

    bounds: Tensor
    wrong: Tensor
    count: Tensor

    @classmethod
    def of(cls, doubt: Tensor, wrong: Tensor) -> Mistakes | None:
        """Return the groups from the doubt, float64 ``[n]``, and whether each answer is wrong; None below 20 inputs."""
        if len(doubt) < LEAST:
            return None
        order = doubt.argsort(stable=True)
        doubt, wrong = doubt[order], wrong[order].to(torch.float64)
        parts = torch.arange(len(doubt)).tensor_split(max(1, min(20, len(doubt) // LEAST)))
        ends = torch.searchsorted(doubt, torch.stack([doubt[part[-1]] for part in parts]), right=True)
        groups: list[tuple[float, float, int]] = []  # largest doubt, wrong answers, inputs
        start = 0
        for end in ends.unique().tolist():  # equal doubt stays together
            groups.append((float(doubt[end - 1]), float(wrong[start:end].sum()), end - start))
            start = end
            while len(groups) > 1 and groups[-2][1] * groups[-1][2] >= groups[-1][1] * groups[-2][2]:
                (_, w1, n1), (last, w2, n2) = groups[-2:]
                groups[-2:] = [(last, w1 + w2, n1 + n2)]
        columns = zip(*groups, strict=True)
        bounds, wrongs, counts = (torch.tensor(column, dtype=torch.float64) for column in columns)
        return cls(bounds[:-1], wrongs, counts)

    def __call__(self, doubt: Tensor) -> Wrong:
        """Return the estimate for inputs of this doubt, float64 ``[N]``."""
        group = torch.searchsorted(self.bounds, doubt.contiguous())
        counts = zip(self.wrong.tolist(), self.count.tolist(), strict=True)
        low, high = torch.tensor([interval(int(w), int(n)) for w, n in counts], dtype=torch.float64).T
        return Wrong((self.wrong / self.count)[group], low[group], high[group])


@lru_cache(maxsize=4096)  # a guard asks for the same ones with each batch, and they take longer than its other work
def interval(wrong: int, count: int) -> tuple[float, float]:
    """Return the exact binomial interval of a rate."""
    error = (1.0 - LEVEL) / 2
    return 1.0 - upper_bound(count - wrong, count, error), upper_bound(wrong, count, error)
