"""Models: any classifier seen as one function from inputs to logits (`Classifier`), and loading of checkpoints."""

from nescio.models.classifier import Classifier
from nescio.models.structure import coupled_modules, named_modules, parameter_places, replaced, unwrap

__all__ = ["Classifier", "coupled_modules", "named_modules", "parameter_places", "replaced", "unwrap"]
