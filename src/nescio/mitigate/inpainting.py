"""`inpaint`: pixels filled in smoothly from those around them.

The masked pixels Ω of a picture u get the values that solve Laplace's equation on the grid,

    Σ_{q next to p} (u_q − u_p) = 0      for every p in Ω,      u as it is elsewhere,

where a pixel at the edge has fewer neighbours: nothing flows over the edge. So each one is the mean of its neighbours,
none is above or below all that surround the hole, and a linear ramp is restored exactly. The equations are symmetric
and positive definite, and are solved for all pictures and channels side by side by conjugate gradients, in float64.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nescio.inputs import describe
from nescio.mitigate.map_attention import check_pictures
from nescio.types import InputError

TOLERANCE = 1e-12
"""What may be left of the equations' residual, as a share of what it was at the start."""
_AT_ONCE = 2**22  # values that are worked on at a time


def inpaint(x: Tensor, mask: Tensor) -> Tensor:
    """Fill in masked pixels smoothly from around them.

    Args:
        x: Pictures ``[N, C, H, W]``, which are left as they are.
        mask: Booleans ``[N, H, W]``, True where to fill in.

    Returns:
        The filled pictures; whole numbers are rounded.

    Raises:
        InputError: A mask covers a whole picture, or a pixel outside it is not finite.

    Examples:
        >>> inpaint(torch.tensor([[[[1.0, 9.0, 3.0]]]]), torch.tensor([[[False, True, False]]]))
        tensor([[[[1., 2., 3.]]]])
    """
    check_numbers(check_pictures(x))
    check_mask(mask, x)
    if bool(mask.flatten(1).all(1).any()):
        raise InputError("expected pixels outside of each mask to fill in from, got a mask that covers a whole picture")
    if not bool((x.isfinite() | mask.to(x.device).unsqueeze(1)).all()):
        raise InputError(
            "expected finite pixels outside of the mask, got NaN or infinite ones; put those into the mask"
        )
    rows = max(1, _AT_ONCE // x[0].numel())
    parts = zip(x.detach().split(rows), mask.to(x.device).split(rows), strict=True)
    return torch.cat([put(part, _harmonic(part, inside), inside) for part, inside in parts])


def check_numbers(x: Tensor) -> None:
    """Raise an InputError unless the pictures are of real numbers."""
    if x.dtype == torch.bool or x.is_complex():
        raise InputError(f"expected pictures of real numbers, got {describe(x)}; convert them first, as in x.float()")


def check_mask(mask: object, x: Tensor) -> None:
    """Raise an InputError unless it has a boolean for each pixel of pictures x."""
    wanted = (len(x), *x.shape[2:])
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != wanted:
        raise InputError(f"expected the mask as booleans of shape {list(wanted)}, got {describe(mask)}")


def put(x: Tensor, new: Tensor, mask: Tensor) -> Tensor:
    """Pictures x with the new values, of any type, where the mask is True; all others bit for bit as they are."""
    if not x.is_floating_point():
        kind = torch.iinfo(x.dtype)
        new = new.round().clamp(kind.min, kind.max)
    return torch.where(mask.unsqueeze(1), new.to(x.dtype), x)


def _harmonic(x: Tensor, mask: Tensor) -> Tensor:
    """The solution inside of the mask, float64 [N, C, H, W]; elsewhere it means nothing."""
    count, channels, _, wide = x.shape
    most = int(mask.flatten(1).sum(1).max())
    if most == 0:
        return x
    flat, inside = x.flatten(2).to(torch.float64), mask.flatten(1)
    # measured from the mean of what is known, so that a picture's brightness costs no digits
    known = (~inside).unsqueeze(1)
    mean = torch.where(known, flat, 0.0).sum(2, keepdim=True) / known.sum(2, keepdim=True)
    values = torch.where(known, flat - mean, 0.0)
    # unknowns are the masked pixels alone, [N, K]: a picture with fewer than K has others there, which stay 0
    pixels = inside.argsort(dim=1, descending=True, stable=True)[:, :most]
    real = inside.gather(1, pixels)
    beside, there = _beside(pixels, wide, flat.shape[2])
    place = torch.full_like(inside, most, dtype=torch.long)
    place.scatter_(1, pixels, torch.where(real, torch.arange(most, device=x.device), most))
    around = (count, channels, 4, most)
    linked = torch.where(there, place.gather(1, beside.flatten(1)).view_as(beside), most)
    links = linked.flatten(1).unsqueeze(1).expand(-1, channels, -1)
    edge = values.gather(2, beside.flatten(1).unsqueeze(1).expand(-1, channels, -1)).view(around)
    b = (edge * (there & real.unsqueeze(1)).unsqueeze(1)).sum(2)
    degree, real = there.sum(1).unsqueeze(1), real.unsqueeze(1)

    def flow(u: Tensor) -> Tensor:
        """The degree times u − the sum of its neighbours inside of the mask."""
        return (degree * u - nn.functional.pad(u, (0, 1)).gather(2, links).view(around).sum(2)) * real

    u = _solved(flow, b, 2 * most + 10)
    return flat.scatter(2, pixels.unsqueeze(1).expand_as(u), u + mean).view(x.shape)


def _solved(apply: Callable[[Tensor], Tensor], b: Tensor, most: int) -> Tensor:
    """The u with apply(u) = b, [N, C, K], by conjugate gradients along the last dimension."""
    u, r, p = torch.zeros_like(b), b, b
    size = r.square().sum(2, keepdim=True)
    goal = size * TOLERANCE**2
    for _ in range(most):
        going = size > goal  # a picture that is done stays as it is, whatever others need
        if not bool(going.any()):
            break
        q = apply(p)
        step = torch.where(going, size / (p * q).sum(2, keepdim=True), 0.0)
        u, r = u + step * p, r - step * q
        before, size = size, torch.where(going, r.square().sum(2, keepdim=True), size)
        p = torch.where(going, r + size / before * p, p)
    return u


def _beside(pixels: Tensor, wide: int, size: int) -> tuple[Tensor, Tensor]:
    """The pixels above, below, left and right, [N, 4, K], and whether they are there; 0 where not."""
    column = pixels % wide
    there = torch.stack([pixels >= wide, pixels + wide < size, column > 0, column < wide - 1], 1)
    neighbours = torch.stack([pixels - wide, pixels + wide, pixels - 1, pixels + 1], 1)
    return torch.where(there, neighbours, 0), there
