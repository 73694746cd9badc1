"""Models that answer at every position are not explained: their doubt has a place already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.positions import PositionsFound
from nescio.modes import predicting, preserved
from nescio.types import ModelError, NescioError, Posterior


@contextmanager
def refusing_positions(posterior: Posterior, x: Inputs) -> Iterator[None]:
    """Where the block fails because a network answers at every position, raise a ModelError that says what to do.

    Args:
        posterior: The distribution that is to be explained.
        x: A batch.
    """
    try:
        yield
    except NescioError as error:
        own = next(iter(getattr(posterior, "classifiers", ())), None)
        if not isinstance(own, Classifier) or not _everywhere(own, inputs.take(x, slice(0, 1))):
            raise
        raise ModelError(
            f"expected a model with one answer for each input, got {own.name}, which answers at every position: its "
            "doubt has a place already. nescio.score (nescio score --maps FOLDER) gives a map of it; to see which "
            "pixels cause the doubt of the whole, explain a model that returns model(x).mean((2, 3))"
        ) from error


def _everywhere(classifier: Classifier, x: Inputs) -> bool:
    if classifier.dense:
        return True
    try:
        with preserved(classifier), predicting(classifier):
            classifier.logits(classifier.prepare(x))
    except PositionsFound:
        return True
    except NescioError:
        return False
    return False
