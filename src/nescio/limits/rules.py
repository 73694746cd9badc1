"""What is done to rows of values and rates by each operation that is linear, or linear piece by piece.

A rule takes the pass, the function and its arguments, and gives what the model is to go on with. Linear operations act
on values and rates alike; constants are added to values only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nescio.limits.pieces import Elementwise, MaxPool, Site
from nescio.limits.shapes import Args, Kwargs
from nescio.trace.backward.substitutes.batch_norm import by_channel, scale_and_shift

if TYPE_CHECKING:
    from nescio.limits.tracked_pass import Pass, Tracked

Rule = Callable[["Pass", Callable[..., Any], Args, Kwargs], "Tracked"]


class NotLinear(Exception):
    """The arguments make the operation one that is not linear; the text says which."""


def _by_name(args: tuple[Any, ...], kwargs: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """The arguments behind the first by name, for a function with these further ones and defaults."""
    return defaults | dict(zip(defaults, args[1:], strict=False)) | {k: v for k, v in kwargs.items() if k in defaults}


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tracked:
    given = args[0] if args else kwargs["input"]
    if not isinstance(given, _tracked()):
        raise NotLinear("with the input in another place than the first")
    return given


def _tracked() -> type[Tracked]:
    from nescio.limits.tracked_pass import Tracked

    return Tracked


def _reader(given: Tracked) -> Callable[[Tensor | None], Tensor]:
    """The rows as they are now: the tensor may be worked on in place later."""
    raw = given.raw
    return lambda rows: raw if rows is None else raw[rows]


def _with_weight(bias_shape: Callable[[int], tuple[int, ...]]) -> Rule:
    """Products with a weight, as in linear layers and convolutions, and a bias."""

    def rule(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
        given = _first(args, kwargs)
        named = dict(zip(("weight", "bias"), args[1:3], strict=False)) | kwargs
        weight, bias, more = run.cast(named["weight"]), run.cast(named.get("bias")), args[3:]
        if isinstance(weight, _tracked()) or isinstance(bias, _tracked()):
            raise NotLinear("with a weight that depends on the input")
        options = {k: v for k, v in kwargs.items() if k not in ("input", "weight", "bias")}

        read = _reader(given)

        def compute(rows: Tensor | None) -> Tensor:
            out = func(read(rows), weight, None, *more, **options)
            return out if bias is None else run.added(out, bias.view(bias_shape(out.ndim)))

        columns = weight.t() if func is torch.nn.functional.linear and given.raw.ndim == 2 else None
        return run.operation(compute, [given], columns)

    return rule


def _homogeneous(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
    """Linear in the first argument, and nothing added."""
    given = _first(args, kwargs)
    more = {k: v for k, v in kwargs.items() if k != "input"}
    read = _reader(given)
    return run.operation(lambda rows: func(read(rows), *args[1:], **more), [given])


def _reduction(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
    dims = kwargs.get("dim", args[1] if len(args) > 1 else None)
    listed = [dims] if isinstance(dims, int) else dims
    if not listed or any(d % _first(args, kwargs).raw.ndim == 0 for d in listed):
        raise NotLinear("over the inputs of the batch")
    return _homogeneous(run, func, args, kwargs)


def _pad(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
    named = _by_name(args, kwargs, pad=(), mode="constant", value=None)
    if named["mode"] == "constant" and named["value"]:
        raise NotLinear("with another value than 0")
    if len(named["pad"]) >= 2 * _first(args, kwargs).raw.ndim:
        raise NotLinear("of the batch")
    return _homogeneous(run, func, args, kwargs)


def _batch_norm(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
    given = _first(args, kwargs)
    named = _by_name(args, kwargs, running_mean=None, running_var=None, weight=None, bias=None, training=False,
                   momentum=0.1, eps=1e-5)  # fmt: skip
    if named["training"] or named["running_mean"] is None:
        raise NotLinear("with the batch's own statistics")
    mean, var, weight, bias = (run.cast(named[n]) for n in ("running_mean", "running_var", "weight", "bias"))
    gain, shift = (by_channel(v, given.raw) for v in scale_and_shift(weight, bias, mean, var, named["eps"]))
    read = _reader(given)
    return run.operation(lambda rows: run.added(read(rows) * gain, shift), [given])


def _sum(sign_first: float, sign_second: float) -> Rule:
    """Sums and differences of tracked tensors, constants, and `alpha` times the second."""

    def rule(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
        a, b = args[0], args[1] if len(args) > 1 else kwargs["other"]
        second = sign_second * kwargs.get("alpha", 1)
        tracked = [v for v in (a, b) if isinstance(v, _tracked())]

        if len(tracked) == 2:
            if a.raw.ndim != b.raw.ndim:
                raise NotLinear("of tensors with other numbers of dimensions")
            one, other = _reader(a), _reader(b)
            return run.operation(
                lambda rows: torch.add(one(rows) if sign_first == 1 else -one(rows), other(rows), alpha=second), tracked
            )
        varies, constant = (a, b) if tracked[0] is a else (b, a)
        sign, times = (sign_first, second) if varies is a else (second, sign_first)
        read, bias = _reader(varies), times * _constant(run, constant, varies)
        shape = torch.broadcast_shapes(varies.raw.shape, getattr(bias, "shape", ()))[1:]
        return run.operation(lambda rows: run.added((sign * read(rows)).expand(-1, *shape).clone(), bias), tracked)

    return rule


def _product(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
    a, b = args[0], args[1] if len(args) > 1 else kwargs["other"]
    varies, constant = (a, b) if isinstance(a, _tracked()) else (b, a)
    if isinstance(constant, _tracked()):
        raise NotLinear("of two things that depend on the input")
    if varies is b and "div" in func.__name__:
        raise NotLinear("by something that depends on the input")
    if kwargs.get("rounding_mode"):
        raise NotLinear("with rounding")
    read, factor, divide = _reader(varies), _constant(run, constant, varies), "div" in func.__name__
    return run.operation(lambda rows: read(rows) / factor if divide else read(rows) * factor, [varies])


def _constant(run: Pass, constant: object, beside: Tracked) -> Any:
    """A number or tensor that is the same for all inputs."""
    if isinstance(constant, Tensor) and constant.ndim >= beside.raw.ndim and constant.shape[0] != 1:
        raise NotLinear("with a tensor that has a row for each input")
    return run.cast(constant)


def _matmul(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
    given = _first(args, kwargs)
    other: Any = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("mat2"))
    if isinstance(other, _tracked()) or other.ndim > 2:
        raise NotLinear("of two things that depend on the input")
    read, weight = _reader(given), run.cast(other)
    return run.operation(lambda rows: read(rows) @ weight, [given])


def _cat(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
    parts = args[0] if args else kwargs["tensors"]
    dim: Any = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    if not all(isinstance(part, _tracked()) for part in parts) or dim % parts[0].raw.ndim == 0:
        raise NotLinear("along the batch, or with tensors that do not depend on the input")
    reads = [_reader(part) for part in parts]
    return run.operation(lambda rows: torch.cat([read(rows) for read in reads], dim), list(parts))


def _zeros(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
    return run.wrap(torch.zeros_like(_first(args, kwargs).raw))


def _off(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
    """Dropout, which is off in eval mode."""
    named = _by_name(args, kwargs, p=0.5, training=True, inplace=False)
    if named["training"] and named["p"] > 0:
        raise NotLinear("with dropout on")
    return _first(args, kwargs)


def _pieces(make: Callable[[Pass, tuple[Any, ...], dict[str, Any], Tracked], Site]) -> Rule:
    def rule(run: Pass, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tracked:
        given = _first(args, kwargs)
        return run.piecewise(lambda: make(run, args, kwargs, given), given)

    return rule


def _relu(run: Pass, args: Args, kwargs: Kwargs, given: Tracked) -> Site:
    return Elementwise((0.0,), (0.0, 1.0), (0.0, 0.0))


def _abs(run: Pass, args: Args, kwargs: Kwargs, given: Tracked) -> Site:
    return Elementwise((0.0,), (-1.0, 1.0), (0.0, 0.0))


def _leaky(run: Pass, args: Args, kwargs: Kwargs, given: Tracked) -> Site:
    slope = _by_name(args, kwargs, negative_slope=0.01)["negative_slope"]
    return Elementwise((0.0,), (float(slope), 1.0), (0.0, 0.0))


def _rrelu(run: Pass, args: Args, kwargs: Kwargs, given: Tracked) -> Site:
    named = _by_name(args, kwargs, lower=1 / 8, upper=1 / 3, training=False)
    if named["training"]:
        raise NotLinear("with random slopes")
    return Elementwise((0.0,), ((named["lower"] + named["upper"]) / 2, 1.0), (0.0, 0.0))


def _prelu(run: Pass, args: Args, kwargs: Kwargs, given: Tracked) -> Site:
    weight = run.cast(_by_name(args, kwargs, weight=None)["weight"])
    if weight.numel() > 1:
        weight = weight.view(1, -1, *[1] * (given.raw.ndim - 2))
    return Elementwise((0.0,), (weight, 1.0), (0.0, 0.0))


def _between(low: float, high: float) -> Site:
    if low >= high:
        raise NotLinear("with bounds that leave nothing")
    knots = [v for v in (low, high) if math.isfinite(v)]
    gains = [0.0] * math.isfinite(low) + [1.0] + [0.0] * math.isfinite(high)
    shifts = [low] * math.isfinite(low) + [0.0] + [high] * math.isfinite(high)
    return Elementwise(knots, gains, shifts)


def _clamp(low: float | None, high: float | None, names: tuple[str, str]) -> Rule:
    def make(run: Pass, args: Args, kwargs: Kwargs, given: Tracked) -> Site:
        named = _by_name(args, kwargs, **{names[0]: low, names[1]: high})
        bounds = [named[name] for name in names]
        if any(isinstance(bound, Tensor) for bound in bounds):
            raise NotLinear("with bounds that are tensors")
        least, most = (
            float(bound) if bound is not None else default
            for bound, default in zip(bounds, (-math.inf, math.inf), strict=True)
        )
        return _between(least, most)

    return _pieces(make)


def _max_pool(dims: int) -> Rule:
    def make(run: Pass, args: Args, kwargs: Kwargs, given: Tracked) -> Site:
        named = _by_name(args, kwargs, kernel_size=None, stride=None, padding=0, dilation=1, ceil_mode=False,
                       return_indices=False)  # fmt: skip
        if named["return_indices"]:
            raise NotLinear("with the places of the largest entries")
        shape = given.raw.shape[-dims:]
        kernel, padding, dilation = (_per_dimension(named[n], dims) for n in ("kernel_size", "padding", "dilation"))
        stride = kernel if named["stride"] in (None, [], ()) else _per_dimension(named["stride"], dims)
        ceil = bool(named["ceil_mode"])
        lines = [_windows(*one, ceil) for one in zip(shape, kernel, stride, padding, dilation, strict=True)]
        return MaxPool(_grid(lines, shape).to(given.raw.device), [len(line) for line in lines])

    return _pieces(make)


def _adaptive_max_pool(dims: int) -> Rule:
    def make(run: Pass, args: Args, kwargs: Kwargs, given: Tracked) -> Site:
        named = _by_name(args, kwargs, output_size=None, return_indices=False)
        if named["return_indices"]:
            raise NotLinear("with the places of the largest entries")
        shape = given.raw.shape[-dims:]
        sizes = [s if o is None else o for o, s in zip(_per_dimension(named["output_size"], dims), shape, strict=True)]
        lines = []
        for size, extent in zip(sizes, shape, strict=True):
            ends = [(i * extent // size, -(-(i + 1) * extent // size)) for i in range(size)]
            longest = max(stop - start for start, stop in ends)
            lines.append(torch.tensor([[*range(a, b), *[-1] * (longest - b + a)] for a, b in ends]))
        return MaxPool(_grid(lines, shape).to(given.raw.device), sizes)

    return _pieces(make)


def _per_dimension(value: object, dims: int) -> list[Any]:
    values = list(value) if isinstance(value, tuple | list) else [value]
    return values * dims if len(values) == 1 else values


def _windows(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> Tensor:
    """The positions of each window along one dimension, −1 outside."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (count - 1) * stride >= size + padding:  # a window must begin inside
        count -= 1
    places = torch.arange(count)[:, None] * stride - padding + torch.arange(kernel) * dilation
    return places.masked_fill((places < 0) | (places >= size), -1)


