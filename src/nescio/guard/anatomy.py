"""What there is to look at in a model: its features, its depths, and what kind of inputs it takes."""

from __future__ import annotations

from torch import Tensor

from nescio import inputs
from nescio.guard.witnesses import Anatomy
from nescio.guard.witnesses.base import Kind
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.activation_statistics import WIDEST, depths
from nescio.models.feature_layer import listen
from nescio.modes import predicting
from nescio.quantities import Activations, Features
from nescio.types import Depth, ModelError

_INPUT = Depth("", 1)


def anatomy_of(classifier: Classifier, x: Inputs) -> Anatomy:
    """Find what there is to look at, with forward passes over a few of the inputs.

    The features are the input of the last linear layer; in a model without one, the deepest activation. Inputs that
    are vectors are one more depth themselves.

    Args:
        classifier: The model.
        x: Some inputs.

    Returns:
        Features, depths and the kind of the inputs.
    """
    kind = _kind(x)
    few = inputs.take(x, slice(0, 3))
    if inputs.size(few) < 2:
        few = inputs.repeat(few, 2)
    few = classifier.prepare(few)
    with predicting(classifier):
        layers = depths(classifier, few)
        features: Features | None = Features()
        try:
            listen(classifier, few, [None])
        except ModelError:
            features = Features(layers[-1].layer) if layers else None
    if kind == "vectors":
        layers = (_INPUT, *layers)
    return Anatomy(features, Activations(layers), kind)


def _kind(x: Inputs) -> Kind:
    """What kind the inputs are, from their shape and type."""
    if any(value.ndim == 4 for value in inputs.tensors(x)):
        return "pictures"
    if not inputs.is_floating(x):
        return "tokens"
    return "vectors" if isinstance(x, Tensor) and x.ndim == 2 and x.shape[1] <= WIDEST else "signals"
