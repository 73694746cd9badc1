"""What the service knows of an input: probabilities, doubt, scores, verdict, map; the same whatever it is joined with.

**Batches.** Sums in float32 are added in another order for another shape of batch, which moves a score by some 1e-6. So
every pass has exactly `rows` inputs of one shape: more are cut, and what is missing is filled up with copies of the
last one. Inputs of other shapes (texts of another length) go into passes of their own, never padded to each other.
Methods that look at a batch to choose what they estimate (a tolerance) are computed exactly. Maps are made one by one.
A distribution predicts each input alone: its sums over samples are added in an order that depends on the place too.

**Doubt.** With a distribution over predictions: total, aleatoric and epistemic. A single network has the total alone.
Methods that need nothing but probabilities score the distribution where there is one, the others the network.

**The guard** judges the network. Probabilities, scores and the verdict come from one forward pass of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nescio import attribution, scores
from nescio._common.formatting import percent
from nescio._common.lazy_imports import need
from nescio.attribution import Attribution
from nescio.attribution.uncertainty import Of
from nescio.decide import ConformalPolicy, Policy
from nescio.dense import RegionGuard, RegionVerdict
from nescio.guard import Verdict, joined
from nescio.guard.promise import usual_level
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.sources import Source
from nescio.posteriors import Deterministic
from nescio.quantities import Logits, Predictions
from nescio.quantities.beside import Beside
from nescio.scores import Method
from nescio.scores.base import without_tolerance
from nescio.scores.decomposition import decompose
from nescio.scoring import score
from nescio.serve import everywhere
from nescio.serve.known_probabilities import KnownProbabilities
from nescio.serve.networks import guarded, networks
from nescio.serve.row_batches import Shape, shape_of, stacked
from nescio.specs import AnyGuard
from nescio.types import InputError, ModelError, Posterior

ROWS = 8
"""Inputs of a pass on a CPU: a lone request pays for so many, and more at once would gain little."""
MAPS = tuple(name for name in attribution.METHODS if "clue" not in name)
"""Methods of attribution that need nothing but the model."""

_FOLDERS = re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?[/\\](?:[^/\\,;:]+[/\\])*")
"""The folders of a path that begins at a root."""


@dataclass(frozen=True)
class Assessed:
    """Hold what is known of one input.

    Args:
        probabilities: Of the classes, ``[C]``.
        total: All doubt, in nats.
        aleatoric: The doubt of the data.
        epistemic: The doubt of the model.
        samples: How many predictions tell the kinds of doubt apart; 1 means that only the total is known.
        scores: Scores by method.
        verdict: What the guard says; None without one.
        parts: What it says of the regions of a picture, where the model answers at every position.
    """

    probabilities: Tensor
    total: float
    aleatoric: float
    epistemic: float
    samples: int
    scores: Mapping[str, float]
    verdict: Verdict | None = None
    parts: RegionVerdict | None = None


class Explained(NamedTuple):
    """Hold what is known of an input, and the map of its doubt."""

    known: Assessed
    attribution: Attribution


class Engine:
    """Answer questions about inputs: a model with the methods, the policy and the guard that it is asked by.

    Args:
        source: The model, or a distribution over it, as `nescio.specs.open_source` gives it.
        methods: Names or objects, fitted where they need it; None takes that of `nescio.scores.default_method`.
        posterior: A distribution for the doubt, where the source is a single network.
        policy: Which answers to accept.
        guard: Which inputs are foreign; fitted to the same network.
        rows: How many inputs a pass has; None means 8 on a CPU, else 32.

    Examples:
        >>> from nescio.models.sources import Numbers, Source
        >>> network = torch.nn.Linear(4, 3, bias=False)
        >>> _ = torch.nn.init.eye_(network.weight)
        >>> source = Source(nescio.Classifier(network), Numbers(), "a layer", ("a", "b", "c"))
        >>> engine = nescio.serve.Engine(source, ["entropy"])
        >>> (known,) = engine.assess([torch.tensor([9.0, 0.0, 0.0, 0.0])], ["entropy"])
        >>> round(float(known.probabilities[0]), 3), round(known.scores["entropy"], 3)
        (1.0, 0.002)
    """

    def __init__(
        self,
        source: Source,
        methods: Sequence[str | Method] | None = None,
        *,
        posterior: Posterior | None = None,
        policy: Policy | ConformalPolicy | None = None,
        guard: AnyGuard | None = None,
        rows: int | None = None,
    ) -> None:
        single = isinstance(source.model, Classifier)
        if not single and posterior is not None:
            raise InputError("expected one distribution, got a source that is one already and a posterior beside it")
        self.source, self.policy, self.guard = source, policy, guard
        self.posterior: Any = posterior if single else source.model
        under = networks(source)
        self.network = under[0] if len(under) == 1 else None
        if guard is not None:
            guarded(source)
            guard.check_model(under[0])
        self._positions: bool | None = None
        self.predicts: Any = Deterministic(under[0]) if self.posterior is None else self.posterior
        device = under[0].device if under else None
        self.rows = rows or (ROWS if device is None or device.type == "cpu" else 32)
        noise = self.kind != "texts"
        chosen = [
            without_tolerance(scores.get(method), noise) for method in (methods or [scores.default_method().name])
        ]
        self.methods: dict[str, Method] = {method.name: method for method in chosen}
        self.decider: str | None = None
        """The method whose score the policy judges."""
        if isinstance(policy, Policy):
            self.decider = policy.about.get("score", next(iter(self.methods)))
            if self.decider not in self.methods:
                self.methods[self.decider] = without_tolerance(scores.get(self.decider), noise)
        for name in self.methods:
            self.whose(name)

    @property
    def kind(self) -> str | None:
        """Return what an input is: "pictures", "texts" or "numbers"; None where the source says nothing of it."""
        return self.source.kind

    @property
    def about(self) -> str:
        """Return what the model is, for others: without the folders of this machine."""
        return _FOLDERS.sub("", self.source.about)

    def name(self, place: int) -> str | None:
        """Return the name of a class, where it is known.

        Args:
            place: Which class.

        Returns:
            The name, or None.
        """
        classes = self.source.classes
        return classes[place] if classes is not None and place < len(classes) else None

    def predict(self, batch: Inputs) -> Tensor:
        """Return probabilities ``[S, N, C]`` of a batch; S = 1 for a single network.

        Args:
            batch: The inputs.

        Returns:
            The probabilities.
        """
        probabilities: Tensor = self.predicts.predict(batch, progress=False)
        return probabilities

    @property
    def level(self) -> float | None:
        """Return the share of known inputs that the guard flags unless another is asked for; None without a guard."""
        return None if self.guard is None else usual_level(self.guard.fitted.ranks)

    @property
    def about_guard(self) -> str | None:
        """Return in a phrase what inputs are compared with; None without a guard."""
        if self.guard is None or self.level is None:
            return None
        fitted = self.guard.fitted
        names = ", ".join(fitted.names)
        flagged = f"at most {percent(self.level)} of inputs like it are flagged"
        return f"a reference of {fitted.count} inputs; {flagged}; witnesses: {names}"

    def assess(self, rows: Sequence[Inputs], methods: Sequence[str] = ()) -> list[Assessed]:
        """Find what is known of each row.

        Args:
            rows: The inputs, each without a batch dimension.
            methods: The scores that are wanted.

        Returns:
            One for each row, with a verdict where there is a guard.
        """
        if rows and self.everywhere(rows[0]):
            return [everywhere.assessed(self, row, methods) for row in rows]
        groups: dict[Shape, list[int]] = {}
        for place, row in enumerate(rows):
            groups.setdefault(shape_of(row), []).append(place)
        assessed: dict[int, Assessed] = {}
        for places in groups.values():
            for start in range(0, len(places), self.rows):
                some = places[start : start + self.rows]
                assessed.update(zip(some, self._pass([rows[place] for place in some], methods), strict=True))
        return [assessed[place] for place in range(len(rows))]

    def explain(self, row: Inputs, of: Of | None = None, method: str = "ua_backprop") -> Explained:
        """Find where the doubt of an input comes from.

        Args:
            row: The input.
            of: The kind of doubt; None means epistemic, or total where that is all.
            method: One of `MAPS`.

        Returns:
            The map and its words.
        """
        if method not in MAPS:
            raise InputError(f"expected method to be one of {', '.join(MAPS)}, got {method!r}")
        known = self.assess([row], () if self.decider is None else (self.decider,))[0]
        if self.everywhere(row) and method != "ua_backprop":
            raise InputError(
                f"expected no method, got {method!r}: the model answers at every position, and the map is the doubt at "
                "each"
            )
        if of in ("aleatoric", "epistemic") and known.samples == 1:
            raise InputError(
                f"expected of to be total, got {of}: the model is a single network, whose doubt cannot be told apart; "
                "give a distribution over it (--posterior)"
            )
        kind: Of = of or ("total" if known.samples == 1 else "epistemic")
        if self.everywhere(row):
            return Explained(known, everywhere.doubts(self, row, [kind])[kind])
        return Explained(known, attribution.explain(self.predicts, stacked([row], 1), method, of=kind, progress=False))

    def everywhere(self, row: Inputs) -> bool:
        """Whether the model answers at every position; found out with the first row that it takes.

        Args:
            row: An input.

        Returns:
            True where it does.
        """
        if isinstance(row, Tensor) and row.ndim < 2 and row.is_floating_point():
            return False  # a row of numbers
        if self._positions is None:
            try:
                self._positions = self.predict(stacked([row], 1)).ndim > 3
            except (InputError, ModelError):
                return False  # what is asked says what is wrong
        return self._positions

    def warm_up(self) -> str | None:
        """Score a blank input, so that the first request need not wait for what is loaded once.

        Returns:
            What is wrong, in words, where that fails; None where all is well, or nothing is known of what an input is.
        """
        preprocess = self.source.preprocess
        if preprocess is None or preprocess.kind == "numbers":
            return None
        blank = "blank" if preprocess.kind == "texts" else need("PIL.Image", "serve").new("RGB", (64, 64))
        try:
            self.assess([preprocess(blank)], list(self.methods))
        except (InputError, ModelError) as error:
            return f"a blank input could not be scored: {error}"
        return None

    def _pass(self, rows: Sequence[Inputs], methods: Sequence[str]) -> list[Assessed]:
        """What is known of at most `self.rows` rows of one shape."""
        batch, guard = stacked(rows, self.rows), self.guard
        if isinstance(guard, RegionGuard):
            raise InputError("expected a guard of a model with one answer for each input, got one of regions")
        if guard is not None:
            guard.refuse_another_form(batch)
        wanted: list[Any] = [self.methods[name] for name in methods if self.whose(name) is self.network]
        beside = Beside(() if guard is None else guard.requests)
        try:
            if self.posterior is None or guard is not None:
                wanted.append(beside)
            values = score(self.network, batch, wanted, progress=False) if wanted and self.network is not None else {}
            if self.posterior is None:
                each = beside.logits.softmax(-1).unsqueeze(0).split(1, dim=1)[: len(rows)]
            else:
                each = tuple(self.predict(stacked([row], 1)) for row in rows)
        except InputError as error:
            raise InputError(f"{error} (the first dimension is the number of inputs handled together)") from error
        verdict = None if guard is None else joined([guard.judge(part) for part in beside.parts])
        values.pop(beside.name, None)
        results = []
        for at, p in enumerate(each):
            known = {name: float(column[at]) for name, column in values.items()}
            own = None if verdict is None else verdict[at : at + 1]
            results.append(self._row(p.contiguous(), known, methods, own))
        return results

    def _row(self, p: Tensor, values: dict[str, float], methods: Sequence[str], verdict: Verdict | None) -> Assessed:
        """What follows from the probabilities ``[S, 1, C]`` of one input, with the network's scores of it."""
        own = [self.methods[name] for name in methods if name not in values]
        others = score(KnownProbabilities(p), torch.zeros(1, 1), own, progress=False) if own else {}
        values = values | {name: float(one) for name, one in others.items()}
        doubt = decompose(p)
        total, aleatoric, epistemic = (float(part) for part in (doubt.total, doubt.aleatoric, doubt.epistemic))
        samples = len(p)
        if not getattr(self.predicts, "learnt", True):  # its spread says nothing of the model
            aleatoric, epistemic, samples = total, 0.0, 1
        scored = {name: values[name] for name in methods}
        return Assessed(p.mean(0)[0], total, aleatoric, epistemic, samples, scored, verdict)

    def whose(self, name: str) -> Any:
        """Return what a method scores: the distribution, or the network.

        Args:
            name: The name of the method.

        Returns:
            One of the two.
        """
        method: Any = self.methods[name]
        if self.posterior is not None and set(method.needs) <= {Logits(), Predictions()} and not method.needs_level:
            return self.posterior
        if self.network is None or Predictions() in method.needs:
            what = "a distribution" if self.network is not None else "a single network"
            raise InputError(
                f"expected methods that this model can do, got '{name}', which needs {what}; see `nescio methods`"
            )
        if getattr(method, "needs_training_data", False) and not method.is_fitted:
            raise InputError(f"expected '{name}' to be fitted to training data first, got it without")
        return self.network
