"""The map of an input as a picture of bytes: over the input where that is a picture, else bars of what weighs most."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from nescio import plots
from nescio.attribution.source import Source
from nescio.inputs import Inputs
from nescio.models import sources
from nescio.serve.row_batches import stacked

_one_at_a_time = threading.Lock()  # matplotlib keeps fonts and caches for the whole process


def token_names(model: sources.Source, row: Inputs) -> list[str] | None:
    """Return what the places of a map are called: the tokens of a text; None for others."""
    preprocess = model.preprocess
    if preprocess is None or preprocess.kind != "texts" or isinstance(row, Tensor):
        return None
    tokens: list[str] = preprocess.tokenizer.convert_ids_to_tokens(row["input_ids"].tolist())  # type: ignore[attr-defined]
    return tokens


def overlay(map_: Tensor, row: Inputs, of: str, uncertainty: float, names: Sequence[str] | None) -> str | None:
    """Draw a map over its input where that is a picture, else bars of what weighs most.

    Args:
        map_: The map.
        row: The input.
        of: The kind of doubt.
        uncertainty: How much of it there is, in nats.
        names: What the places of the map are called.

    Returns:
        A PNG as base64; None for a map that is neither a picture nor a list.
    """
    values = {of: uncertainty}
    with _one_at_a_time:
        if map_.ndim == 2:
            batch = stacked([row], 1)
            picture = Source.of(batch, "auto").tensor(batch)[0].cpu()
            if picture.shape[-2:] != map_.shape:  # of a model that answers at every position
                picture = F.interpolate(picture[None].float(), tuple(map_.shape), mode="area")[0]
            figure = plots.maps({of: map_.numpy()}, picture.numpy(), values=values)
        elif map_.ndim == 1:
            labels = [f"{at}: {names[at]}" if names is not None else f"feature {at}" for at in range(len(map_))]
            figure = plots.feature_bars({of: map_.numpy()}, labels, values=values)
        else:
            return None
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=110)
    return base64.b64encode(file.getvalue()).decode()