def _grid(lines: list[Tensor], shape: torch.Size) -> Tensor:
    """Windows in one or more dimensions from those along each: positions in the flattened picture ``[L, K]``."""
    indices = lines[0]
    for line, extent in zip(lines[1:], shape[1:], strict=True):
        inside = (indices >= 0)[:, None, :, None] & (line >= 0)[None, :, None, :]
        places = indices[:, None, :, None] * extent + line[None, :, None, :]
        indices = torch.where(inside, places, -1).flatten(2).flatten(0, 1)
    return indices


RULES: dict[str, Rule] = {
    "linear": _with_weight(lambda ndim: (-1,)),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        _with_weight(lambda ndim: (1, -1, *[1] * (ndim - 2))),
    ),
    **dict.fromkeys(
        (
            *("avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
            *("adaptive_avg_pool3d", "neg", "interpolate", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
        ),
        _homogeneous,
    ),
    **dict.fromkeys(("mean", "sum"), _reduction),
    "pad": _pad,
    "batch_norm": _batch_norm,
    **dict.fromkeys(("add", "iadd", "radd"), _sum(1.0, 1.0)),
    **dict.fromkeys(("sub", "isub", "subtract"), _sum(1.0, -1.0)),
    **dict.fromkeys(("rsub",), _sum(-1.0, 1.0)),
    **dict.fromkeys(
        ("mul", "multiply", "rmul", "imul", "div", "divide", "true_divide", "truediv", "itruediv"), _product
    ),
    **dict.fromkeys(("matmul", "mm", "rmatmul"), _matmul),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "zeros_like": _zeros,
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"), _off),
    "relu": _pieces(_relu),
    **dict.fromkeys(("abs", "absolute"), _pieces(_abs)),
    "leaky_relu": _pieces(_leaky),
    "rrelu": _pieces(_rrelu),
    "prelu": _pieces(_prelu),
    "relu6": _clamp(0.0, 6.0, ("low", "high")),
    "hardtanh": _clamp(-1.0, 1.0, ("min_val", "max_val")),
    **dict.fromkeys(("clamp", "clip"), _clamp(None, None, ("min", "max"))),
    **{f"max_pool{dims}d": _max_pool(dims) for dims in (1, 2, 3)},
    **{f"adaptive_max_pool{dims}d": _adaptive_max_pool(dims) for dims in (1, 2, 3)},
}
