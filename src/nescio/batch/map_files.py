"""`MapFiles`: for each input a picture of where its doubt comes from, and its maps, in a folder with a table of all.

    NAME.maps.png       the input and its maps, or bars of its features or tokens
    NAME.maps.npz       the maps by the names of their kinds, and the probabilities
    maps.csv            name, answer, uncertainties, what each map lacks to add up to its own, where logits were drawn
                        how far it may be from that of all, names of the files

Each file is there as a whole or not at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from nescio import attribution, plots
from nescio._common.formatting import percent
from nescio.attribution import Attribution, explain
from nescio.attribution.base import MapMethod
from nescio.attribution.source import Channels, Source
from nescio.attribution.uncertainty import KINDS
from nescio.data import replacing, write_table
from nescio.data.sources.decode import ENDINGS
from nescio.inputs import Inputs
from nescio.scores.decomposition import decompose
from nescio.types import InputError, Posterior

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE, MAPS, TABLE = ".maps.png", ".maps.npz", "maps.csv"
Names = Sequence[str] | Callable[[int], str] | None
"""Features by their place, or words of tokens by their index."""
NATS = ("ua_backprop", "integrated_gradients", "blur_ig")  # their maps have the unit of the uncertainty


class MapFiles:
    """Explain inputs by one method, and write their maps to a folder.

    Args:
        posterior: The distribution whose doubt is explained.
        method: A method of `nescio.attribution`, with its settings.
        folder: Where the files go; it is made with the first.
        kinds: "epistemic", "aleatoric", "total"; None means all that can be told apart.
        channels: The dimension of an array that is no place but channels, as `nescio.explain` takes it.
        class_names: The names of the classes.
        names: The names of features by their place, or the words of tokens by their index.

    Examples:
        >>> import tempfile
        >>> ensemble = nescio.posteriors.DeepEnsemble([torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)])
        >>> files = MapFiles(ensemble, explanation("gradient", {}), Path(tempfile.mkdtemp()))
        >>> for _ in files.explain(["first"], torch.ones(1, 3)):
        ...     print([row["picture"] for row in files.table])
        ['first.maps.png']
    """

    def __init__(
        self,
        posterior: Posterior,
        method: MapMethod,
        folder: Path,
        *,
        kinds: Sequence[str] | None = None,
        channels: Channels = "auto",
        class_names: Sequence[str] | None = None,
        names: Names = None,
    ) -> None:
        self.posterior, self.method, self.folder, self.wanted = posterior, method, folder, kinds
        self.channels, self.class_names, self.names = channels, class_names, names
        self.kinds: list[str] = []
        self.members = 0
        self.drawn = 0
        """Maps of logits that were drawn for each input; 0 where all were taken."""
        self.table: list[dict[str, Any]] = []
        """A row for each input whose files are there."""
        self._used: set[str] = set()

    @property
    def rank(self) -> str:
        """The kind by which inputs are the most doubtful: the one that is wanted, or the total."""
        return self.wanted[0] if self.wanted is not None and len(self.wanted) == 1 else "total"

    def explain(self, names: Sequence[str], batch: Inputs) -> Iterator[None]:
        """Explain the inputs of these names; yield after each whose files are written.

        Args:
            names: A name for each input.
            batch: The inputs.

        Returns:
            Nothing, once for each input.
        """
        p = self.posterior.predict(batch, progress=False)
        if self.class_names is not None and len(self.class_names) != p.shape[2]:
            raise InputError(
                f"--class-names: expected {p.shape[2]} names, one for each class, but got {len(self.class_names)}"
            )
        self.members = len(p)
        self.kinds = list(dict.fromkeys(self.wanted or (KINDS if len(p) > 1 else ("total",))))
        doubt, mean = decompose(p), p.mean(0)
        of: Any = self.kinds
        by_kind = explain(self.posterior, batch, self.method, of=of, channels=self.channels, progress=False)
        self.drawn = by_kind[self.kinds[0]].drawn
        for at, name in enumerate(names):
            values = {kind: float(getattr(doubt, kind)[at]) for kind in KINDS}
            values |= {kind: float(one.uncertainty[at]) for kind, one in by_kind.items()}  # what the residual is about
            self._write(name, at, batch, mean[at], values, by_kind)
            yield

    def error_words(self) -> str:
        """Return a sentence, without its end, about how far maps may be from those of all logits."""
        errors = [value for row in self.table for name, value in row.items() if name.startswith("error_")]
        share = percent(float(np.mean(errors)), 2)
        return (
            f"Each map is made of {self.drawn} logits that were drawn: about {share} of it lies elsewhere than with all"
        )

    def write_table(self) -> None:
        """Write the table of all inputs whose files are there."""
        if self.table:
            columns = {name: np.array([row[name] for row in self.table]) for name in self.table[0]}
            write_table(self.folder / TABLE, columns)

    def _write(
        self, name: str, at: int, batch: Inputs, p: Tensor, values: dict[str, float], by_kind: dict[str, Attribution]
    ) -> None:
        predicted = int(p.argmax())
        label = {} if self.class_names is None else {"class": self.class_names[predicted]}
        title = _words(name, label.get("class", f"class {predicted}"), p, values, "epistemic" in by_kind)
        maps: dict[str, Any] = {kind: one.maps[at].numpy() for kind, one in by_kind.items()}
        figure = self._figure(maps, batch, at, values, title)
        stem = self._stem(name)
        self.folder.mkdir(exist_ok=True)
        with replacing(self.folder / (stem + MAPS)) as part, part.open("wb") as file:
            np.savez(file, **maps, probabilities=p.numpy())
        with replacing(self.folder / (stem + PICTURE)) as part:
            figure.savefig(part, format="png", dpi=110)
        row: dict[str, Any] = {"name": name, "predicted": predicted, **label, "probability": float(p[predicted])}
        row |= values | {f"residual_{kind}": float(one.residual[at]) for kind, one in by_kind.items()}
        row |= {f"error_{kind}": float(one.error[at]) for kind, one in by_kind.items() if one.error is not None}
        self.table.append(row | {"picture": stem + PICTURE, "maps": stem + MAPS})

    def _figure(self, maps: dict[str, Any], batch: Inputs, at: int, values: dict[str, float], title: str) -> Figure:
        source = Source.of(batch, self.channels)
        x = source.tensor(batch)[at].cpu()
        dims = next(iter(maps.values())).ndim
        unit = "nats" if self.method.name in NATS else f"units of {self.method.name}"
        if dims == 1:
            absent = source.places(batch).absent
            here = np.arange(len(next(iter(maps.values()))))
            here = here if absent is None else here[~absent[at].numpy()]
            labels = [self._label(x, int(place), source.tokens) for place in here]
            shown = {kind: one[here] for kind, one in maps.items()}
            return plots.feature_bars(shown, labels, values=values, title=title, unit=unit)
        if dims != 2:
            raise InputError(f"expected pictures, features or tokens to draw, but the maps have {dims} dimensions")
        if isinstance(self.channels, int):
            x = x.movedim(self.channels - 1, 0)
        below = any(bool((one < 0).any()) for one in maps.values())
        unit = f"{unit} per pixel" + ("\n(below 0: lowers the doubt)" if below else "")
        return plots.maps(maps, x, values=values, title=title, unit=unit)

    def _label(self, x: Tensor, place: int, tokens: bool) -> str:
        """What a bar is about: a feature and its value, or a token after its place."""
        if x.ndim != 1:
            return f"place {place}"
        index = int(x[place]) if tokens else place
        if self.names is None:
            name = f"{'token' if tokens else 'feature'} {index}"
        elif not isinstance(self.names, Sequence):
            name = self.names(index)
        elif index < len(self.names) and (tokens or len(self.names) == len(x)):
            name = self.names[index]
        else:
            wanted = f"at least {index + 1} words, one for each token" if tokens else f"{len(x)}, one for each feature"
            raise InputError(f"--names: expected {wanted}, but the file has {len(self.names)} lines")
        return f"{place}: {name}" if tokens else f"{name} = {float(x[place]):.4g}"

    def _stem(self, name: str) -> str:
        """A name of its own for each input: photographs of one name in two folders must not meet."""
        wanted = stem = plain_name(name)
        number = 1
        while stem.casefold() in self._used:
            number += 1
            stem = f"{wanted}-{number}"
        self._used.add(stem.casefold())
        return stem


def plain_name(name: str) -> str:
    """Return the name of an input as one that a file can have anywhere, without the ending of a picture.

    Args:
        name: The name of the input, such as its path.

    Returns:
        The name for a file.

    Examples:
        >>> plain_name("cats/my cat.jpg")
        'cats-my-cat'
    """
    plain = Path(name).stem if name.lower().endswith(ENDINGS) else Path(name).name
    plain = "-".join([*Path(name).parts[:-1], plain])
    return re.sub(r"[^\w.+-]+", "-", plain).strip("-.").encode()[:160].decode(errors="ignore") or "input"


def explanation(name: str, settings: dict[str, Any], vae: str | None = None) -> MapMethod:
    """Return a method of attribution with its settings.

    Args:
        name: Its name.
        settings: Its settings.
        vae: The file of an auto-encoder, which some methods need.

    Returns:
        The method.

    Examples:
        >>> explanation("gradient", {}).name
        'gradient'
    """
    return attribution.with_settings(name, settings if vae is None else settings | {"vae": attribution.VAE.load(vae)})


def _words(name: str, answer: str, p: Tensor, values: dict[str, float], apart: bool) -> str:
    """The answer and its doubt in two plain sentences."""
    first = f"{name}: the answer is {answer}, with a probability of {percent(float(p.max()))}."
    total = f"Doubt: {values['total']:.3g} of at most {math.log(len(p)):.3g} nats"
    if not apart:
        return f"{first}\n{total}."
    return (
        f"{first}\n{total}: {values['epistemic']:.3g} that more training data could remove (epistemic), "
        f"{values['aleatoric']:.3g} that they could not (aleatoric)."
    )
