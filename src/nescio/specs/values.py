"""`ModelSpec`, `DataSpec` and `GuardSpec`: frozen, picklable, and made of values that JSON can hold."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from nescio.models.sources.base import Size

Output = Literal["logits", "probabilities", "binary"]
OnError = Literal["stop", "skip"]


@dataclass(frozen=True)
class ModelSpec:
    """Say which model is meant, and how it is opened (`nescio.specs.open_source`).

    Args:
        name: ``torchvision:NAME``, ``timm:NAME``, ``hf:PATH-OR-ID``, ``FILE.onnx``, ``FILE.pt2``,
            ``package.module:factory``, or a folder that nescio has written: a trained network, or a saved posterior.
        weights: A file of weights, or the name of published ones.
        base: The model under a saved posterior, where its folder names none, or a function.
        class_names: A file with the names of the classes.
        output: What the model returns; None means what its source says, else logits.
        size: The side to which pictures are resized, or (height, width); 0 leaves that out, None keeps the model's.
        crop: What is then cut out of the middle; as `size`.
        mean: The mean of each channel; empty leaves it out, None keeps the model's.
        std: The standard deviation of each channel; as `mean`.
        device: Where the model runs; None leaves it where its source puts it.
        trust_pickle: Whether files may be opened that can run code.
        task: What a model of transformers is for, where its folder does not say it.

    Examples:
        >>> spec = ModelSpec("timm:resnet18", "resnet18.safetensors", size=224)
        >>> spec.filled_from(ModelSpec("timm:resnet18", output="logits", size=256))
        ModelSpec(name='timm:resnet18', weights='resnet18.safetensors', output='logits', size=224)
    """

    name: str
    weights: str | None = None
    base: str | None = None
    class_names: str | None = None
    output: Output | None = None
    size: Size | None = None
    crop: Size | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    device: str | None = None
    trust_pickle: bool = False
    task: str | None = None

    def filled_from(self, other: ModelSpec) -> ModelSpec:
        """Return this spec with what it leaves open, as the other one says it.

        Args:
            other: The other spec.

        Returns:
            The spec.
        """
        open_fields = [field.name for field in fields(self) if getattr(self, field.name) is None]
        return replace(self, **{name: getattr(other, name) for name in open_fields})

    def __repr__(self) -> str:
        settings = ((f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default)
        return f"ModelSpec({', '.join(f'{name}={value!r}' for name, value in settings)})"


@dataclass(frozen=True)
class DataSpec:
    """Say where data are, and which of their columns are what (`nescio.specs.open_rows`).

    Args:
        path: A folder of pictures, a list of them, or a file of arrays or of a table.
        x: The array, the column or the columns of the inputs; None finds them by their usual names.
        label: The array or column of labels; "auto" finds it by its usual names, None means that there is none.
        name: The column that names rows; as `label`.
        on_error: Whether a row that cannot be used ends the work, or is left out.

    Examples:
        >>> DataSpec("reviews.csv", "text", on_error="skip").label
        'auto'
    """

    path: str
    x: str | tuple[str, ...] | None = None
    label: str | None = "auto"
    name: str | None = "auto"
    on_error: OnError = "stop"


@dataclass(frozen=True)
class GuardSpec:
    """Say where a guard was saved, and at which level it flags inputs (`nescio.specs.open_guard`).

    Args:
        folder: What `nescio guard` has written.
        level: The share of inputs like the reference that may be called foreign by mistake.

    Examples:
        >>> GuardSpec("guard", level=0.01)
        GuardSpec(folder='guard', level=0.01)
    """

    folder: str
    level: float = 0.05
