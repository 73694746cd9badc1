"""What a guard can look at in a model: its features, its depths, and what kind of inputs it takes."""

from __future__ import annotations

from torch import Tensor

from nescio import inputs
from nescio.guard.witnesses import Anatomy
from nescio.guard.witnesses.base import Kind
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.activations import WIDEST, depths
from nescio.models.features import listen
from nescio.modes import predicting
from nescio.quantities import Activations, Features
from nescio.types import Depth, ModelError

_INPUT = Depth("", 1)


def anatomy_of(classifier: Classifier, x: Inputs) -> Anatomy:
    """Find what there is to look at, from forward passes over a few of the inputs.

    The features are the input of the last linear layer; in a model without one, the deepest activation. Vectors are
    looked at as they are, too, as one more depth.
    """
    kind = _kind(x)
    few = inputs.take(x, slice(0, 3))
    if inputs.size(few) < 2:
        few = inputs.repeat(few, 2)
    few = classifier.prepare(few)
    with predicting(classifier):
        places = depths(classifier, few)
        features: Features | None = Features()
        try:
            listen(classifier, few, [None])
        except ModelError:
            features = Features(places[-1].layer) if places else None
    if kind == "vectors":
        places = (_INPUT, *places)
    return Anatomy(features, Activations(places), kind)


def _kind(x: Inputs) -> Kind:
    if any(value.ndim == 4 for value in inputs.tensors(x)):
        return "pictures"
    if not inputs.is_floating(x):
        return "tokens"
    return "vectors" if isinstance(x, Tensor) and x.ndim == 2 and x.shape[1] <= WIDEST else "signals"
