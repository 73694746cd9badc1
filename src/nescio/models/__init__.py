"""Models: any classifier seen as one function from inputs to logits (`Classifier`), and loading of checkpoints."""

from nescio.models.classifier import Classifier, ModelLike, ModelOrPosterior
from nescio.models.load import load
from nescio.models.sources.onnx_models import from_onnx
from nescio.models.structure import coupled_modules, named_modules, parameter_places, replaced, unwrap
from nescio.models.weights import read_weights

__all__ = [
    "Classifier",
    "ModelLike",
    "ModelOrPosterior",
    "coupled_modules",
    "from_onnx",
    "load",
    "named_modules",
    "parameter_places",
    "read_weights",
    "replaced",
    "unwrap",
]
