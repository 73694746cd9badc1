"""Policies to choose from on the page: the one that was given, and those that known inputs allow to make.

Each is a name and a function from the method that judges to a policy. With labels of known inputs there are policies
with a promise about errors, and sets of answers; without, those that keep a share of what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from nescio import decide
from nescio.app.opinion import AnyPolicy
from nescio.app.reference import Scale
from nescio.decide import Policy
from nescio.decide.policy import percent
from nescio.serve.engine import Engine
from nescio.types import InputError

NONE = "no rule: by the kinds of doubt"
RISKS, KEEPS, COVERAGES = (0.02, 0.05), (0.9, 0.95, 0.99), (0.9, 0.99)


@dataclass(frozen=True)
class Policies:
    """What may be chosen; given: a policy with what it is called, which judges by the engine's own method."""

    engine: Engine
    scale: Scale | None
    given: tuple[str, AnyPolicy] | None = None

    @cached_property
    def _made(self) -> Mapping[str, tuple[str, float]]:
        """Names of those that are made here, with their kind and number."""
        made: dict[str, tuple[str, float]] = {}
        if self.scale is not None and self.scale.labels is not None:
            made |= {f"at most {percent(risk)} wrong answers": ("risk", risk) for risk in RISKS}
            made |= {f"a set of answers, right for {percent(c)}": ("coverage", c) for c in COVERAGES}
        if self.scale is not None:
            made |= {f"accept {percent(keep)} of what is known": ("keep", keep) for keep in KEEPS}
        return made

    @property
    def names(self) -> list[str]:
        """To choose from; the first is the default."""
        return [*([] if self.given is None else [self.given[0]]), *self._made, NONE]

    @property
    def judges(self) -> list[str]:
        """The methods that a policy may judge by."""
        return list(self.engine.methods)

    def chosen(self, name: str | None, by: str | None = None) -> tuple[AnyPolicy, str | None]:
        """The policy of that name, and the method whose score it judges; None for what it does not need."""
        by = by if by is not None else self.judges[0]
        if name is None or name == NONE:
            return None, None
        if self.given is not None and name == self.given[0]:
            return self.given[1], self.engine.decider
        if name not in self._made or by not in self.judges:
            raise InputError(
                f"expected one of the policies and methods of the page, got {name!r:.80} by {by!r:.40}; "
                "load the page again"
            )
        assert self.scale is not None
        kind, number = self._made[name]
        if kind == "coverage":
            return decide.conformal(self.scale.probabilities, self.scale.labels, number), None
        about, values = {"score": by}, self.scale.values[by]
        if kind == "risk":
            return decide.threshold(values, self.scale.right, number, about=about), by
        found: Policy = decide.quantile(values, number, about=about)
        return found, by
