"""From what a model returns to logits ``[N, C]``.

"logits"         z is the output itself
"probabilities"  z = the input of the softmax whose result is the output; where there is none, z = log p,
                 which is the same up to a constant of each row, and softmax(z) = p
"binary"         z = [0, s] for the one logit s (the input of a closing sigmoid): softmax(z)₁ = sigmoid(s)
"dense"          logits of every position, of which `nescio.models.positions` finds the dimension of the classes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nescio.inputs import describe
from nescio.models.positions import PositionsFound
from nescio.types import ModelError

Output = Literal["logits", "probabilities", "binary", "dense"]
OUTPUTS: tuple[str, ...] = get_args(Output)

_SOFTMAX = {torch.softmax, torch.Tensor.softmax, torch.nn.functional.softmax, torch.special.softmax}
_SIGMOID = {torch.sigmoid, torch.Tensor.sigmoid, torch.nn.functional.sigmoid, torch.special.expit}


_BOXES = {"boxes", "pred_boxes", "masks_queries_logits"}
_BOXED = "expected the model to return logits [N, C], or of every position, got boxes or masks of objects"
_INSTEAD = (
    ", of which every picture has others: that is no answer for each input, nor for each position; cut the objects out "
    "of the pictures and give them to a classifier, or use a network for semantic segmentation"
)


class Closing(TorchFunctionMode):
    """Remembers the last softmax and the last sigmoid that were called, to find what came before them.

    It listens to calls and changes nothing, so it also finds functional calls, and works under `torch.func`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.softmax: _Closed | None = None
        self.sigmoid: _Closed | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _SOFTMAX or func in _SIGMOID:
            named = dict(zip(("input", "dim"), args, strict=False)) | (kwargs or {})
            if func in _SIGMOID:
                self.sigmoid = _Closed(named["input"], result)
            elif named.get("dim") in (1, -1, None):  # over the classes; over anything else it gives no probabilities
                self.softmax = _Closed(named["input"], result)
        return result


class _Closed:
    """A call of softmax or sigmoid: what went in, and what came out."""

    def __init__(self, before: Tensor, after: Tensor) -> None:
        self.before, self.after, self.version = before, after, _version(after)

    def gave(self, out: Tensor) -> bool:
        """Whether ``out`` is its result in another shape, and was not written to since."""
        with torch._C.DisableTorchFunctionSubclass():
            same = out is self.after or (out._base is self.after and out.numel() == self.after.numel())
        return same and _version(out) == self.version


def _version(t: Tensor) -> int | None:
    with torch._C.DisableTorchFunctionSubclass():
        return None if t.is_inference() else t._version  # which counts the writes


def pick(output: object, item: int | str | None = None) -> Tensor:
    """The tensor of logits in what the model returned; ``item``: at which place of a tuple, or by which name."""
    if item is not None:
        return _item(output, item)
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping) and (boxes := _BOXES & output.keys()):
        raise ModelError(f"{_BOXED} ({min(boxes)!r}){_INSTEAD}")
    if isinstance(logits := getattr(output, "logits", None), Tensor):
        return logits
    if isinstance(output, Mapping):
        for name in ("logits", "out"):  # "out": torchvision's segmentation networks
            if isinstance(logits := output.get(name), Tensor):
                return logits
        held = [value for value in output.values() if isinstance(value, Tensor)]
        if len(held) == 1:
            return held[0]
        raise ModelError(
            "expected the model to return logits [N, C], or a dict with an entry 'logits' or 'out' or a single tensor, "
            f"got {describe(output)}; name the entry: nescio.Classifier(model, item='...')"
        )
    if isinstance(output, tuple | list) and output:
        _refuse_own_classes(output)
        return pick(output[0])
    raise ModelError(f"expected the model to return logits [N, C], got {describe(output)}; return a tensor")


def _refuse_own_classes(output: tuple[Any, ...] | list[Any]) -> None:
    """Raise a ModelError for a list with the logits of each input, which has classes of its own."""
    if not isinstance(output, list) or not all(isinstance(one, Tensor) and one.ndim == 1 for one in output):
        return
    counts = sorted({len(one) for one in output})
    if len(counts) > 1:
        raise ModelError(
            f"expected logits [N, C] over one list of classes for all inputs, got a list of {len(output)} tensors with "
            f"{counts[0]} to {counts[-1]} numbers: scores over other classes cannot be compared; give the model one "
            "list of classes, with logits of -1e4 for those that an input cannot have"
        )


def _item(output: object, item: int | str) -> Tensor:
    picked: object = None
    if isinstance(item, str):
        picked = output.get(item) if isinstance(output, Mapping) else getattr(output, item, None)
    elif isinstance(output, tuple | list) and -len(output) <= item < len(output):
        picked = output[item]
    if not isinstance(picked, Tensor):
        raise ModelError(f"expected the model to return a tensor at item={item!r}, got {describe(output)}")
    return picked


def rivals(output: object, count: int) -> list[int]:
    """The places of a tuple that could hold logits of so many inputs, where the first does and others do too."""
    if not isinstance(output, tuple | list) or isinstance(getattr(output, "logits", None), Tensor):
        return []
    fitting = [
        i
        for i, one in enumerate(output)
        if isinstance(one, Tensor) and one.is_floating_point() and one.ndim == 2
        if one.shape[0] == count and one.shape[1] > 1
    ]
    return fitting if len(fitting) > 1 and fitting[0] == 0 else []


