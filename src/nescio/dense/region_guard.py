"""`RegionGuard`: which part of a picture does a model not know? The pipeline, from top to bottom:

fit     pictures in two halves by their content ─► regions of one half are remembered ─► the other half gives ranks
check   one forward pass ─► regions against the memory ─► their ranks ─► p-values, a map of them, words

A region is as strange as its features are far from the nearest ones in the memory (the witness of strangeness). With
s_ij the strangeness of region j of picture i among the n that give ranks, m_i its regions, L_i(s) = #{j: s_ij ≥ s}/m_i,

    p(q)    = (1 + Σ_i L_i(s(q)))/(n + 1)                      of a region
    largest = (1 + #{i: max_j s_ij ≥ max_q s(q)})/(n + 1)      of a picture, by its most foreign region

Regions of one picture are alike, so ranks among all regions would promise nothing; pictures are independent. The
regions with p(q) ≤ α are what conformal risk control chooses for the loss "share of the picture that is flagged"
(`nescio.decide.risk_control`): its expectation is at most α for a picture like the reference. `largest` is a conformal
p-value of pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from nescio import inputs
from nescio._common.argument_checks import integer
from nescio._common.chunking import at_once
from nescio.data.sources import Rows
from nescio.dense.picture_verdict import PART
from nescio.dense.region_features import Seen, region_features
from nescio.dense.region_verdict import RegionVerdict, joined
from nescio.guard import Guard, Strangeness
from nescio.guard import joined as joined_verdicts
from nescio.guard.input_blocks import blocks
from nescio.guard.promise import at_least, positions
from nescio.guard.split import digests
from nescio.inputs import Data, Inputs
from nescio.models import Classifier, ModelLike
from nescio.modes import predicting, preserved
from nescio.posteriors.saving import fingerprint
from nescio.types import InputError, ModelError

_LEAST = 20  # different pictures in a reference
_AT_ONCE = 64  # pictures of the reference that are read at a time
_SAME = 1e-9  # smaller differences are round-off, as in nescio.guard.promise


@dataclass(frozen=True)
class FittedRegions:
    """Tell what a `RegionGuard` was fitted to.

    Args:
        count: How many different pictures the reference has.
        ranks: How many pictures a new one is compared with, at least.
        names: The witnesses; the last is that of the parts.
        classes: How many classes the model has.
        form: The shape of a picture.
    """

    count: int
    ranks: int
    names: tuple[str, ...]
    classes: int
    form: tuple[int, ...] | None
    mistakes: ClassVar[None] = None
    """Labels of positions say nothing of how often an answer is wrong here."""


class Averaged(Classifier):
    """A model that answers at every position as a classifier of inputs: the mean of its logits, ``[N, C]``."""

    def __init__(self, classifier: Classifier) -> None:
        vars(self).update(vars(classifier))
        self.inner, self.output, self.class_dim = classifier, "logits", None

    def _run(self, x: Inputs, count: int) -> tuple[Tensor, Tensor]:
        z, out = self.inner._run(x, count)
        return z.flatten(1, -2).mean(1), out


class RegionGuard:
    """Tell which regions of a picture are foreign, for a model that answers at every position.

    Pictures as a whole are judged too, by the witnesses of strangeness and of appearance (`nescio.Guard`).

    Args:
        model: A segmentation network, or a `Classifier` of one. It is not changed.
        layer: The module whose output the regions are compared by; None for the input of the last layer.
        neighbours: How many of the nearest remembered regions count.
        memory: How many regions are remembered at most.
        grid: How many regions a picture has at most in each direction.
        output: As in `nescio.score`.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ELU(), torch.nn.Conv2d(4, 5, 1))
        >>> guard = RegionGuard(network).fit(torch.rand(300, 3, 8, 8))
        >>> guard.check(torch.rand(2, 3, 8, 8)).foreign(0.05).shape
        torch.Size([2, 8, 8])
    """

    def __init__(
        self,
        model: ModelLike,
        *,
        layer: str | None = None,
        neighbours: int = 5,
        memory: int = 4096,
        grid: int = 64,
        output: str | None = None,
    ) -> None:
        self.classifier = Classifier.of(model, output, dense=True)
        self.layer, self.witness = layer, Strangeness(integer("neighbours", neighbours, at_least=1))
        self.memory, self.grid = integer("memory", memory, at_least=1), integer("grid", grid, at_least=1)
        self.guard: Guard | None = None
        self._state: dict[str, Tensor] = {}

    def fit(self, reference: Data | Rows, *, seed: int = 0, progress: bool | None = None) -> Self:
        """Learn what known regions look like.

        Args:
            reference: Pictures of the kind that the model is meant for and was not trained on: a tensor, or batches
                that can be read several times, such as a list or a data loader.
            seed: Changes which pictures are remembered and which give ranks.
            progress: As in `nescio.score`.

        Returns:
            The guard itself.

        Raises:
            InputError: The reference has fewer than 20 different pictures, or can be read once only.
        """
        if hasattr(reference, "__next__"):
            raise InputError(
                "expected a reference that can be read several times, got an iterator; give a tensor, a list of "
                "batches or a data loader"
            )
        known: dict[bytes, Tensor] = {}
        ranked: dict[bytes, Tensor] = {}
        for keys, features in self._read(reference, seed, half=0):
            for key, own in zip(keys, features, strict=True):
                known[key] = _drawn(own.flatten(0, -2), key, self.memory)
        memory = _thinned([known[key] for key in sorted(known)], self.memory)
        if memory is None:
            raise _too_few(len(known))
        self._state = self.witness.fit(self.witness.rows(memory))
        for keys, features in self._read(reference, seed, half=1):
            for key, own in zip(keys, features, strict=True):
                ranked[key] = self._strangeness(own[None])[0].flatten()
        if len(known) + len(ranked) < _LEAST or not ranked:
            raise _too_few(len(known) + len(ranked))
        self._ranks([ranked[key] for key in sorted(ranked)])
        self.guard = Guard(Averaged(self.classifier), witnesses=("strangeness", "appearance"))
        self.guard.fit(reference, nuisances=None, seed=seed, progress=progress)
        return self

    @property
    def fitted(self) -> FittedRegions:
        """What is known of the reference; an InputError before `fit`."""
        if self.guard is None:
            raise InputError("expected a guard that is fitted, got one that is not; call guard.fit(reference)")
        whole = self.guard.fitted
        ranks = min(whole.ranks, len(self._state["maxima"]))
        return FittedRegions(whole.count, ranks, (*whole.names, PART), whole.classes, whole.form)

    def check_model(self, classifier: Classifier) -> None:
        """Raise a ModelError for another model than the guard's own, or one with other weights.

        Args:
            classifier: The model.
        """
        own = self.classifier
        if classifier.model is not own.model and fingerprint(classifier) != fingerprint(own):
            raise ModelError(
                f"expected the model that the guard was fitted with ({own.name}), got {classifier.name}, which is "
                "another one; give that one, or fit a guard to this one"
            )

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the guard to a folder, as safetensors and JSON. The model itself is not in it.

        Args:
            folder: Where to write; it is made where it is missing.

        Examples:
            >>> from tempfile import TemporaryDirectory
            >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Conv2d(4, 5, 1))
            >>> with TemporaryDirectory() as folder:
            ...     RegionGuard(network).fit(torch.rand(300, 3, 8, 8)).save(folder)
            ...     RegionGuard.load(folder, network)
            RegionGuard(Sequential; fitted to 300 pictures)
        """
        from nescio.dense.region_saving import save

        save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str], model: ModelLike) -> RegionGuard:
        """Read a guard that was saved.

        Args:
            folder: What `save` wrote.
            model: The model that the guard was fitted with, with the same weights.

        Returns:
            The guard, fitted.

        Raises:
            ModelError: The model is another one, or has other weights.
            InputError: The folder holds no such guard, or a damaged one.
        """
        from nescio.dense.region_saving import load

        return load(folder, model)

    def __repr__(self) -> str:
        state = "not fitted" if self.guard is None else f"fitted to {self.guard.fitted.count} pictures"
        return f"RegionGuard({self.classifier.name}; {state})"

    def check(self, x: Data | Rows, *, progress: bool | None = None) -> RegionVerdict:
        """Judge pictures and their regions.

        Args:
            x: A tensor of pictures, or an iterable of batches, of the size of the reference.
            progress: Whether a bar is shown; None shows none.

        Returns:
            The verdict, on the CPU.

        Raises:
            InputError: The guard is not fitted, or the pictures have another size.
        """
        assert self.fitted and self.guard is not None
        parts, verdicts = [], []
        for batch in inputs.batches(x):
            verdicts.append(self.guard.check(batch, progress=progress or False))
            for block in _blocks(batch):
                with preserved(self.classifier), predicting(self.classifier):
                    given = self.classifier.prepare(block)
                    seen = region_features(self.classifier, given, self.layer, self.grid)
                    parts.append(self._verdict(self._strangeness(seen.features), seen, verdicts[-1]))
        return joined(parts, joined_verdicts(verdicts))

    def _verdict(self, score: Tensor, seen: Seen, whole: Any) -> RegionVerdict:
        values, shares, maxima = (self._state[name] for name in ("values", "shares", "maxima"))
        n, flat = len(maxima), score.flatten()
        at = positions(values, flat - _SAME * (1.0 + flat.abs()))
        p = (1.0 + shares[at]) / (n + 1.0)
        largest = (1.0 + at_least(maxima, score.flatten(1).amax(1)).double()) / (n + 1.0)
        return RegionVerdict(score, p.reshape(score.shape), largest, n, whole, seen.predicted, seen.confidence)

    def _ranks(self, scores: list[Tensor]) -> None:
        """Keep the sorted strangeness of all regions, what of the pictures lies at or beyond each, and the maxima."""
        flat = torch.cat(scores)
        weights = torch.cat([torch.full_like(own, 1.0 / len(own)) for own in scores])
        order = flat.argsort()
        beyond = weights[order].flip(0).cumsum(0).flip(0)
        self._state["values"], self._state["shares"] = flat[order], torch.cat([beyond, beyond.new_zeros(1)])
        self._state["maxima"] = torch.stack([own.max() for own in scores]).sort().values

    def _strangeness(self, features: Tensor) -> Tensor:
        """How far regions ``[n, h, w, D]`` are from the remembered ones, float64 ``[n, h, w]`` on the CPU."""
        known = {name: value.to(features.device) for name, value in self._state.items() if name == "features"}
        rows = self.witness.rows(features.flatten(0, -2))
        return self.witness.measure(known, rows)[:, 0].reshape(features.shape[:-1]).cpu()

    def _read(self, reference: Data | Rows, seed: int, half: int) -> Iterator[tuple[list[bytes], Tensor]]:
        """The content's hash and the features of the pictures of one half."""
        with preserved(self.classifier), predicting(self.classifier):
            for batch, _ in blocks(reference, _AT_ONCE):
                keys = digests(batch, seed)
                own = [at for at, key in enumerate(keys) if key[0] % 2 == half]
                for start in range(0, len(own), step := at_once(batch, None)):
                    some = own[start : start + step]
                    given = self.classifier.prepare(inputs.take(batch, some))
                    seen = region_features(self.classifier, given, self.layer, self.grid)
                    yield [keys[at] for at in some], seen.features


def _blocks(batch: Inputs) -> Iterator[Inputs]:
    for start in range(0, inputs.size(batch), step := at_once(batch, None)):
        yield inputs.take(batch, slice(start, start + step))


def _drawn(rows: Tensor, key: bytes, most: int) -> Tensor:
    """Some regions of a picture, chosen by its content; on the CPU."""
    if len(rows) <= most:
        return rows.cpu()
    chosen = np.random.default_rng(list(key)).choice(len(rows), most, replace=False)
    return rows[torch.from_numpy(np.sort(chosen)).to(rows.device)].cpu()


def _thinned(parts: list[Tensor], most: int) -> Tensor | None:
    """At most so many regions in all, as many of each picture; None of no picture."""
    if not parts:
        return None
    each = max(1, most // len(parts))
    kept = [part[torch.linspace(0, len(part) - 1, min(each, len(part))).round().long()] for part in parts]
    return torch.cat(kept)[:most]


def _too_few(count: int) -> InputError:
    return InputError(
        f"expected a reference of at least {_LEAST} different pictures, got {count}; give some hundred of the kind "
        "that the model is meant for"
    )
