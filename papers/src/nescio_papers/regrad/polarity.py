"""Why UNGrad and GradNorm differ from the paper: bright or dark pictures, normalised or not, log p or log(p + ε).

With ε the gradient of log(p_c + ε) is w_c g_c, w_c = p_c/(p_c + ε), so that improbable classes stop counting:

    UNGrad    (1/C) Σ_c w_c ‖g_c‖
    GradNorm  ‖(1/C) Σ_c w_c g_c‖, as published
    ExGrad    Σ_c p_c w_c ‖g_c‖
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from nescio import evaluate
from nescio.trace import class_gradients
from nescio_papers.runner.cells import kept_json
from nescio_papers.runner.drawing import curves, svg
from nescio_papers.runner.parts import Model, Pictures
from nescio_papers.runner.program import Figure, Job, Made
from nescio_papers.runner.study import Column, Part, Row, Study

PLANS: Mapping[str, str] = {"normalised": "mnist", "not normalised": "plain-mnist"}
FOREIGN: Mapping[str, str] = {"omniglot": "Omniglot", "fashion": "FMNIST"}
TURNED: Mapping[str, bool] = {"bright on dark": False, "dark on bright": True}
EPSILONS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)
SCORES = ("UNGrad", "GradNorm as published", "ExGrad")
PICTURES = 2000
SHOWN_AS_ZERO = 1e-12  # where ε = 0 stands on a logarithmic axis

ROWS = tuple(Row(f"{score}, ε = {epsilon:g}", score) for score in SCORES for epsilon in EPSILONS)
PART = Part(
    "MNIST's CNN: AUROC of foreign pictures",
    "program",
    tuple(Column(f"{how}, {turned}", foreign) for how in PLANS for turned in TURNED for foreign in FOREIGN.values()),
    ROWS,
    ("auroc",),
)


def scores(network: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Return every score of the study, with every ε, by the label of its row; x are pictures in [0, 1]."""
    table = class_gradients(network, x)
    p, norms = table.probabilities, table.norms.square().sum(-1).sqrt()
    values: dict[str, Tensor] = {}
    for epsilon in EPSILONS:
        kept = p / (p + epsilon)
        values[f"UNGrad, ε = {epsilon:g}"] = (kept * norms).mean(1)
        values[f"ExGrad, ε = {epsilon:g}"] = (p * kept * norms).sum(1)
        values[f"GradNorm as published, ε = {epsilon:g}"] = uniform_norms(network, x, epsilon)
    return values


def uniform_norms(network: nn.Module, x: Tensor, epsilon: float) -> Tensor:
    """Return ‖∂/∂θ (1/C) Σ_c log(p_c + ε)‖ of each picture, by plain autograd in float64."""
    double = {name: value.detach().double() for name, value in network.named_parameters()}
    buffers = {name: value.double() for name, value in network.named_buffers()}

    def mean_log(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        log_p = functional_call(network, (parameters, buffers), (one[None],))[0].log_softmax(0)
        if epsilon:
            log_p = torch.logaddexp(log_p, torch.full_like(log_p, epsilon).log())
        return log_p.mean()

    blocks = []
    for block in x.double().split(50):
        grads = vmap(grad(mean_log), (None, 0))(double, block)
        blocks.append(torch.stack([value.flatten(1).square().sum(1) for value in grads.values()]).sum(0).sqrt())
    return torch.cat(blocks).cpu()


def program(job: Job) -> Made:
    """Train the networks, score, and draw the four panels."""
    seeds = job.seeds or job.parts.scale.seeds_of("mnist")
    cells: list[dict[str, Any]] = []
    models: dict[str, Mapping[str, Any]] = {}
    sets: dict[str, Mapping[str, Any]] = {}
    for how, plan in PLANS.items():
        for seed in seeds:
            job.check()
            model = job.parts.model(plan, seed)
            models[model.id] = model.facts
            known = job.parts.known("mnist")
            foreign = {label: job.parts.foreign(name, known) for name, label in FOREIGN.items()}
            sets |= {one.name: one.facts for one in (known, *foreign.values())}
            path = job.work / "polarity" / f"{model.id}-{how.replace(' ', '-')}.json"
            cells += kept_json(path, partial(_cells, model, how, known, foreign, job))
            job.say(f"{how}, seed {seed}: {100 * model.accuracy:.2f} % right on the test set")
    count = _count(job)
    settings = {
        "seeds": {plan: list(seeds) for plan in PLANS.values()},
        "epsilons": EPSILONS,
        "pictures of a set": count,
    }
    return Made([cells], [_figure(cells)], settings, list(models.values()), list(sets.values()))


def _count(job: Job) -> int:
    return min(PICTURES, job.parts.scale.pictures or PICTURES)


def _cells(model: Model, how: str, known: Pictures, foreign: Mapping[str, Pictures], job: Job) -> list[dict[str, Any]]:
    count = _count(job)
    device = next(model.network.parameters()).device
    usual = scores(model.network, known.floats(0, count).to(device))
    cells = []
    for label, pictures in foreign.items():
        for turned, inverted in TURNED.items():
            job.check()
            x = pictures.floats(0, count).to(device)
            other = scores(model.network, 1 - x if inverted else x)
            for row, values in usual.items():
                auroc = evaluate.ood(values.numpy(), other[row].numpy(), bootstrap=0).auroc
                column = f"{how}, {turned}→{label}"
                cells.append({"row": row, "column": column, "seed": model.seed, "metrics": {"auroc": auroc}})
    return cells


def _figure(cells: list[dict[str, Any]]) -> Figure:
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for how in PLANS:
        for turned in TURNED:
            lines: dict[str, list[tuple[float, float]]] = {}
            for label in FOREIGN.values():
                for score in SCORES:
                    values = []
                    for epsilon in EPSILONS:
                        row, column = f"{score}, ε = {epsilon:g}", f"{how}, {turned}→{label}"
                        own = [c["metrics"]["auroc"] for c in cells if c["row"] == row and c["column"] == column]
                        values.append((epsilon or SHOWN_AS_ZERO, 100 * fmean(own)))
                    lines[f"{score}, {label}"] = values
            panels[f"{how}, {turned}"] = lines
    limits = dict.fromkeys(panels, (0.0, 100.0))
    figure = curves(panels, "ε (leftmost: 0)", limits, ylabel="AUROC, %", width=4.4, columns=2)
    alt = (
        "AUROC of UNGrad, GradNorm and ExGrad by ε, in four panels: normalised or not, bright on dark or dark on bright"
    )
    return Figure(
        "AUROC by ε, normalisation and polarity",
        "Means over seeds. Bright on dark is how MNIST, Omniglot and Fashion-MNIST come; dark on bright is the same "
        "foreign picture inverted. The paper has 92.8 and 95.4 for UNGrad and 16.5 and 22.7 for GradNorm, on Omniglot "
        "and Fashion-MNIST.",
        alt,
        svg(figure, alt, "regrad-polarity"),
    )


STUDY = Study(
    "polarity",
    "Why UNGrad and GradNorm differ: polarity, normalisation, and log(p + ε)",
    (PART,),
    (
        "Hypotheses were written down before the run (`regrad/protocol.md`).",
        "2,000 pictures of each set; whole gradients in the L2 norm.",
    ),
    program,
)
