"""`DeepEnsemble`: the members' predictions side by side, p^s = softmax(z_s(x)) for s = 1 … S members.

Members may be of any kind: what they share is the classes. Those that do not fit on a device together are brought there
one at a time, as copies, so that the members themselves stay where and as they are.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from nescio import training
from nescio._common import memory
from nescio._common.argument_checks import integer
from nescio.inputs import Data, Inputs, describe
from nescio.models import Classifier, ModelLike
from nescio.posteriors.base import PosteriorBase, ScaledNetwork, chunked
from nescio.posteriors.sampled import network_from
from nescio.posteriors.saving import refilled, saved, weights
from nescio.types import InputError, ModelError


@saved("deep_ensemble")
class DeepEnsemble(PosteriorBase):
    """Take several networks that were trained apart as a distribution (Lakshminarayanan et al. 2017).

    S is the number of members.

    Args:
        models: The members, two or more; they are not changed.
        device: Where the members run; None for where each of them lies. They are copied there for one prediction.
        one_at_a_time: True brings one member after another to the device, False all of them, and "auto" all of them
            if they take less than a share of its free memory.
        output: What the models return, as in `nescio.score`.

    Examples:
        >>> DeepEnsemble([torch.nn.Linear(4, 3) for _ in range(5)]).predict(torch.rand(6, 4)).shape
        torch.Size([5, 6, 3])
    """

    def __init__(
        self,
        models: Iterable[Classifier | Callable[..., Any]],
        *,
        device: torch.device | str | None = None,
        one_at_a_time: bool | Literal["auto"] = "auto",
        output: str | None = None,
    ) -> None:
        single = isinstance(models, nn.Module) and not isinstance(models, nn.ModuleList)  # layers are no members
        if single or not isinstance(models, Iterable):
            raise InputError(f"expected a list of models, got {describe(models)}; put the members in a list")
        self.classifiers = tuple(Classifier.of(model, output, dense=True) for model in models)
        if len(self.classifiers) < 2:
            raise InputError(
                f"expected at least 2 members, got {len(self.classifiers)}; give more, or use Deterministic(model)"
            )
        if one_at_a_time not in (True, False, "auto"):
            raise InputError(f"expected one_at_a_time to be True, False or 'auto', got {one_at_a_time!r}")
        if one_at_a_time is True and device is None:
            raise InputError("expected a device to bring the members to with one_at_a_time=True, got none; name it")
        try:
            self.device = None if device is None else torch.device(device)
        except RuntimeError as error:
            raise InputError(f"expected a device such as 'cuda' or 'cpu', got {device!r} ({error})") from error
        self.one_at_a_time = one_at_a_time
        self._copies: dict[int, Classifier] | None = None

    def networks(self) -> list[ScaledNetwork]:
        """Return the members.

        Returns:
            One for each sample.
        """
        return [ScaledNetwork(member) for member in self.classifiers]

    @classmethod
    def train(
        cls,
        factory: Callable[[], nn.Module],
        data: Data,
        validation: Data | None = None,
        *,
        members: int = 5,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        recipe: training.Recipe | None = None,
        **settings: Any,
    ) -> Self:
        """Train members with `nescio.training.train`, each with random numbers of its own.

        Args:
            factory: Makes a new network.
            data: Labelled training data, as in `nescio.training.train`.
            validation: Labelled data that choose the best epoch.
            members: How many.
            seed: As in `nescio.training.train`; so are folder, progress and recipe.
            folder: Where the state is kept.
            progress: As in `nescio.score`.
            recipe: How to train.
            settings: Those of `nescio.training.Recipe`, in place of a recipe.

        Returns:
            The ensemble.
        """
        more: Any = {"members": members, "seed": seed, "folder": folder, "progress": progress}
        return cls._trained(
            factory, data, validation, recipe_from(recipe, settings), lambda model, member: None, **more
        )

    @classmethod
    def _trained(
        cls,
        factory: Callable[[], nn.Module],
        data: Data,
        validation: Data | None,
        recipe: training.Recipe,
        loss: Callable[[nn.Module, int], training.Loss | None],
        members: int,
        seed: int,
        folder: str | os.PathLike[str] | None,
        progress: bool | None,
    ) -> Self:
        """Members that the factory makes, each trained on the loss that is made for it."""
        integer("members", members, at_least=2)
        integer("seed", seed, at_least=0)
        trained = []
        for member in range(members):
            own = training.spawned(seed, member)
            model = network_from(factory, own)
            more: Any = {"seed": own, "progress": progress, "loss": loss(model, member)}
            more["folder"] = None if folder is None else Path(folder) / f"member-{member}"
            training.train(model, data, validation, recipe=recipe, **more)
            trained.append(Classifier(model, preprocess=recipe.transform))
        return cls(trained)

    def _logits(self, x: Inputs) -> Tensor:
        raise NotImplementedError  # members differ in device and type of number: `_batch` takes them one by one

    def _batch(self, x: Inputs, moved: Callable[[int], object]) -> Tensor:
        last = len(self.classifiers) - 1
        parts = [self._member(at, x, moved if at == last else lambda count: None) for at in range(last + 1)]
        if len({part.shape[-1] for part in parts}) > 1:
            counts = ", ".join(str(part.shape[-1]) for part in parts)
            raise ModelError(f"expected members with the same classes, got {counts} classes; leave out the odd ones")
        return torch.stack(parts)

    def _member(self, at: int, x: Inputs, moved: Callable[[int], object]) -> Tensor:
        """Logits [N, C] of one member; when it returns, a copy that only this call needed is gone."""
        member = self._placed(at)
        return chunked(member.prepare(x), member.logits, moved)

    @contextmanager
    def _running(self) -> Iterator[None]:
        try:
            if self.device is not None and not self._alone():
                self._copies = {}
            yield
        finally:
            self._copies = None

    def _alone(self) -> bool:
        if self.one_at_a_time != "auto" or self.device is None or self.device.type != "cuda":
            return self.one_at_a_time is True
        tensors = [t for root in self.roots for t in chain(root.parameters(), root.buffers())]
        size = sum(t.numel() * t.element_size() for t in tensors if not _same(t.device, self.device))
        return size > memory.SHARE * memory.free_bytes(self.device)

    def _placed(self, at: int) -> Classifier:
        """The member, or its copy on the device."""
        member = self.classifiers[at]
        if self.device is None or member.device is None or _same(member.device, self.device):
            return member
        if self._copies is not None and at in self._copies:
            return self._copies[at]
        there = copy.deepcopy(member)
        for root in there.roots:
            root.to(self.device)
        if self._copies is not None:
            self._copies[at] = there
        return there

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        tensors: dict[str, Tensor] = {}
        for at, member in enumerate(self.classifiers):
            tensors |= weights(member, f"{at}.")
        return {"outputs": [member.output for member in self.classifiers]}, tensors

    @classmethod
    def _from_state(cls, model: ModelLike, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        outputs = settings["outputs"]
        models = list(model) if isinstance(model, list | tuple | nn.ModuleList) else [model] * len(outputs)
        if len(models) != len(outputs):
            raise InputError(f"expected {len(outputs)} models, one for each member, got {len(models)}")
        if strange := [name for name in tensors if name.partition(".")[0] not in map(str, range(len(outputs)))]:
            raise InputError(f"expected tensors of {len(outputs)} members, got others: {', '.join(strange[:5])}")
        return cls([refilled(one, tensors, f"{at}.", outputs[at]) for at, one in enumerate(models)])


def recipe_from(recipe: training.Recipe | None, settings: dict[str, Any]) -> training.Recipe:
    """The recipe that is given as such or by its settings."""
    if recipe is not None and settings:
        raise InputError(f"expected a recipe or its settings, got both (recipe and {', '.join(settings)})")
    return training.Recipe(**settings) if recipe is None else recipe


def _same(where: torch.device, wanted: torch.device) -> bool:
    """Whether a tensor's device is the wanted one, which need not say its number."""
    return where.type == wanted.type and wanted.index in (None, where.index)
