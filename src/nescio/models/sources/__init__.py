"""Any model by one word: where it comes from, what it does to a row of data first, and the names of its classes.

    source = open_model("torchvision:resnet18", "weights.safetensors")
    source.model        a Classifier, with the normalisation of pictures inside
    source.preprocess   from one row (a picture, a text, an array) to what the model takes; None: not known
    source.classes      the names of the classes, or None
    source.about        in words what it is

    open_model(spec, weights=None, *, trust_pickle=False, output=None,
               size=None, crop=None, mean=None, std=None, task=None) -> Source

spec                      what it is
``torchvision:NAME``      a model of torchvision, with the transform of its published weights
``timm:NAME``             a model of timm, with its data configuration
``hf:PATH-OR-ID``         a classifier of images, texts, pixels or tokens of transformers, with its processor
``FILE.onnx``             a model of ONNX, compared with onnxruntime first
``FILE.pt2``              an archive of torch.export
``package.module:name``   a function that makes a model, a Classifier or a module; its ``.transform``, where it has one

A trained network or a saved posterior is opened by `nescio.specs.saved_models.open_source`, which takes these too.

Preprocess, for whoever feeds the model (``nescio.data.sources`` does): ``kind`` is "pictures", "texts" or "numbers";
``preprocess(row)`` gives the tensor or mapping of one row, without a batch dimension, and may be called from several
threads; ``preprocess.collate(rows)`` makes a batch of them; ``str(preprocess)`` is one line for people. Pictures come
out with values in [0, 1]: mean and standard deviation are the model's own first step, so that noise and maps are in
the units of the picture.
"""

from nescio.models.sources.base import Numbers, Preprocess, Source
from nescio.models.sources.model_opening import open_model
from nescio.models.sources.picture_transform import Normalise, Pictures, Transformed
from nescio.models.sources.texts import Texts

__all__ = ["open_model", "Source", "Preprocess", "Pictures", "Transformed", "Texts", "Numbers", "Normalise"]
