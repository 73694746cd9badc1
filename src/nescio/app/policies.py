"""Policies to choose from on the page: the one that was given, and those that labels of known inputs allow to make.

A policy asks another question than the guard: not whether the input is foreign, but whether the answer may be used.
Each is a name and a function from the method that judges to a policy, with a promise about errors, or sets of answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from nescio import decide
from nescio._common.formatting import percent
from nescio.app.doubt_scale import Scale
from nescio.app.opinion import AnyPolicy
from nescio.serve.engine import Engine
from nescio.types import InputError

NONE = "no rule for answers"
RISKS, COVERAGES = (0.02, 0.05), (0.9, 0.99)


@dataclass(frozen=True)
class Policies:
    """What may be chosen; given: a policy with what it is called, which judges by the engine's own method."""

    engine: Engine
    scale: Scale | None
    given: tuple[str, AnyPolicy] | None = None

    @cached_property
    def _built_in(self) -> Mapping[str, tuple[str, float]]:
        """Names of those that are made here, with their kind and number."""
        made: dict[str, tuple[str, float]] = {}
        if self.scale is not None and self.scale.labels is not None:
            made |= {f"at most {percent(risk)} wrong answers": ("risk", risk) for risk in RISKS}
            made |= {f"a set of answers, right for {percent(c)}": ("coverage", c) for c in COVERAGES}
        return made

    @property
    def names(self) -> list[str]:
        """Return the names to choose from; the first is the default."""
        return [*([] if self.given is None else [self.given[0]]), NONE, *self._built_in]

    @property
    def judges(self) -> list[str]:
        """Return the methods that a policy may judge by."""
        return list(self.engine.methods)

    def policy_named(self, name: str | None, by: str | None = None) -> tuple[AnyPolicy, str | None]:
        """Return the policy of that name, and the method whose score it judges; None for what it does not need."""
        by = by if by is not None else self.judges[0]
        if name is None or name == NONE:
            return None, None
        if self.given is not None and name == self.given[0]:
            return self.given[1], self.engine.decider
        if name not in self._built_in or by not in self.judges:
            raise InputError(
                f"expected one of the policies and methods of the page, got {name!r:.80} by {by!r:.40}; "
                "load the page again"
            )
        assert self.scale is not None
        labels, right = self.scale.labels, self.scale.right
        assert labels is not None and right is not None  # else no policy was made
        kind, number = self._built_in[name]
        if kind == "coverage":
            return decide.conformal(self.scale.probabilities, labels, number), None
        return decide.threshold(self.scale.values[by], right, number, about={"score": by}), by
