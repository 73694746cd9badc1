"""The models that are compared: one ReLU network, and everything that is put around it or in its place.

All work in float64, so that gradients which vanish far away are not lost in round-off. Training leaves its state in a
folder: what was trained once is read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from nescio import posteriors, training
from nescio.posteriors import PosteriorBase

Labelled = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Net:
    """A network: the sizes of its hidden layers, its dropout and its learning rate."""

    hidden: tuple[int, ...]
    dropout: float
    lr: float


@dataclass(frozen=True)
class Plan:
    """How the models of a study are trained; `dropout` is the network for MC dropout.

    The variational network is trained longer and at a higher rate, as mean and spread of each weight need it.
    """

    net: Net
    dropout: Net
    epochs: int
    batch: int = 64
    patience: int | None = 5
    members: int = 10
    samples: int = 50
    variational_epochs: int = 200
    variational_lr: float = 5e-3

    def recipe(self, lr: float, epochs: int = 0, patience: int | None = None) -> training.Recipe:
        """Adam with a constant rate, without weight decay; the best epoch has the lowest loss on the held-out data."""
        return training.Recipe(
            epochs=epochs or self.epochs,
            batch_size=self.batch,
            lr=lr,
            optimizer="adam",
            weight_decay=0.0,
            schedule="constant",
            patience=patience or self.patience,
            choose="loss",
        )


def mlp(inputs: int, classes: int, net: Net) -> Callable[[], nn.Sequential]:
    """A function that makes the network: linear, ReLU, dropout, …, linear, in float64."""

    def made() -> nn.Sequential:
        layers: list[nn.Module] = []
        width = inputs
        for size in net.hidden:
            layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(net.dropout)]
            width = size
        return nn.Sequential(*layers, nn.Linear(width, classes)).double()

    return made


def trained(
    data: Labelled, held_out: Labelled, plan: Plan, seed: int, folder: Path, check: Callable[[], None]
) -> dict[str, PosteriorBase]:
    """Every model by name, trained on `data`; epochs, temperature and the like are chosen on the held-out data."""
    inputs, classes = data[0].shape[1], int(data[1].max()) + 1
    factory, recipe = mlp(inputs, classes, plan.net), plan.recipe(plan.net.lr)
    drop, drop_recipe = mlp(inputs, classes, plan.dropout), plan.recipe(plan.dropout.lr)
    slow = plan.recipe(plan.variational_lr, plan.variational_epochs, max(5, plan.variational_epochs // 5))

    def network(make: Callable[[], nn.Sequential], how: training.Recipe, name: str) -> nn.Sequential:
        with training.seeded(seed):
            made = make()
        training.train(made, data, held_out, recipe=how, seed=seed, folder=folder / name, progress=False)
        return made

    check()
    one = network(factory, recipe, "one")
    found: dict[str, PosteriorBase] = {"one network": posteriors.Deterministic(one)}
    found["temperature-scaled"] = posteriors.Temperature(one).fit(held_out, progress=False)
    check()
    found["MC dropout"] = posteriors.MCDropout(network(drop, drop_recipe, "dropout"), samples=plan.samples)
    more: Mapping[str, object] = {"members": plan.members, "seed": seed, "progress": False}
    for name, kind in (("ensemble", posteriors.DeepEnsemble), ("anchored ensemble", posteriors.AnchoredEnsemble)):
        check()
        found[name] = kind.train(factory, data, held_out, recipe=recipe, folder=folder / name, **more)  # type: ignore[arg-type]
    check()
    found["Bayes by backprop"] = posteriors.Variational.train(
        factory, data, held_out, recipe=slow, seed=seed, samples=plan.samples, folder=folder / "bbb", progress=False
    )
    check()
    found["evidential"] = posteriors.Evidential.train(
        factory, data, held_out, recipe=slow, seed=seed, samples=plan.samples, folder=folder / "evidential",
        progress=False,
    )  # fmt: skip
    found["Laplace"] = posteriors.Laplace(one, samples=plan.samples).fit(data, progress=False)
    return found


def accuracy(posterior: PosteriorBase, data: Labelled) -> float:
    """The share of inputs whose most probable class, by the mean prediction, is the label."""
    p = posterior.predict(data[0], progress=False).mean(0)
    return float((p.argmax(1) == data[1].cpu()).double().mean())


def size(posterior: PosteriorBase) -> int:
    """How many numbers the weights of a posterior's networks are."""
    return sum(p.numel() for root in posterior.roots for p in root.parameters())


def without_dropout(posterior: posteriors.MCDropout) -> list[torch.nn.Module]:
    """As many times the network in eval mode as the posterior has samples: dropout is off, and all are the same."""
    return list(posterior.roots) * posterior.samples
