"""The networks under a model that is served: what methods are fitted with, and what a guard judges."""

from __future__ import annotations

from collections.abc import Sequence

from nescio.models import Classifier
from nescio.models.sources import Source
from nescio.scores import Method
from nescio.scoring import fit
from nescio.specs import Pairs
from nescio.types import ModelError


def fitted(source: Source, methods: Sequence[Method], training: Pairs) -> list[Method]:
    """Fit those of the methods that have to be, with the first network of a source.

    Args:
        source: The model.
        methods: The scores.
        training: Labelled batches.
    """
    return fit(networks(source)[0], list(methods), training)


def networks(source: Source) -> list[Classifier]:
    """Return the networks under a source: its model, or those that a distribution runs."""
    single = isinstance(source.model, Classifier)
    return list(getattr(source.model, "classifiers", [source.model] if single else []))


def guarded(source: Source) -> Classifier:
    """Return the network that a guard of this source judges; raise a ModelError where there is not one."""
    under = networks(source)
    if len(under) != 1:
        raise ModelError(
            f"expected a single network for a guard, got {source.about}, which has {len(under)}; leave the guard out, "
            "or name one network"
        )
    return under[0]