def to_logits(out: Tensor, kind: str, closing: Closing | None, class_dim: int | None = None) -> Tensor:
    """Logits of the picked output; `class_dim`: where the classes are in one that answers at every position."""
    if kind == "probabilities":
        if closing is not None and closing.softmax is not None and closing.softmax.gave(out):
            before = closing.softmax.before
            return before if closing.softmax.after is out else before.reshape(out.shape)
        return out.log()
    if kind == "binary":
        if closing is not None and closing.sigmoid is not None and closing.sigmoid.gave(out):
            out = closing.sigmoid.before
        if class_dim is not None:
            if out.ndim < 3 or not -out.ndim <= class_dim < out.ndim or out.shape[class_dim] != 1:
                raise ModelError(
                    f"expected one logit at every position, [N, 1, ...], with output='binary' and "
                    f"class_dim={class_dim}, got {describe(out)}; keep output='dense' for one logit for each class"
                )
            return torch.cat([torch.zeros_like(out), out], dim=class_dim)
        if out.ndim > 2 or (out.ndim == 2 and out.shape[1] != 1):
            raise ModelError(
                f"expected one logit for each input, shape [N] or [N, 1], with output='binary', got {describe(out)}; "
                "keep output='logits' for a model with one column for each class; for one logit at every position "
                "say class_dim=1 too"
            )
        out = out.reshape(-1, 1)
        return torch.cat([torch.zeros_like(out), out], dim=1)
    return out


def check_shape(z: Tensor, count: int, class_dim: int | None = None) -> None:
    """Raise a ModelError unless z is a floating-point tensor [count, C] with C ≥ 2.

    class_dim: where the classes would be if it answered at every position, and that is clear.
    """
    expected = f"expected logits [N, C] with N = {count} rows and C >= 2 columns"
    if not z.is_floating_point():
        raise ModelError(
            f"{expected}, got {describe(z)}; return the scores of the classes, not the index of the likeliest one"
        )
    if (z.ndim == 1 and z.shape[0] == count) or (z.ndim == 2 and z.shape[1] == 1):
        raise ModelError(
            f"{expected}, got {describe(z)}; for a model with one logit for two classes say output='binary'"
        )
    if z.ndim == 1:
        raise ModelError(
            f"{expected}, got {describe(z)}; keep the first dimension, also for a batch of one input: x.unsqueeze(0)"
        )
    if z.ndim > 2:
        message = (
            f"{expected}, got {describe(z)}; a model that classifies every position is for nescio.score, nescio.dense "
            "and posteriors, as nescio.Classifier(model, output='dense', class_dim=1), or class_dim=-1 for classes "
            "that come last; for all else reduce it to one answer for each input: average over the positions"
        )
        raise ModelError(message) if class_dim is None else PositionsFound(message, class_dim)
    if z.ndim != 2 or z.shape[1] < 2:
        raise ModelError(f"{expected}, got {describe(z)}; a classifier has at least two classes")
    if z.shape[0] != count:
        raise ModelError(f"{expected}, got {describe(z)}; give the model's output one row for each input, in order")


def check_values(z: Tensor, out: Tensor, kind: str) -> bool:
    """Raise a ModelError for logits that are not finite, or probabilities that are none; True if the logits look as if
    they were probabilities themselves.

    z: the logits of at least one input; out: what the model returned, with the classes where they are in z; kind: what
    it was said to be.
    """
    if kind == "probabilities":
        _check_probabilities(out, z)
    if z.ndim == 2:
        finite, looks = z.isfinite().all(dim=1), _shares(z).all()
    else:  # of every position: without a copy, and a few of them are enough for a warning
        every = tuple(range(1, z.ndim))
        finite, looks = z.amax(every).isfinite() & z.amin(every).isfinite(), _shares(z[(0,) * (z.ndim - 2)]).all()
    if kind == "binary":  # not in front of a sigmoid that was found, and too many for chance
        one = z[..., 1].flatten()
        looks = ((one >= 0) & (one <= 1) & (one == out.reshape(-1))).all() & (len(one) >= 8)
    every, shares = torch.stack([finite.all(), looks]).tolist()
    if not every:
        raise ModelError(
            f"expected finite logits, got NaN or infinite ones for {listed(_where(~finite))}, though the input is "
            "finite; look for a division by zero or an overflow in the model (float16 ends at 65504)"
        )
    return bool(shares)


def _check_probabilities(p: Tensor, z: Tensor) -> None:
    count = len(p)
    zero = ((p == 0) & ~z.isfinite()).reshape(count, -1).any(dim=1)  # before a softmax z is finite even where p is 0
    fair = _shares(p).reshape(count, -1).all(dim=1)
    if not bool(fair.all()):
        raise ModelError(
            "expected probabilities, which are >= 0 and sum to 1 over the classes, with output='probabilities', got "
            f"others for {listed(_where(~fair))}; say output='logits' if the model does not end in a softmax"
        )
    if bool(zero.any()):
        raise ModelError(
            f"expected probabilities above 0 with output='probabilities', got 0 for {listed(_where(zero))}, whose "
            "logarithm is minus infinity; return the values before the softmax and say output='logits'"
        )


def _shares(rows: Tensor) -> Tensor:
    """Which rows lie in [0, 1] and sum to 1, as probabilities do."""
    tolerance = 1e-4 if rows.dtype in (torch.float32, torch.float64) else 2e-2
    return (rows >= 0).all(dim=-1) & ((rows.double().sum(dim=-1) - 1).abs() <= tolerance)


def _where(rows: Tensor) -> list[int]:
    return rows.nonzero().flatten().tolist()


def listed(indices: list[int], most: int = 10) -> str:
    """Positions in words: "input 3", "inputs 3, 5 and 7 more"."""
    shown = ", ".join(str(index) for index in indices[:most])
    rest = f" and {len(indices) - most} more" if len(indices) > most else ""
    return f"{'input' if len(indices) == 1 else 'inputs'} {shown}{rest}"
