"""What each corruption does to pictures x ``[N, C, H, W]`` in [0, 1], given its level and one generator a picture.

Blurs are sums of shifted copies and bends read each pixel from where it came, so no picture can touch another, and
results are the same to the last bit in any batch. Beyond the edge a blur sees the mirrored picture, a bend the
nearest pixel. The results may leave [0, 1]; `nescio_papers.datasets.corruptions` clips them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nescio._common.lazy_imports import need

Generators = list[torch.Generator]


def gaussian_noise(x: Tensor, level: float, random: Generators) -> Tensor:
    """Normal noise: x + level · ε."""
    return x + level * _draw(x, random, lambda one: torch.randn(x.shape[1:], generator=one))


def shot_noise(x: Tensor, level: float, random: Generators) -> Tensor:
    """Poisson(level · x) / level."""
    rates = (x * level).float().cpu()
    counts = [torch.poisson(rate, generator=one) for rate, one in zip(rates, random, strict=True)]
    return torch.stack(counts).to(x) / level


def impulse_noise(x: Tensor, level: float, random: Generators) -> Tensor:
    """A value becomes 0 or 1, each with probability level / 2."""
    chance = _draw(x, random, lambda one: torch.rand(x.shape[1:], generator=one))
    return torch.where(chance < level, (chance < level / 2).to(x), x)


def gaussian_blur(x: Tensor, level: float, _: Generators) -> Tensor:
    """Normal density of standard deviation `level`, cut off at three of them."""
    weights = _normal(level)
    return _blur(_blur(x, weights[:, None]), weights[None, :])


def defocus_blur(x: Tensor, level: float, _: Generators) -> Tensor:
    """A disc: a pixel at distance d weighs clip(level + ½ − d, 0, 1)."""
    reach = math.ceil(level)
    axis = torch.arange(-reach, reach + 1.0)
    disc = (level + 0.5 - (axis[:, None].square() + axis[None, :].square()).sqrt()).clamp(0, 1)
    return _blur(x, disc / disc.sum())


def motion_blur(x: Tensor, level: float, random: Generators) -> Tensor:
    """Σ_k w_k x(place − k · direction), w_k ∝ exp(−k² / 2 level²), k = 0, ½, 1 … 3 level."""
    angle = _draw(x, random, lambda one: torch.rand(1, generator=one)) * (math.pi / 2) - math.pi / 4
    direction = torch.cat([angle.cos(), angle.sin()], dim=1)[:, None, None, :]
    steps = torch.arange(0, 3 * level, 0.5).tolist()
    weights = [math.exp(-(step**2) / (2 * level**2)) for step in steps]
    total = torch.zeros_like(x)
    for step, weight in zip(steps, weights, strict=True):
        total += weight / sum(weights) * _read(x, _places(x) - step * direction)
    return total


def contrast(x: Tensor, level: float, _: Generators) -> Tensor:
    """Towards the mean: mean + level · (x − mean), for each channel."""
    mean = x.mean(dim=(2, 3), keepdim=True)
    return mean + level * (x - mean)


def brightness(x: Tensor, level: float, _: Generators) -> Tensor:
    """V becomes min(V + level, 1), where V is the largest channel; hue and saturation stay."""
    value = x.amax(dim=1, keepdim=True)
    lighter = (value + level).clamp(max=1)
    return torch.where(value > 0, x * lighter / value.clamp(min=1e-12), lighter)


def saturate(x: Tensor, level: float, _: Generators) -> Tensor:
    """S becomes min(level · S, 1), S = (max − min) / max over channels: V − x grows by the same factor."""
    value, least = x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True)
    factor = (value / (value - least).clamp(min=1e-12)).clamp(max=level)
    return value - (value - x) * factor


def pixelate(x: Tensor, level: float, _: Generators) -> Tensor:
    """Averages over a grid of level · side cells, each shown as a block; a pixel on a border mixes both."""
    rows, columns = (_areas(size, int(size * level)).to(x) for size in x.shape[2:])
    return torch.stack([rows @ picture @ columns.T for picture in x])  # one by one: the same bits in any batch


def jpeg(x: Tensor, level: int, _: Generators) -> Tensor:
    """Rounded to 0 … 255, packed as JPEG of quality `level`, and unpacked."""
    images = need("PIL.Image", "data")

    def there_and_back(picture: np.ndarray) -> np.ndarray:
        packed = io.BytesIO()
        images.fromarray(picture.squeeze(2) if picture.shape[2] == 1 else picture).save(packed, "JPEG", quality=level)
        packed.seek(0)
        with images.open(packed, formats=("JPEG",)) as image:
            return np.asarray(image).reshape(picture.shape)

    pictures = x.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    done = np.stack([there_and_back(np.ascontiguousarray(picture)) for picture in pictures])
    return torch.from_numpy(done).permute(0, 3, 1, 2).contiguous().to(x) / 255


def fog(x: Tensor, level: tuple[float, float], random: Generators) -> Tensor:
    """(x + strength · plasma) · m / (m + strength), m the picture's largest value."""
    strength, fade = level
    light = strength * _plasma(x, fade, random)
    top = x.amax(dim=(1, 2, 3), keepdim=True)
    return (x + light) * top / (top + strength)


