"""``hf:PATH-OR-ID``: a classifier of images, texts, pixels or tokens of transformers, with its processor or tokenizer.

A folder is read without the network and without executing code of its own. An id is fetched from the Hugging Face Hub
or its cache, and from the cache alone where the hub does not answer. `weights` replaces the weights of the folder,
which may then hold the configuration alone.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch

from nescio._common.lazy_imports import need
from nescio.models.sources.base import Opened, Preprocess
from nescio.models.sources.heads import Weights, size
from nescio.models.sources.picture_transform import Transformed
from nescio.models.sources.texts import Texts
from nescio.models.weights import fill, read_weights
from nescio.types import InputError, ModelError

TASKS = {
    "image-classification": ("ImageClassification", "AutoModelForImageClassification"),
    "text-classification": ("SequenceClassification", "AutoModelForSequenceClassification"),
    "token-classification": ("TokenClassification", "AutoModelForTokenClassification"),
    "text-generation": ("CausalLM", "AutoModelForCausalLM"),
    "image-segmentation": ("SemanticSegmentation", "AutoModelForSemanticSegmentation"),
}
"""What a model is for: the end of the names of such architectures, and what transformers opens them by."""


def find(name: str, weights: Weights | None, trust_pickle: bool, task: str | None = None) -> Opened:
    """The model of that folder or id; `task`: what it is for, where its configuration does not say it."""
    transformers = need("transformers", "hf")
    local = _folder(name) or not _answers()
    config = _read(name, local, "its configuration", transformers.AutoConfig)
    names = getattr(config, "architectures", None) or []
    task = _task(name, names, task)
    images, auto = task.startswith("image"), getattr(transformers, TASKS[task][1])
    if weights is None:
        model = _read(name, local, "its weights", auto)
    else:
        model = auto.from_config(config)
        fill(model, read_weights(weights, trust_pickle=trust_pickle), str(weights))
    model.float().eval()
    if images:
        preprocess = pictures_of(_read(name, local, "its image processor", transformers.AutoImageProcessor))
    else:
        tokenizer = _read(name, local, "its tokenizer", transformers.AutoTokenizer)
        if tokenizer.pad_token_id is None:  # as language models have none: its place in a batch is masked out anyway
            tokenizer.pad_token = tokenizer.eos_token
        if getattr(model.config, "pad_token_id", None) is None:
            model.config.pad_token_id = tokenizer.pad_token_id
        preprocess = texts_of(tokenizer, model.config, f"hf:{name}")
    labels = [] if task == "text-generation" else [str(label) for _, label in sorted(config.id2label.items())]
    known = None if all(label == f"LABEL_{i}" for i, label in enumerate(labels)) else tuple(labels)
    about = f"hf:{name}, {type(model).__name__}, {size(model)}" + ("" if weights is None else f", weights of {weights}")
    return Opened(model, about, preprocess, known)


def _task(name: str, architectures: list[str], given: str | None) -> str:
    """What the model is for, as it was said, or as its configuration says."""
    if given is not None and given not in TASKS:
        raise InputError(f"expected a task among {', '.join(TASKS)}, got {given!r}")
    known = [task for task, (ending, _) in TASKS.items() if any(ending in one for one in architectures)]
    if given is None and not known:
        endings = ", ".join(f"…For{ending}" for ending, _ in TASKS.values())
        named = ", ".join(architectures) or "a configuration that names no architecture"
        raise ModelError(
            f"expected a classifier in hf:{name} ({endings}), got {named}; say what it is for, as in --task "
            "text-classification"
        )
    return given or known[0]


def _folder(name: str) -> bool:
    """Whether the name is a folder; what looks like a path and is none is an error, and not looked for elsewhere."""
    path = Path(name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(
                f"expected a model of transformers in the folder {name}, but it has no config.json; save it with "
                "model.save_pretrained(folder) and its tokenizer or image processor likewise"
            )
        return True
    if not name or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or path.exists():
        raise InputError(f"expected a folder of transformers at {name!r}, but there is none (seen from {Path.cwd()})")
    return False


def _answers() -> bool:
    """Whether the hub can be reached: transformers asks it again and again for half a minute."""
    address = urlsplit(need("huggingface_hub", "hf").constants.ENDPOINT)
    if getproxies():  # the one that answers is the proxy
        return True
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        with socket.create_connection((address.hostname, port), timeout=5):
            return True
    except OSError:
        return False


def _read(name: str, local: bool, what: str, auto: Any) -> Any:
    try:
        with _quiet() if local else nullcontext():  # a download shows how far it is
            return auto.from_pretrained(name, local_files_only=local, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        remedy = (
            "save it again with save_pretrained"
            if Path(name).is_dir()
            else "check the name and the connection, or download the folder where there is one and give its path"
        )
        raise ModelError(f"cannot read {what} from hf:{name}: {reason}; {remedy}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bar for every file that is read."""
    logging = need("transformers.utils.logging", "hf")
    before = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            logging.enable_progress_bar()


def pictures_of(processor: Any) -> Preprocess:
    """What an image processor does, its normalisation as the model's first step."""
    mean, std = getattr(processor, "image_mean", None), getattr(processor, "image_std", None)
    lifted = bool(getattr(processor, "do_normalize", False) and mean and std)

    def applied(picture: Any) -> torch.Tensor:
        more = {"do_normalize": False} if lifted else {}  # the model does that
        result: torch.Tensor = processor(picture, return_tensors="pt", **more)["pixel_values"][0]
        return result

    own = (_tuple(mean), _tuple(std)) if lifted else ((), ())
    return Transformed(applied, _words(processor), mean=own[0], std=own[1])


def _tuple(value: Any) -> tuple[float, ...]:
    return tuple(float(one) for one in value) if isinstance(value, list | tuple) else (float(value),)


def _words(processor: Any) -> str:
    """What an image processor does, in words."""

    def sides(value: Any) -> str:
        lengths = {key: side for key, side in dict(value or {}).items() if side is not None}
        if {"height", "width"} <= lengths.keys():
            return f"{lengths['height']}x{lengths['width']}"
        return " ".join(f"{key.replace('_', ' ')} {side}" for key, side in lengths.items()).replace(
            "shortest edge ", ""
        )

    words = []
    if getattr(processor, "do_resize", False):
        words.append(f"resize {sides(processor.size)}")
    if getattr(processor, "do_center_crop", False):
        words.append(f"centre crop {sides(processor.crop_size)}")
    return ", ".join([*words, f"by {type(processor).__name__}"])


def texts_of(tokenizer: Any, config: Any, name: str) -> Preprocess:
    """What a tokenizer does, with the limits of the model that it is for."""
    most = getattr(config, "max_position_embeddings", None)
    if most is not None and "roberta" in config.model_type:
        most -= (config.pad_token_id or 0) + 1  # its positions begin after that of the padding
    limits = [limit for limit in (most, tokenizer.model_max_length) if limit is not None and 0 < limit < 1_000_000]
    if len(tokenizer) > config.vocab_size:
        raise ModelError(
            f"expected a tokenizer of at most {config.vocab_size} words in {name}, as the model knows, got "
            f"{len(tokenizer)}; save the tokenizer that belongs to the model"
        )
    return Texts(tokenizer, min(limits) if limits else None)
