"""The calibrated scale: where a doubt lies among those of known inputs.

For a value v and the values u_1 … u_n of known, held-out inputs:

    place(v) = #{i: u_i < v} / n                                       "more doubtful than 97 % of the digits it knows"
    flagged when (1 + #{i: u_i ≥ v}) / (n + 1) ≤ alarm                 as in `nescio.decide.explain`

So a raw score, whose unit says little to anybody, becomes a share of inputs that one knows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio.attribution.uncertainty import Of
from nescio.data import replacing
from nescio.inputs import Inputs
from nescio.progress import bar
from nescio.serve.engine import Engine
from nescio.types import InputError

Floats = NDArray[np.float64]
KINDS: tuple[Of, ...] = ("total", "aleatoric", "epistemic")
ADJECTIVES = {"aleatoric": "ambiguous", "epistemic": "unfamiliar"}
ALARM = 0.05
LEAST = math.ceil(1 / ALARM - 1e-9) - 1
"""Known inputs that it takes to flag one in twenty."""


@dataclass(frozen=True)
class Scale:
    """Hold what is known of known inputs.

    Attributes:
        known: What they are, for "97 % of …".
        values: Doubts and scores by name, float64 ``[n]`` each, in the order of the inputs.
        probabilities: ``[n, C]``.
        labels: ``[n]``, where they are known.
        form: The shape that all inputs have, or None where it differs.

    Examples:
        >>> scale = nescio.app.Scale("the digits", {"entropy": np.arange(100.0)}, np.ones((100, 1)))
        >>> scale.words("entropy", 97.0)
        'more doubtful than 97 % of the digits'
    """

    known: str
    values: Mapping[str, Floats]
    probabilities: Floats
    labels: NDArray[np.int64] | None = None
    form: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def right(self) -> NDArray[np.bool_] | None:
        """Return whose answer was right; None where the labels are not known."""
        return None if self.labels is None else self.probabilities.argmax(1) == self.labels

    def place(self, name: str, value: float) -> float:
        """Return the share of known inputs with a lower value.

        Args:
            name: A kind of doubt or a method.
            value: The value of an input.

        Returns:
            A share from 0 to 1.
        """
        return float((self.values[name] < value).mean())

    def limit(self, name: str) -> float:
        """Return the value above which an input is flagged.

        Args:
            name: A kind of doubt or a method.

        Returns:
            The limit.
        """
        n = len(self)
        above = int(ALARM * (n + 1) * (1 + 1e-12)) - 1  # so many known inputs may have at least the value
        return float(np.sort(self.values[name])[n - above - 1])

    def flagged(self, name: str, value: float) -> bool:
        """Return whether this happens to a known input with a probability of at most one in twenty.

        Args:
            name: A kind of doubt or a method.
            value: The value of an input.

        Returns:
            True where the input is flagged.
        """
        return value > self.limit(name)

    def words(self, name: str, value: float) -> str:
        """Return where the value lies, in a phrase that never says more than is so.

        Args:
            name: A kind of doubt or a method.
            value: The value of an input.

        Returns:
            The phrase.
        """
        doubtful, n = ADJECTIVES.get(name, "doubtful"), len(self)
        below = int((self.values[name] < value).sum())
        if below == n:
            return f"more {doubtful} than all {n} of {self.known}"
        if below == 0:
            return f"not more {doubtful} than any of {self.known}"
        share = math.floor(100 * below / n + 1e-9)
        return f"more {doubtful} than {f'{share} %' if share else 'less than 1 %'} of {self.known}"


def measured(
    engine: Engine,
    rows: Sequence[Inputs],
    *,
    known: str = "the known inputs",
    labels: Tensor | NDArray[np.int64] | None = None,
    progress: bool | None = None,
) -> Scale:
    """Measure known inputs by every method of the engine.

    Args:
        engine: The model.
        rows: Known inputs, which the model was not trained on.
        known: What they are called.
        labels: The class index of each, where that is known.
        progress: Whether a bar is shown; None shows one in a terminal.

    Returns:
        The scale.

    Raises:
        InputError: If there are too few inputs to flag one in twenty.

    Examples:
        >>> from nescio.models.sources import Numbers, Source
        >>> source = Source(nescio.Classifier(torch.nn.Linear(4, 3)), Numbers(), "a layer", ("a", "b", "c"))
        >>> engine = nescio.serve.Engine(source, ["entropy"])
        >>> scale = nescio.app.measured(engine, list(torch.eye(4).repeat(5, 1)), progress=False)
        >>> len(scale), list(scale.values)
        (20, ['total', 'aleatoric', 'epistemic', 'entropy'])
    """
    if len(rows) < LEAST:
        raise InputError(f"expected at least {LEAST} known inputs for a scale, got {len(rows)}; give more of them")
    names, assessed = list(engine.methods), []
    with bar(len(rows), show=progress, description="measuring known inputs") as shown:
        for start in range(0, len(rows), 32):
            assessed += engine.assess(rows[start : start + 32], names)
            shown.update(len(rows[start : start + 32]))
    values: dict[str, Floats] = {kind: np.array([getattr(one, kind) for one in assessed]) for kind in KINDS}
    values |= {name: np.array([one.scores[name] for one in assessed]) for name in names}
    p = torch.stack([one.probabilities for one in assessed]).numpy()
    shapes = {tuple(row.shape) if isinstance(row, Tensor) else None for row in rows}
    form = shapes.pop() if len(shapes) == 1 else None
    return Scale(known, values, p, None if labels is None else np.asarray(labels, dtype=np.int64), form)


def read_scale(path: Path, key: Mapping[str, Any]) -> Scale | None:
    """Read the scale that `write_scale` wrote for this key; None where there is none, or one of something else."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = dict(archive)
        about = json.loads(str(arrays.pop("about")))
        if about["key"] != json.loads(json.dumps(key)):
            return None
        labels, p = arrays.pop("labels", None), arrays.pop("probabilities")
        form = None if about["form"] is None else tuple(about["form"])
        values = {name.removeprefix("value "): one for name, one in arrays.items()}
        return Scale(about["known"], values, p, labels, form)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None  # not there, damaged, or of another version: it is measured anew


def write_scale(path: Path, key: Mapping[str, Any], scale: Scale) -> None:
    """Write the scale to a file, as a whole or not at all."""
    arrays: dict[str, Any] = {f"value {name}": one for name, one in scale.values.items()}
    if scale.labels is not None:
        arrays["labels"] = scale.labels
    about = json.dumps({"key": key, "known": scale.known, "form": scale.form})
    with replacing(path) as part, part.open("wb") as file:
        np.savez(file, about=np.array(about), probabilities=scale.probabilities, **arrays)
