"""`nescio.pipeline`: the pipeline of transformers for images and texts, whose answers also say how far to trust them.

    pipe = nescio.pipeline("image-classification", "folder", reference=pictures)
    pipe("cat.jpg")     [{"label": "cat", "score": 0.93, "doubt": 0.8, "p_value": 0.41, "foreign": False}, …]

It is called as `transformers.pipeline` is, and gives the same labels and scores in the same form. What it adds belongs
to the input, so it is the same in all dictionaries of one input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nescio import scores
from nescio._common.argument_checks import integer
from nescio._common.lazy_imports import need
from nescio.data.sources import open_data
from nescio.guard import Guard, joined
from nescio.guard.promise import check_level
from nescio.inputs import Data, Inputs, describe
from nescio.models import Classifier
from nescio.models.sources import Preprocess, Source, open_model
from nescio.models.sources.base import Opened
from nescio.models.sources.huggingface import pictures_of, texts_of
from nescio.models.sources.model_opening import with_own_settings
from nescio.quantities.beside import Beside
from nescio.scores import Method
from nescio.scores import base as score_base
from nescio.scoring import score
from nescio.types import InputError, ModelError

KINDS = {"image-classification": "pictures", "text-classification": "texts", "sentiment-analysis": "texts"}
"""What a row is, by the task."""
_USUAL: Any = object()
"""As many labels as the pipeline of transformers gives."""


def pipeline(
    task: str,
    model: Any,
    *,
    tokenizer: Any = None,
    image_processor: Any = None,
    reference: Data | None = None,
    guard: Any = None,
    level: float = 0.05,
    method: str | Method = "gen",
    device: str | torch.device | None = None,
    batch_size: int = 8,
) -> Pipeline:
    """Make a pipeline that classifies like that of transformers, and says how far to trust each answer.

    Args:
        task: "image-classification", "text-classification" or "sentiment-analysis".
        model: A folder of `save_pretrained`, an id of the Hugging Face Hub, or a model of transformers.
        tokenizer: For a model of texts that is given as an object; a folder brings its own.
        image_processor: For a model of images that is given as an object, likewise.
        reference: Some hundred inputs of the kind that the model is meant for and was not trained on, to fit a guard:
            a list of what the pipeline is called with, or the path of a folder of pictures or of a table.
        guard: Instead of a reference, a fitted guard, or the folder where one was saved
            (``pipe.guard.save(folder)``).
        level: The share of inputs like the reference that may be called foreign by mistake.
        method: The score that is given as doubt: a name of `nescio.methods()`, or such an object.
        device: Where the model runs; None leaves it where it is.
        batch_size: How many inputs go through the model at once. Answers do not depend on it.

    Returns:
        The pipeline.

    Raises:
        InputError: The task is not one of these, or the reference or the level cannot be used.
        ModelError: The model is not one of transformers for that task, or the guard belongs to another model.

    Examples:
        >>> from PIL import Image
        >>> from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        >>> model = ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, **sizes))
        >>> processor = ViTImageProcessor(size={"height": 8, "width": 8})
        >>> pipe = nescio.pipeline("image-classification", model, image_processor=processor)
        >>> sorted(pipe(Image.new("RGB", (8, 8)))[0])
        ['doubt', 'foreign', 'label', 'p_value', 'score']
        >>> nescio.pipeline("translation", "folder")
        Traceback (most recent call last):
        nescio.types.InputError: expected the task to be one of image-classification, ...
    """
    if task not in KINDS:
        raise InputError(f"expected the task to be one of {', '.join(KINDS)}, got {task!r}")
    integer("batch_size", batch_size, at_least=1)
    if reference is not None and guard is not None:
        raise InputError("expected a reference or a guard, got both; leave one of them out")
    source = _source(model, task, tokenizer, image_processor)
    if device is not None:
        for root in _network(source).roots:
            root.to(device)
    pipe = Pipeline(task, source, level=level, method=method, batch_size=batch_size)
    if reference is not None:
        pipe.fit(reference)
    elif guard is not None:
        pipe.use(guard if isinstance(guard, Guard) else Guard.load(guard, pipe.classifier))
    return pipe


class Pipeline:
    """Classify images or texts; `pipeline` makes it.

    Attributes:
        task: What it does.
        classifier: The model, with its normalisation inside.
        guard: What says whether an input is foreign; None where neither a reference nor a guard was given.
        level: The share of false alarms of `foreign`.
        method: The score that is given as doubt.

    Examples:
        >>> from PIL import Image
        >>> from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        >>> model = ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, **sizes))
        >>> processor = ViTImageProcessor(size={"height": 8, "width": 8})
        >>> pipe = nescio.pipeline("image-classification", model, image_processor=processor)
        >>> len(pipe([Image.new("RGB", (8, 8))] * 3))
        3
    """

    def __init__(self, task: str, source: Source, *, level: float, method: str | Method, batch_size: int) -> None:
        assert source.preprocess is not None
        self.task, self.level, self.batch_size = task, level, batch_size
        self.classifier = _network(source)
        self.preprocess: Preprocess = source.preprocess
        self.method = score_base.without_tolerance(scores.get(method), noise=self.preprocess.kind == "pictures")
        self.guard: Guard | None = None
        config = getattr(self.classifier.module, "config", None)
        self.labels = [str(label) for _, label in sorted(config.id2label.items())] if config is not None else []

    def fit(self, reference: Data) -> Pipeline:
        """Fit a guard.

        Args:
            reference: Inputs of the kind that the model is meant for; see `pipeline`.

        Returns:
            The pipeline itself.
        """
        if isinstance(reference, str | PathLike):
            rows: Any = open_data(reference, preprocess=self.preprocess, classes=self.labels)
        elif isinstance(reference, Iterable) and not isinstance(reference, Mapping | Tensor | np.ndarray):
            rows = (batch for _, batch in self._batches(reference, self.batch_size))
        else:
            raise InputError(
                "expected the reference to be a list of inputs, or the path of a folder or table, got "
                f"{describe(reference)}"
            )
        self.use(Guard(self.classifier).fit(rows))
        return self

    def use(self, guard: Guard) -> None:
        """Take a guard that is fitted to this model.

        Args:
            guard: The guard.
        """
        check_level(self.level, guard.fitted.ranks)
        guard.check_model(self.classifier)
        self.guard = guard

    def __call__(self, inputs: Any, *, top_k: int | None = _USUAL, batch_size: int | None = None) -> Any:
        """Classify.

        Args:
            inputs: One input or a list: paths, addresses or pictures of Pillow; texts, or mappings of ``text`` and
                ``text_pair``. A generator or data set gives its answers one by one.
            top_k: How many labels are given for each input; left out, 5 for images and 1 for texts, as in transformers.
            batch_size: As in `pipeline`.

        Returns:
            For each input a list of dictionaries with ``label`` and ``score``, the likeliest first, and with ``doubt``
            (higher = more uncertain), ``p_value`` (small = unlike the reference) and ``foreign``. Without a guard the
            last two are None: nothing is known of what the model is meant for. For texts without ``top_k`` a list of
            dictionaries, one for each text.

        Raises:
            InputError: An input cannot be read.
        """
        if top_k is not _USUAL and top_k is not None:
            integer("top_k", top_k, at_least=1)
        texts = self.preprocess.kind == "texts"
        one_each = texts and top_k is _USUAL
        most = (None if texts else 5) if top_k in (None, _USUAL) else top_k
        several, lazy = isinstance(inputs, list | tuple), _is_stream(inputs)
        answers = self._answers(inputs if several or lazy else [inputs], batch_size or self.batch_size, most)
        if one_each:
            answers = (labels[0] for labels in answers)
        if lazy:
            return answers
        given = list(answers)
        return given if several or (one_each and isinstance(inputs, str)) else given[0]

    def __repr__(self) -> str:
        if self.guard is None:
            rest = "no guard: p_value and foreign are None; give reference=… or guard=…"
        else:
            rest = f"guard fitted to {self.guard.fitted.count} inputs, level {self.level:g}"
        return f"nescio.pipeline({self.task!r}, {self.classifier.name}, doubt by {self.method.name}, {rest})"

    def _answers(self, rows: Iterable[Any], size: int, most: int | None) -> Iterator[Any]:
        """For each row its list of labels."""
        for count, batch in self._batches(rows, size):
            beside = Beside(() if self.guard is None else self.guard.requests)
            if self.guard is not None:
                self.guard.refuse_another_form(batch)
            doubt = score(self.classifier, batch, [self.method, beside], progress=False)[self.method.name].tolist()
            p = beside.logits.double().softmax(1)
            likeliest = p.topk(min(most or p.shape[1], p.shape[1]), dim=1)
            verdict = None if self.guard is None else joined([self.guard.judge(part) for part in beside.parts])
            foreign = [None] * count if verdict is None else verdict.foreign(self.level).tolist()
            p_values = [None] * count if verdict is None else verdict.p_value.tolist()
            for i in range(count):
                added = {"doubt": doubt[i], "p_value": p_values[i], "foreign": foreign[i]}
                places = zip(likeliest.indices[i].tolist(), likeliest.values[i].tolist(), strict=True)
                yield [{"label": self.labels[c], "score": share, **added} for c, share in places]

    def _batches(self, rows: Iterable[Any], size: int) -> Iterator[tuple[int, Inputs]]:
        """Batches of so many rows, ready for the model, with their numbers of rows."""
        iterator = iter(rows) if isinstance(rows, Iterable) else (rows[i] for i in range(len(rows)))
        while part := list(islice(iterator, size)):
            ready = [self.preprocess(self._loaded(row)) for row in part]
            yield len(ready), self.preprocess.collate(ready)

    def _loaded(self, row: Any) -> Any:
        """A picture by its path or address, as transformers loads it; anything else as it is."""
        if self.preprocess.kind == "texts" or not isinstance(row, str | PathLike):
            return row
        try:
            return need("transformers.image_utils", "hf").load_image(str(row))
        except (OSError, ValueError) as error:
            raise InputError(f"expected a picture at {row}, but it cannot be read: {error}") from error


def _is_stream(inputs: Any) -> bool:
    """Whether it is a generator or a data set, whose answers are given one by one; a picture of Pillow is neither."""
    if isinstance(inputs, str | list | tuple | Mapping | Tensor | np.ndarray) or hasattr(inputs, "convert"):
        return False
    return isinstance(inputs, Iterable) or (hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__"))


def _source(model: Any, task: str, tokenizer: Any, image_processor: Any) -> Source:
    """The model with its pre-processing, from a folder, an id or objects."""
    kind = KINDS[task]
    if isinstance(model, str | PathLike):
        if tokenizer is not None or image_processor is not None:
            raise InputError(
                "expected no tokenizer or image_processor beside a folder, which has its own; leave it out"
            )
        source = open_model(f"hf:{model}")
    else:
        source = _of_objects(model, kind, tokenizer, image_processor)
    if source.kind != kind:
        raise ModelError(f"expected a model of {kind} for {task}, got {source.about}, which is for {source.kind}")
    config = getattr(_network(source).module, "config", None)
    problem = getattr(config, "problem_type", None)
    labels = getattr(config, "num_labels", 0)
    if problem in ("regression", "multi_label_classification") or labels < 2:
        what = (problem or f"{labels} label").replace("_", " ")
        raise ModelError(f"expected a classifier with labels of which one is right, got a model of {what}")
    return source


def _of_objects(model: Any, kind: str, tokenizer: Any, image_processor: Any) -> Source:
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise ModelError(f"expected a folder, an id, or a model of transformers, got {describe(model)}")
    name = type(model).__name__
    word, given = ("tokenizer", tokenizer) if kind == "texts" else ("image_processor", image_processor)
    if given is None:
        raise InputError(f"expected {word}=… beside the model {name}, got none; or give the folder that holds both")
    if kind == "pictures":
        return with_own_settings(Opened(model, name, pictures_of(given)), None, (None, None, None, None))
    if given.pad_token_id is None or getattr(model.config, "pad_token_id", None) is None:
        raise ModelError(
            f"expected a tokenizer and a configuration with a token for padding, got none for {name}; set "
            "tokenizer.pad_token = tokenizer.eos_token and model.config.pad_token_id = tokenizer.pad_token_id"
        )
    return with_own_settings(Opened(model, name, texts_of(given, model.config, name)), None, (None, None, None, None))


def _network(source: Source) -> Classifier:
    assert isinstance(source.model, Classifier)  # transformers has no others
    return source.model
