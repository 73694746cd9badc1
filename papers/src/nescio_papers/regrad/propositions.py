"""Propositions 3.3, 3.4 and 3.5 of the paper, checked in numbers on trained networks, in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

from nescio import quantities
from nescio.models import Classifier
from nescio.quantities import Logits, NoisyParameterLogits
from nescio.scores.information import divergence, log_probabilities
from nescio.trace import class_gradients
from nescio.types import NescioError
from nescio_papers.runner.cells import kept_json
from nescio_papers.runner.parts import Model, Pictures
from nescio_papers.runner.program import NOT_ASKED, Job, Made, not_run, why_not
from nescio_papers.runner.scale import size_of
from nescio_papers.runner.scoring import TimeOver
from nescio_papers.runner.study import Column, Part, Row, Study

NETWORKS: Mapping[str, str] = {"mnist": "omniglot", "svhn": "cifar10", "cifar10": "svhn", "vit-cifar10": "svhn"}
"""Networks, and a foreign set for each."""
BRIEF = ("cifar10", "vit-cifar10")
"""Large networks: their plans are short, and they have fewer pictures and draws."""
SIGMAS = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SETS = ("training", "test", "foreign")


@dataclass(frozen=True)
class Size:
    """Pictures, those that Proposition 3.3 is solved for, draws; the most pictures and draws of a large network."""

    pictures: int
    solved: int
    draws: int
    most: tuple[int, int] = (100, 200)

    def of(self, name: str) -> tuple[int, int]:
        """Return the numbers of pictures and of draws for a network."""
        pictures, draws = self.most if name in BRIEF else (self.pictures, self.draws)
        return min(self.pictures, pictures), min(self.draws, draws)


SIZES = {"smoke": Size(10, 3, 5), "small": Size(50, 10, 500), "quick": Size(200, 20, 1000)}


def _columns() -> tuple[Column, ...]:
    return tuple(Column(name, model=f"{name}-brief" if name in BRIEF else "") for name in NETWORKS)


PARTS = (
    Part(
        "Proposition 3.5: divergence under noise, over its leading term (σ²/2) Σ p_c‖g_c‖²",
        "program",
        _columns(),
        tuple(Row(f"σ = {sigma:g}", "ratio") for sigma in SIGMAS),
        ("ratio", "reverse", "looseness"),
    ),
    Part(
        "Proposition 3.3: what is left of a change of parameters after the best change of the input",
        "program",
        _columns(),
        (*(Row(f"σ = {sigma:g}", "left") for sigma in SIGMAS[:4]), Row("share of pixels that are zero", "zeros")),
        ("left",),
    ),
    Part(
        "Proposition 3.4: length of the gradient, median",
        "program",
        _columns(),
        tuple(Row(f"{name} pictures", "norms") for name in SETS),
        ("predicted", "others"),
    ),
)


def leading_term(model: nn.Module, x: Tensor, sigmas: Sequence[float], draws: int, seed: int) -> list[dict[str, float]]:
    """Return, for each σ, medians over inputs: both divergences over the leading term, and Eq. 10's bound over them."""
    classifier = Classifier.of(model)
    table = class_gradients(classifier, x)
    p, squares = table.probabilities, table.norms.square().sum(-1)
    count = sum(value.numel() for value in classifier.parameters().values())
    length = math.sqrt(2) * math.exp(math.lgamma((count + 1) / 2) - math.lgamma(count / 2))  # E‖ε‖
    plain = quantities.compute(classifier, classifier.prepare(x), [Logits()])[Logits()]
    log_p = log_probabilities(plain.cpu())
    results = []
    for sigma in sigmas:
        request = NoisyParameterLogits(sigma, draws, seed)
        noisy = quantities.compute(classifier, classifier.prepare(x), [request])[request]
        log_q = log_probabilities(noisy.cpu())
        forward, reverse = divergence(log_q, log_p).mean(0), divergence(log_p.expand_as(log_q), log_q).mean(0)
        leading = sigma**2 / 2 * (p * squares).sum(1)
        bound = (p * squares.sqrt()).sum(1) * sigma * length
        results.append(
            {
                "ratio": float((forward / leading).median()),
                "reverse": float((reverse / leading).median()),
                "looseness": float((bound / reverse).median()),
                "violated": int((reverse > bound).sum()),
            }
        )
    return results


def left_over(model: nn.Module, x: Tensor, sigmas: Sequence[float], seed: int) -> list[float]:
    """Return, for each σ, the median share of a change Δθ of the logits that the best Δx does not make.

    Δx is the smallest solution of J_x Δx = J_θ Δθ. The share is ‖f(x, θ + Δθ) − f(x + Δx, θ)‖ over
    ‖f(x, θ + Δθ) − f(x, θ)‖.
    """
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    buffers = dict(model.named_buffers())
    generator = torch.Generator().manual_seed(seed)
    noise = {name: torch.randn(value.shape, generator=generator).to(value) for name, value in parameters.items()}

    def logits(some: Mapping[str, Tensor], one: Tensor) -> Tensor:
        return functional_call(model, ({**some}, buffers), (one[None],))[0]

    shares: list[list[float]] = [[] for _ in sigmas]
    for one in x:
        plain = logits(parameters, one)
        by_parameters = jacrev(logits)(parameters, one)
        change = torch.stack([value.flatten(1) @ noise[name].flatten() for name, value in by_parameters.items()]).sum(0)
        by_input = jacrev(lambda pixels: logits(parameters, pixels))(one).flatten(1)
        direction = (torch.linalg.pinv(by_input) @ change).view_as(one)
        for own, sigma in zip(shares, sigmas, strict=True):
            moved = logits({name: value + sigma * noise[name] for name, value in parameters.items()}, one)
            own.append(float((moved - logits(parameters, one + sigma * direction)).norm() / (moved - plain).norm()))
    return [float(torch.tensor(own).median()) for own in shares]