def elastic(x: Tensor, level: float, random: Generators) -> Tensor:
    """Each pixel is read from place + field: normal noise smoothed over 8 % of the side, scaled to level · side."""
    height, width = x.shape[2:]
    side = min(height, width)
    weights = _normal(0.08 * side)
    field = _draw(x, random, lambda one: torch.randn(2, height, width, generator=one))
    field = _blur(_blur(field, weights[:, None]), weights[None, :])
    scale = level * side / field.square().sum(dim=1, keepdim=True).mean(dim=(2, 3), keepdim=True).sqrt()
    return _read(x, _places(x) + (field * scale).permute(0, 2, 3, 1))


def rotation(x: Tensor, level: float, random: Generators) -> Tensor:
    """Turned by ± level degrees, each with probability ½."""
    turn = _draw(x, random, lambda one: torch.rand(1, generator=one)).sub(0.5).sign() * math.radians(level)
    cos, sin = turn.cos()[:, :, None], turn.sin()[:, :, None]
    centre = torch.tensor([x.shape[3] - 1, x.shape[2] - 1]).to(x) / 2
    away = (_places(x) - centre).unbind(dim=-1)
    return _read(x, torch.stack([cos * away[0] - sin * away[1], sin * away[0] + cos * away[1]], dim=-1) + centre)


def translation(x: Tensor, level: float, random: Generators) -> Tensor:
    """Shifted by level · side in a direction drawn from the whole circle."""
    angle = _draw(x, random, lambda one: torch.rand(1, generator=one)) * (2 * math.pi)
    shift = level * min(x.shape[2:]) * torch.cat([angle.cos(), angle.sin()], dim=1)
    return _read(x, _places(x) - shift[:, None, None, :])


def _draw(x: Tensor, random: Generators, one: Callable[[torch.Generator], Tensor]) -> Tensor:
    """One draw for each picture, made on the CPU so that every device gets the same."""
    return torch.stack([one(generator) for generator in random]).to(x)


def _normal(sigma: float) -> Tensor:
    reach = math.ceil(3 * sigma)
    weights = torch.exp(-torch.arange(-reach, reach + 1.0).square() / (2 * sigma**2))
    return weights / weights.sum()


def _areas(size: int, cells: int) -> Tensor:
    """The matrix [size, size] that averages `size` pixels over `cells` equal cells, and spreads them out again."""
    pixel, cell = torch.arange(size) * cells, torch.arange(cells) * size  # left edges, in units of 1 / (size · cells)
    right = torch.minimum(pixel[:, None] + cells, cell[None, :] + size)
    shared = (right - torch.maximum(pixel[:, None], cell[None, :])).clamp(min=0).double()
    return (shared / cells) @ (shared / size).T


def _blur(x: Tensor, kernel: Tensor) -> Tensor:
    """Σ_ij kernel_ij x(row + i, column + j); the kernel is symmetric, its sides odd."""
    rows, columns = kernel.shape
    height, width = x.shape[2:]
    wide = functional.pad(x, (columns // 2, columns // 2, rows // 2, rows // 2), mode="reflect")
    total = torch.zeros_like(x)
    for row in range(rows):
        for column in range(columns):
            total += float(kernel[row, column]) * wide[:, :, row : row + height, column : column + width]
    return total


def _places(x: Tensor) -> Tensor:
    """The place (column, row) of every pixel, [1, H, W, 2]."""
    rows, columns = (torch.arange(size, dtype=x.dtype, device=x.device) for size in x.shape[2:])
    return torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1)[None]


def _read(x: Tensor, places: Tensor) -> Tensor:
    """The picture at these places (column, row), between pixels linear."""
    last = torch.tensor([x.shape[3] - 1, x.shape[2] - 1]).to(x)
    grid = (places / last * 2 - 1).expand(len(x), -1, -1, -1)
    return functional.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True)


def _plasma(x: Tensor, fade: float, random: Generators) -> Tensor:
    """Diamond–square fractal in [0, 1], [N, 1, H, W]: half the step, 1/fade of the wobble at each round."""
    height, width = x.shape[2:]
    size = 1 << (max(height, width) - 1).bit_length()
    noise = _draw(x, random, lambda one: torch.rand(size, size, generator=one)) * 2 - 1
    field = torch.zeros_like(noise)
    step, wobble = size, 1.0
    while step > 1:
        half = step // 2
        centres, across, down = ((half, half), (0, half), (half, 0))
        corner = field[:, ::step, ::step]
        right, below = corner.roll(-1, dims=2), corner.roll(-1, dims=1)
        middle = (corner + right + below + below.roll(-1, dims=2)) / 4 + wobble * _every(noise, centres, step)
        _every(field, centres, step).copy_(middle)
        beside = (corner + right + middle + middle.roll(1, dims=1)) / 4 + wobble * _every(noise, across, step)
        under = (corner + below + middle + middle.roll(1, dims=2)) / 4 + wobble * _every(noise, down, step)
        _every(field, across, step).copy_(beside)
        _every(field, down, step).copy_(under)
        step, wobble = half, wobble / fade
    low, high = field.amin(dim=(1, 2), keepdim=True), field.amax(dim=(1, 2), keepdim=True)
    return ((field - low) / (high - low))[:, None, :height, :width]


def _every(field: Tensor, start: tuple[int, int], step: int) -> Tensor:
    return field[:, start[0] :: step, start[1] :: step]
