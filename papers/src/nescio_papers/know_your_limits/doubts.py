"""Doubts of a model as functions of the input that have a gradient, one number for each input.

With p^s the predictions of S samples, p̄ their mean, C classes and H the entropy in bits:

    max_probability      1 − max_c p̄_c
    entropy              H(p̄)
    variance             (1/C) Σ_c (1/S) Σ_s (p^s_c − p̄_c)²
    mutual_information   H(p̄) − (1/S) Σ_s H(p^s)

For an evidential network they are those of its Dirichlet distribution, in closed form.

`published` is what the paper's public code has in the place of mutual information: it averages over the classes and
takes the entropy over the samples. As the probabilities of a sample sum to one, that mean is 1/C whatever is predicted:

    −Σ_s (1/C) log₂ (1/C) − (1/S) Σ_s H(p^s)  =  (S/C) log₂ C − (1/S) Σ_s H(p^s)

a constant less the aleatoric part. For ten samples and two classes it lies between 4 and 5, the range that the paper
gives for its figure; mutual information of two classes is at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from nescio.attribution.sampled_members import members
from nescio.modes import preserved, tracing
from nescio.posteriors import Deterministic, Evidential, PosteriorBase, Temperature
from nescio.posteriors.dirichlet import decomposed
from nescio.posteriors.evidential import concentration

METRICS = ("max_probability", "entropy", "variance", "mutual_information")
Doubt = Callable[[Tensor], Tensor]


def single(posterior: PosteriorBase) -> bool:
    """Return whether a posterior gives one prediction, so that there is no variance and no mutual information."""
    base = posterior.base if isinstance(posterior, Temperature) else posterior
    return isinstance(base, Deterministic)


def doubt(posterior: PosteriorBase, metric: str) -> Doubt:
    """Return one of the metrics, or `published`, as a differentiable function of inputs [N, D]."""
    read = reader(posterior)
    return lambda x: read(x)[metric]


def reader(posterior: PosteriorBase) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return all metrics of inputs [N, D] by name, differentiable."""
    if isinstance(posterior, Evidential):
        return _evidential(posterior)
    log_samples = sampled(posterior)
    return lambda x: of_samples(log_samples(x))


def sampled(posterior: PosteriorBase) -> Doubt:
    """Return the logarithm of the predictions [S, N, C] as a differentiable function of the input."""
    held: list[object] = []  # where dropout falls is found once

    def value(x: Tensor) -> Tensor:
        if not held:
            held.extend(members(posterior, x.detach()))
        logits = []
        with preserved(posterior), tracing(posterior), torch.set_grad_enabled(x.requires_grad):
            for member in held:
                with member.enter(x):  # type: ignore[attr-defined]
                    logits.append(member.finish(member.network().logits(x)))  # type: ignore[attr-defined]
        return torch.stack(logits).double().log_softmax(-1)

    return value


def of_samples(log_p: Tensor) -> dict[str, Tensor]:
    """Return the metrics from log-probabilities [S, N, C]."""
    samples, _, classes = log_p.shape
    p = log_p.exp()
    mean, log_mean = p.mean(0), log_p.logsumexp(0) - math.log(samples)
    aleatoric = -(p * log_p).sum(-1).mean(0) / math.log(2)
    total = -(mean * log_mean).sum(-1) / math.log(2)
    return {
        "max_probability": 1 - mean.amax(-1),
        "entropy": total,
        "variance": (p - mean).square().mean(-1).mean(0),
        "mutual_information": total - aleatoric,
        "published": samples / classes * math.log2(classes) - aleatoric,
    }


def _evidential(posterior: Evidential) -> Callable[[Tensor], dict[str, Tensor]]:
    classifier = posterior.classifiers[0]

    def value(x: Tensor) -> dict[str, Tensor]:
        with preserved(posterior), tracing(posterior), torch.set_grad_enabled(x.requires_grad):
            alpha = concentration(classifier.logits(x).double(), posterior.evidence)
        parts = decomposed(alpha)
        return {
            "max_probability": parts.max_probability,
            "entropy": parts.total / math.log(2),
            "variance": parts.variance / alpha.shape[1],
            "mutual_information": parts.epistemic / math.log(2),
        }

    return value
