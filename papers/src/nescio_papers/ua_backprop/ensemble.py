"""An ensemble on its device, and which pictures it doubts.

    U(x) = H(mean_s p^s) − mean_s H(p^s),   p^s = softmax(z^s(x)),   in float64, not below 0

Everything stays on the device until the numbers of a batch are done: a test of maps asks for tens of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from nescio import training
from nescio.posteriors.ensemble import DeepEnsemble
from nescio_papers import zoo
from nescio_papers.runner.cells import State, digest, fingerprint, kept_tensors
from nescio_papers.runner.parts import Model, Parts, Pictures
from nescio_papers.runner.program import Job
from nescio_papers.zoo.trained import FACTS

BATCH = 2000
"""Pictures that go through a network at a time."""


@dataclass(frozen=True)
class Ensemble:
    """Networks that take pictures in [0, 1], and a name that no other ensemble has."""

    networks: tuple[nn.Module, ...]
    id: str
    device: str

    @cached_property
    def posterior(self) -> DeepEnsemble:
        """The ensemble as `nescio.explain` takes it."""
        return DeepEnsemble(self.networks)

    def first(self, count: int) -> Ensemble:
        """Return the ensemble of its first members."""
        return Ensemble(self.networks[:count], f"{self.id}-first{count}", self.device)

    @cached_property
    def laid_out(self) -> tuple[nn.Module, ...]:
        """The networks with the channels last in memory, as a GPU reads them: the same numbers but for round-off."""
        return tuple(deepcopy(network).to(memory_format=torch.channels_last) for network in self.networks)

    @torch.no_grad()
    def logs(self, x: Tensor) -> Tensor:
        """Return the log p^s of pictures, float64 [S, N, C] on the device."""
        gpu = torch.device(self.device).type == "cuda"
        x = x.to(self.device, memory_format=torch.channels_last if gpu else torch.preserve_format)
        networks = self.laid_out if gpu else self.networks
        return torch.stack([network(x).double() for network in networks]).log_softmax(-1)

    def epistemic(self, x: Tensor) -> Tensor:
        """Return U of pictures, float64 [N] on the device."""
        logs = self.logs(x)
        p = logs.exp()
        mean = p.mean(0)
        return (-torch.xlogy(mean, mean).sum(-1) + (p * logs).sum(-1).mean(0)).clamp(min=0.0)

    def accuracies(self, pictures: Pictures) -> list[float]:
        """Return the share of these pictures that each member gets right."""
        parts = range(0, len(pictures.x), BATCH)
        answers = [self.logs(pictures.floats(at, at + BATCH)).argmax(-1).cpu() for at in parts]
        return (torch.cat(answers, 1) == pictures.y).double().mean(1).tolist()

    def right(self, x: Tensor, y: Tensor) -> Tensor:
        """Return whether the mean prediction is right, booleans [N] on the CPU."""
        return self.logs(x).exp().mean(0).argmax(1).cpu() == y


def of_plan(parts: Parts, plan: str, seeds: Sequence[int], check: Callable[[], None]) -> tuple[Ensemble, list[Model]]:
    """Return the networks of a training plan and these seeds, read or trained."""
    models = []
    for seed in seeds:
        check()
        models.append(parts.model(plan, seed))
    name = digest(*(model.id for model in models))
    return Ensemble(tuple(model.network for model in models), f"{models[0].plan}-{name}", parts.device), models


def at_hand(parts: Parts, plan: str, seeds: Sequence[int]) -> bool:
    """Return whether those networks are trained already."""
    name = parts.plan(plan)
    return all((parts.models / f"{name}-{seed}" / FACTS).exists() for seed in seeds)


def trained_on(
    job: Job,
    plan: zoo.TrainingPlan,
    data: tuple[Tensor, Tensor],
    recipe: training.Recipe,
    members: int,
    folder: str,
    tests: Pictures,
) -> tuple[Ensemble, list[Model]]:
    """Train networks of a plan on these pictures, each from weights of its own; those in the folder are read.

    They are small or trained for a short time: each is kept when it is finished, and not after every epoch.
    """
    networks, took = [], []
    for seed in range(members):
        network = plan.model(seed).to(job.parts.device)

        def state(network: nn.Module = network, seed: int = seed) -> State:
            training.train(network, data, recipe=recipe, seed=seed, progress=job.parts.progress)
            return dict(network.state_dict())

        state_dict, seconds = kept_tensors(job.work / "maps" / folder / f"member-{seed}.pt", state, job.check)
        network.load_state_dict(state_dict)
        networks.append(network.eval())
        took.append(seconds)
    ids = [fingerprint(network) for network in networks]
    ensemble = Ensemble(tuple(networks), f"{plan.name}-{digest(*ids)}", job.parts.device)
    right = ensemble.accuracies(tests)
    name, about = f"{plan.name}, {len(data[0]):,} pictures", f"{recipe.epochs} epochs; the test set is {tests.name}"
    return ensemble, [Model(networks[s], right[s], name, s, took[s], about, ids[s]) for s in range(members)]


def doubtful(ensemble: Ensemble, pictures: Pictures, pool: int | None, count: int) -> Tensor:
    """Return which of the first `pool` pictures it doubts most, [count], the most doubtful first; U = 0 is no doubt."""
    end = min(len(pictures.x), pool or len(pictures.x))
    starts = range(0, end, BATCH)
    u = torch.cat([ensemble.epistemic(pictures.floats(at, min(at + BATCH, end))) for at in starts]).cpu()
    order = u.argsort(descending=True, stable=True)[:count]
    return order[u[order] > 0]