def lengths(model: nn.Module, x: Tensor) -> dict[str, float]:
    """Return the median length of the gradient of the predicted class and of the others."""
    table = class_gradients(model, x)
    norms = table.norms.square().sum(-1).sqrt()
    top = table.probabilities.argmax(1, keepdim=True)
    others = norms.scatter(1, top, float("nan"))
    return {"predicted": float(norms.gather(1, top).median()), "others": float(others.nanmedian())}


def program(job: Job) -> Made:
    """Check the propositions on one network after another."""
    cells: list[list[dict[str, Any]]] = [[], [], []]
    models: dict[str, Mapping[str, Any]] = {}
    sets: dict[str, Mapping[str, Any]] = {}
    notes = []
    seed = (job.seeds or (0,))[0]
    for column in _columns():
        known = column.known.removeprefix("vit-")
        if job.sets and column.known not in job.sets:
            for own, part in zip(cells, PARTS, strict=True):
                own += not_run(replace(part, columns=(column,)), NOT_ASKED)
            continue
        try:
            job.check()
            model = job.parts.model(column.plan, seed)
            pictures = {
                "training": job.parts.known(known, "train"),
                "test": job.parts.known(known),
                "foreign": job.parts.foreign(NETWORKS[column.known], job.parts.known(known)),
            }
            path = job.work / "propositions" / f"{model.id}-{job.parts.scale.name}.json"
            kept = kept_json(path, partial(_measured, column.known, model, pictures, seed, job))
        except (TimeOver, NescioError) as error:
            for own, part in zip(cells, PARTS, strict=True):
                own += not_run(replace(part, columns=(column,)), why_not(error))
            continue
        models[model.id] = model.facts
        sets |= {one.name: one.facts for one in pictures.values()}
        for own, found in zip(cells, kept["parts"], strict=True):
            own += [{**cell, "column": column.key, "seed": seed} for cell in found]
        notes.append(
            f"{column.label}: {kept['violated']} of {kept['pictures']} pictures violate Eq. 10's bound at some σ."
        )
        job.say(f"{column.label}: done")
    size = size_of(SIZES, job.parts.scale)
    settings = {
        "seeds": {plan: [seed] for plan in NETWORKS},
        "pictures": size.pictures, "pictures of proposition 3.3": size.solved, "draws": size.draws,
        "pictures and draws of large networks": size.of(BRIEF[0]),
    }  # fmt: skip
    return Made(cells, (), settings, list(models.values()), list(sets.values()), notes)


def _measured(name: str, model: Model, pictures: Mapping[str, Pictures], seed: int, job: Job) -> dict[str, Any]:
    size = size_of(SIZES, job.parts.scale)
    count, draws = size.of(name)
    network = copy.deepcopy(model.network).double().eval()
    device = next(network.parameters()).device
    x = {name: one.floats(0, count).double().to(device) for name, one in pictures.items()}
    ratios = leading_term(network, x["test"], SIGMAS, draws, seed)
    job.check()
    left = left_over(network, x["test"][: size.solved], SIGMAS[:4], seed)
    job.check()
    zeros = float((pictures["test"].x[:count] == 0).double().mean())
    first = [
        {"row": f"σ = {sigma:g}", "metrics": {k: v for k, v in one.items() if k != "violated"}}
        for sigma, one in zip(SIGMAS, ratios, strict=True)
    ]
    second = [{"row": f"σ = {sigma:g}", "metrics": {"left": v}} for sigma, v in zip(SIGMAS, left, strict=False)]
    second.append({"row": "share of pixels that are zero", "metrics": {"left": zeros}})
    third = [{"row": f"{name} pictures", "metrics": lengths(network, x[name])} for name in SETS]
    violated = max(one["violated"] for one in ratios)
    return {"parts": [first, second, third], "violated": violated, "pictures": count}


STUDY = Study(
    "propositions",
    "Propositions 3.3, 3.4 and 3.5 in numbers",
    PARTS,
    (
        "Expectations were written down before the run (`regrad/protocol.md`). All in float64; medians over pictures.",
        "Proposition 3.5: `ratio` is E KL(p(θ + σε) ‖ p(θ)) over (σ²/2) Σ p_c‖g_c‖², `ratio, reversed` the same for "
        "KL(p(θ) ‖ p(θ + σε)), and the last number is Eq. 10's bound over the latter.",
        "Proposition 3.3: Δθ = σε on every parameter, Δx the smallest that makes the same change to first order.",
    ),
    program,
)
