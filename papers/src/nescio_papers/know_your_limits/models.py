"""The models that are compared: one ReLU network, and everything that is put around it or in its place.

All work in float64, so that gradients which vanish far away are not lost in round-off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from nescio import posteriors, training
from nescio.posteriors import PosteriorBase
from nescio_papers.runner.cells import State, digest, kept_tensors

Labelled = tuple[Tensor, Tensor]
FILES = {"MC dropout": "dropout", "ensemble": "ensemble", "anchored ensemble": "anchored"}
FILES |= {"Bayes by backprop": "variational", "evidential": "evidential"}


@dataclass(frozen=True)
class Net:
    """A network: the sizes of its hidden layers, its dropout and its learning rate."""

    hidden: tuple[int, ...]
    dropout: float
    lr: float


@dataclass(frozen=True)
class Plan:
    """How the models of a study are trained; `dropout` is the network for MC dropout.

    `longer_…` is for the variational and the evidential network, which learn more slowly.
    """

    net: Net
    dropout: Net
    epochs: int
    batch: int = 64
    patience: int | None = 5
    members: int = 10
    samples: int = 50
    longer_epochs: int = 150
    longer_lr: float = 5e-3

    def recipe(self, lr: float, epochs: int = 0, patience: int | None = None) -> training.Recipe:
        """Return the recipe: Adam at a constant rate, no weight decay, the epoch with the lowest held-out loss."""
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
    """Return a function that makes the network: linear, ReLU, dropout, …, linear, in float64."""

    def made() -> nn.Sequential:
        layers: list[nn.Module] = []
        width = inputs
        for size in net.hidden:
            layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(net.dropout)]
            width = size
        return nn.Sequential(*layers, nn.Linear(width, classes)).double()

    return made


class Trainer:
    """Makes the models by name, trained on `data`; epochs and temperature are chosen on the held-out data.

    What is trained is kept in the folder, under a name that holds a digest of data and plan, and read from there.
    """

    def __init__(
        self, data: Labelled, held_out: Labelled, plan: Plan, seed: int, folder: Path, check: Callable[[], None]
    ) -> None:
        self.data, self.held_out, self.plan, self.seed, self.folder, self.check = (
            data, held_out, plan, seed, folder, check,
        )  # fmt: skip
        self.classes = int(data[1].max()) + 1
        self._took: dict[str, float] = {}
        self.mark = digest(repr(plan), str(seed), *(bytes(t.numpy().data) for t in (*data, *held_out)))
        self.makers: dict[str, Callable[[], PosteriorBase]] = {
            "one network": lambda: posteriors.Deterministic(self.one),
            "temperature-scaled": lambda: posteriors.Temperature(self.one).fit(held_out, progress=False),
            "MC dropout": lambda: posteriors.MCDropout(self.network("dropout", plan.dropout), samples=plan.samples),
            "ensemble": lambda: self.ensemble(posteriors.DeepEnsemble, "ensemble"),
            "anchored ensemble": lambda: self.ensemble(posteriors.AnchoredEnsemble, "anchored"),
            "Bayes by backprop": self.variational,
            "evidential": self.evidential,
            "Laplace": lambda: posteriors.Laplace(self.one, samples=plan.samples).fit(data, progress=False),
        }

    def all(self, names: Sequence[str]) -> dict[str, PosteriorBase]:
        """Return the models of these names."""
        return {name: self.makers[name]() for name in names}

    @cached_property
    def one(self) -> nn.Sequential:
        """The single network."""
        return self.network("one", self.plan.net)

    def factory(self, net: Net) -> Callable[[], nn.Sequential]:
        """Return a function that makes an untrained network."""
        return mlp(self.data[0].shape[1], self.classes, net)

    def network(self, name: str, net: Net) -> nn.Sequential:
        """Return a trained network."""

        def state() -> State:
            with training.seeded(self.seed):
                fresh = self.factory(net)()
            training.train(
                fresh, self.data, self.held_out, recipe=self.plan.recipe(net.lr), seed=self.seed, progress=False
            )
            return dict(fresh.state_dict())

        made = self.factory(net)()
        made.load_state_dict(self._kept(name, state))
        return made.eval()

    def ensemble(self, kind: type[posteriors.DeepEnsemble], name: str) -> posteriors.DeepEnsemble:
        """Return an ensemble of networks that were trained apart."""
        factory, plan = self.factory(self.plan.net), self.plan
        more: Any = {"members": plan.members, "seed": self.seed, "progress": False}

        def state() -> State:
            made = kind.train(factory, self.data, self.held_out, recipe=plan.recipe(plan.net.lr), **more)
            return dict(nn.ModuleList(made.roots).state_dict())

        networks = nn.ModuleList([factory() for _ in range(plan.members)])
        networks.load_state_dict(self._kept(name, state))
        return kind(networks.eval())

    def variational(self) -> posteriors.Variational:
        """Return a network with a mean and a spread for each weight."""
        factory = self.factory(self.plan.net)

        def state() -> State:
            made = posteriors.Variational.train(factory, self.data, self.held_out, **self._longer)
            network: Any = made.classifiers[0].module
            return {**{f"mean.{name}": value for name, value in network.state_dict().items()}, **made.stds}

        tensors = self._kept("variational", state)
        means = factory()
        means.load_state_dict({name[5:]: value for name, value in tensors.items() if name.startswith("mean.")})
        stds = {name: value for name, value in tensors.items() if not name.startswith("mean.")}
        return posteriors.Variational(means.eval(), stds, samples=self.plan.samples)

    def evidential(self) -> posteriors.Evidential:
        """Return a network whose outputs are evidence."""
        factory = self.factory(self.plan.net)

        def state() -> State:
            made = posteriors.Evidential.train(factory, self.data, self.held_out, **self._longer)
            network: Any = made.classifiers[0].module
            return dict(network.state_dict())

        network = factory()
        network.load_state_dict(self._kept("evidential", state))
        return posteriors.Evidential(network.eval(), samples=self.plan.samples)

    @property
    def _longer(self) -> dict[str, Any]:
        epochs = self.plan.longer_epochs
        recipe = self.plan.recipe(self.plan.longer_lr, epochs, max(5, epochs // 4))
        return {"recipe": recipe, "seed": self.seed, "progress": False}

    def seconds(self, name: str) -> float:
        """Return how long the networks of a model were trained; those put around the one network take its time."""
        return self._took.get(FILES.get(name, "one"), 0.0)

    def _kept(self, name: str, make: Callable[[], State]) -> State:
        tensors, self._took[name] = kept_tensors(self.folder / f"{name}-{self.mark}.pt", make, self.check)
        return tensors


def accuracy(posterior: PosteriorBase, data: Labelled) -> float:
    """Return the share of inputs whose most probable class, by the mean prediction, is the label."""
    p = posterior.predict(data[0], progress=False).mean(0)
    return float((p.argmax(1) == data[1].cpu()).double().mean())
