"""What every kind of model source gives: the model, what it does to a row of data first, and what it is in words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from nescio.inputs import Inputs
from nescio.models.classifier import Classifier
from nescio.types import InputError, Posterior

Kind = Literal["pictures", "texts", "numbers"]


class Preprocess(ABC):
    """Make of one row of data what the model takes: a pure function, which several threads may call at once.

    Examples:
        >>> class Halves(Preprocess):
        ...     kind = "numbers"
        ...     def __call__(self, row):
        ...         return torch.as_tensor(row) / 2
        ...     def __str__(self):
        ...         return "numbers, halved"
        >>> Halves().collate([Halves()([2.0]), Halves()([4.0])])
        tensor([[1.],
                [2.]])
    """

    kind: ClassVar[Kind]

    @abstractmethod
    def __call__(self, row: object) -> Inputs:
        """The tensor, or the mapping of tensors, of one row, without a batch dimension."""

    @abstractmethod
    def __str__(self) -> str:
        """One line for people."""

    def collate(self, rows: Sequence[Inputs]) -> Inputs:
        """Put rows together.

        Args:
            rows: What was made of each row.

        Returns:
            The batch.
        """
        first = rows[0]
        if isinstance(first, Tensor):
            return torch.stack([row for row in rows if isinstance(row, Tensor)])
        named = [row for row in rows if isinstance(row, Mapping)]
        return {name: torch.stack([row[name] for row in named]) for name in first}

    @property
    def normalise(self) -> nn.Module | None:
        """What the model does to a batch first, where that is a step of its own."""
        return None

    def changed(self, size: Size | None, crop: Size | None, mean: Channels | None, std: Channels | None) -> Preprocess:
        """Return the same with other sizes or another normalisation; None leaves each as it is.

        Args:
            size: The size that pictures are brought to.
            crop: The size of the middle that is cut out.
            mean: What is taken away from each channel.
            std: What each channel is divided by.

        Returns:
            The changed pre-processing.
        """
        raise InputError(
            f"expected a model of pictures where a size, crop, mean or std is given, got one of {self.kind}; "
            "leave those out"
        )


@dataclass(frozen=True)
class Numbers(Preprocess):
    """Take rows of numbers as they are, floats of any width as float32.

    Examples:
        >>> Numbers()(np.array([0.5, 1.0])).dtype
        torch.float32
    """

    kind = "numbers"

    def __call__(self, row: object) -> Inputs:
        value = torch.as_tensor(row)
        return value.float() if value.is_floating_point() else value

    def __str__(self) -> str:
        return "numbers as they are"


Size = int | tuple[int, int]
"""A side in pixels, or (height, width); 0 for none."""
Channels = Sequence[float]
"""One number for each channel, or one for all; empty for none."""


@dataclass(frozen=True)
class Source:
    """Hold a model that was opened.

    Attributes:
        model: The network, or a distribution over networks.
        preprocess: What makes of a row what the model takes; None where the source says nothing of it.
        about: What it is, in words.
        classes: The names of its classes, where they are known.

    Examples:
        >>> Source(nescio.Classifier(torch.nn.Linear(4, 3)), Numbers(), "a linear layer").kind
        'numbers'
    """

    model: Classifier | Posterior
    preprocess: Preprocess | None
    about: str
    classes: tuple[str, ...] | None = None

    @property
    def kind(self) -> Kind | None:
        """What a row is to it: a picture, a text, numbers; None where the source says nothing of it."""
        return None if self.preprocess is None else self.preprocess.kind


@dataclass(frozen=True)
class Opened:
    """What one kind of source finds, before a person's own settings."""

    model: Classifier | Callable[..., Any]
    about: str
    preprocess: Preprocess | None = None
    classes: tuple[str, ...] | None = None
