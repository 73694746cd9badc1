"""Few classes in place of many: the k likeliest of an input stay, and the others become one.

    z_rest = log Σ_{c ∈ rest} exp z_c,        so that        p_rest = Σ_{c ∈ rest} p_c

for every member; the likeliest are those of the mean prediction, so that all members have the same k + 1 classes (of
equal ones the first; where round-off tells them apart, it chooses). The
merged predictions are again a posterior, and a function of the full one: the total, the aleatoric and the epistemic
uncertainty about which of these classes it is are no larger than about which of all, by the chain rule

    U = U_merged + the doubt among the merged classes,        U_rest = Σ_{c ∈ rest} U_c.

UA-Backprop needs a map of each logit, scaled on its own before they are added up, and so a pass back for each. With
k + 1 logits these are k + 1 passes instead of C. No doubt is left out: U_rest has that among the merged classes too,
and goes the way of their joint logit.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from nescio._common.argument_checks import integer
from nescio.attribution.defaults import FEW, LIKELIEST
from nescio.scores.information import log_probabilities
from nescio.types import InputError

Classes = int | Literal["auto", "exact"]


def check(classes: object) -> None:
    """Raise an InputError unless this says how many classes stay."""
    if isinstance(classes, str):
        if classes not in ("auto", "exact"):
            raise InputError(f"expected classes= to be 'auto', 'exact' or a whole number, got {classes!r}")
    else:
        integer("classes", classes, at_least=1)


def count(classes: Classes, of: int) -> int:
    """How many of so many classes stay: all, or fewer, of which the others become one."""
    wanted = of if classes == "exact" or (classes == "auto" and of <= FEW) else LIKELIEST
    wanted = wanted if isinstance(classes, str) else classes
    return wanted if wanted < of - 1 else of  # one class alone stays what it is


def staying(logits: Tensor, classes: Classes) -> Tensor | None:
    """The classes of each input that stay, [N, k], the likeliest first, by logits [S, N, C]; None: all of them."""
    kept = count(classes, logits.shape[-1])
    if kept == logits.shape[-1]:
        return None
    likely = log_probabilities(logits).logsumexp(0)
    return likely.argsort(dim=-1, descending=True, stable=True)[:, :kept]


def merged(logits: Tensor, stay: Tensor | None) -> Tensor:
    """Logits [..., N, k + 1] from [..., N, C], the merged class last."""
    if stay is None:
        return logits
    at = stay.expand(*logits.shape[:-1], -1)
    rest = logits.scatter(-1, at, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.cat([logits.gather(-1, at), rest], -1)


def added(parts: Tensor, stay: Tensor | None) -> Tensor:
    """Parts [N, k + 1] of the uncertainty from those of all classes, [N, C], which they add up to as well."""
    if stay is None:
        return parts
    rest = parts.scatter(-1, stay, 0.0).sum(-1, keepdim=True)
    return torch.cat([parts.gather(-1, stay), rest], -1)


def cotangents(logits: Tensor, stay: Tensor | None, part: slice) -> Tensor:
    """The gradients of these of the merged logits by the logits [N, C]: [K, N, C]."""
    if stay is None:
        one = torch.eye(logits.shape[1], dtype=logits.dtype, device=logits.device)[part]
        return one.unsqueeze(1).expand(-1, len(logits), -1).contiguous()
    at = stay.to(logits.device)
    rows = logits.new_zeros(at.shape[1] + 1, *logits.shape)
    rows[:-1].scatter_(2, at.T.unsqueeze(2), 1.0)
    rest = logits.detach().to(torch.float64).scatter(1, at, -torch.inf)
    rows[-1] = rest.softmax(1).nan_to_num(0.0)  # a rest that is ruled out has no gradient
    return rows[part]
