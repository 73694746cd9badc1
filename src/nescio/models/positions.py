"""Models that answer at every position (pixels, voxels, tokens): where the classes are in what they return.

    [N, C, H, W], [N, C, D, H, W]   class_dim = 1       most segmentation networks
    [N, T, C], [N, H, W, C]         class_dim = −1      token classifiers, language models

Everything after works on logits with the classes last, ``[N, *positions, C]``; a plain classifier is the case without
positions. The dimension is found where it is clear: the positions of a picture have the shape of the picture, or of
a smaller one, and transformers' models say by the type of their answer what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor, nn

from nescio import inputs
from nescio.inputs import Inputs, describe
from nescio.modes.state import modules_of
from nescio.types import ModelError

if TYPE_CHECKING:
    from nescio.models.classifier import Classifier

T = TypeVar("T")
_KNOWN: WeakKeyDictionary[nn.Module, tuple[int, tuple[int, ...]]] = WeakKeyDictionary()  # where their classes are
_PLAIN: WeakSet[nn.Module] = WeakSet()  # with one answer for each input

_SAY = (
    "say which dimension holds the classes: nescio.Classifier(model, output='dense', class_dim=1) for [N, C, ...], "
    "class_dim=-1 for [N, ..., C]"
)


class PositionsFound(ModelError):
    """Say that a model was taken for one with an answer for each input, but answers at every position.

    Args:
        message: What to do, where nothing can be made of that.
        class_dim: The dimension of the classes in what the model returned.
    """

    def __init__(self, message: str, class_dim: int) -> None:
        super().__init__(message)
        self.class_dim = class_dim


def recall(classifier: Classifier) -> bool:
    """Tell a classifier where its module's classes are, where that was found in an earlier call, and return whether.

    Args:
        classifier: One for which answers at every position are fine.
    """
    module = classifier.module
    if module is None or classifier.dense or classifier.output != "logits" or module not in _KNOWN:
        return False
    class_dim, inside = _KNOWN[module]
    if inside != _inside(module):
        return False
    classifier.class_dim = class_dim
    return True


def remember(classifier: Classifier, class_dim: int) -> None:
    """Tell a classifier where its module's classes are, and note it for later calls."""
    classifier.class_dim = class_dim
    if classifier.module is not None:
        _KNOWN[classifier.module] = class_dim, _inside(classifier.module)


def _inside(module: nn.Module) -> tuple[int, ...]:
    """Which modules are in this one: a head that was replaced may have another answer."""
    return tuple(map(id, modules_of(module)))


def unknown(classifier: Classifier) -> bool:
    """Whether nothing is known of the module of a classifier: it may answer at every position."""
    return classifier.module is not None and not classifier.dense and classifier.module not in _PLAIN


def found_plain(classifier: Classifier) -> None:
    """Note for later calls that the module of a classifier has one answer for each input."""
    if classifier.module is not None:
        _PLAIN.add(classifier.module)


def accepting(classifiers: Iterable[Classifier], call: Callable[[], T]) -> T:
    """What a call gives; where it finds that the models answer at every position they are told so, and it is repeated.

    Args:
        classifiers: The models that the call runs.
        call: The work, for which answers at every position are fine.
    """
    try:
        return call()
    except PositionsFound as found:
        for classifier in classifiers:
            classifier.class_dim = found.class_dim
    return call()


def find_class_dim(result: object, out: Tensor, x: Inputs) -> int | None:
    """The dimension of the classes in the output, or None where that is not clear.

    Args:
        result: What the model returned.
        out: The tensor in it that holds the logits.
        x: The inputs.
    """
    named = result.get("logits") if isinstance(result, Mapping) else getattr(result, "logits", None)
    if named is out and out.ndim == 3:
        return -1
    if named is out and out.ndim > 3:
        return 1
    if isinstance(result, Mapping) and result.get("out") is out and out.ndim > 3:
        return 1
    pictures = [value for value in inputs.tensors(x) if value.ndim == out.ndim]
    if out.ndim < 4 or not pictures:
        return None
    shape = pictures[0].shape
    size = shape[1:-1] if shape[-1] <= 4 < shape[1] else shape[2:]
    first, last = _alike(out.shape[2:], size), _alike(out.shape[1:-1], size)
    return None if first == last else 1 if first else -1


def classes_last(z: Tensor, class_dim: int, count: int) -> Tensor:
    """Logits ``[N, *positions, C]`` of an output whose classes are elsewhere, or a ModelError that says what is wrong.

    Args:
        z: The output.
        class_dim: The dimension of its classes.
        count: The number N of inputs.
    """
    expected = f"expected logits of every position, [N, C, ...] or [N, ..., C] with N = {count} and C >= 2 classes"
    if z.is_floating_point() and z.ndim == 2:
        raise ModelError(f"{expected}, got {describe(z)}; keep output='logits' for one answer for each input")
    fits = z.ndim > 2 and z.shape[0] == count and z.is_floating_point()
    if not fits or class_dim % z.ndim == 0 or not -z.ndim <= class_dim < z.ndim:
        raise ModelError(f"{expected} at class_dim={class_dim}, got {describe(z)}; {_SAY}")
    if z.shape[class_dim] < 2:
        raise ModelError(
            f"{expected}, got {describe(z)} with class_dim={class_dim}; for one logit at every position, for two "
            f"classes, say output='binary', class_dim={class_dim}"
        )
    return z.movedim(class_dim, -1)


def unclear(out: Tensor) -> ModelError:
    """The error for an output of which it is not clear where the classes are."""
    return ModelError(
        f"expected an output with one dimension that can only be the classes, got {describe(out)}; {_SAY}"
    )


def _alike(size: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether positions have the shape of a picture, or of one made smaller, up to rounding."""
    return all(abs(a * wanted[0] - size[0] * b) <= max(b, wanted[0]) for a, b in zip(size, wanted, strict=True))
