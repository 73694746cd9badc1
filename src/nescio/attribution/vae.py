"""`VAE`: a small variational auto-encoder of the inputs, for the methods that look for a similar input with less doubt.

    q(w | x) = N(μ(x), diag σ²(x)),   p(w) = N(0, 1),   p(x | w) = N(f(w), s²)
    minimise  E_q[−log p(x | w)] + KL(q(w | x) ‖ p(w)),      s one number that is learned too

in units in which the training data have mean 0 and variance 1. Pictures have convolutions, everything else dense
layers. In training mode w is drawn, in eval mode it is μ.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from nescio import inputs
from nescio._common.argument_checks import integer
from nescio.data import replacing
from nescio.inputs import Data
from nescio.training import Recipe, Step, seeded, train
from nescio.types import InputError

RECIPE = Recipe(epochs=30, batch_size=128, lr=1e-3, optimizer="adam", weight_decay=0.0, schedule="cosine", clip=100.0)
_FORMAT = "nescio.vae"


@dataclass(frozen=True)
class Shape:
    """What an auto-encoder is built from: the shape of one input, the latent space's dimension, and a width."""

    shape: tuple[int, ...]
    latent: int = 20
    width: int = 32


class VAE(nn.Module):
    """Encode inputs of one shape and decode them again; `VAE.train_on(x)` makes one.

    Args:
        shape: What it is built from.

    Examples:
        >>> vae = nescio.attribution.VAE(nescio.attribution.vae.Shape((4,), latent=2, width=2))
        >>> mean, log_variance = vae.encode(torch.rand(5, 4))
        >>> vae.decode(mean).shape
        torch.Size([5, 4])
    """

    center: Tensor
    spread: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.picture = len(shape.shape) == 3
        self.register_buffer("center", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))
        self.log_variance = nn.Parameter(torch.zeros(()))
        width, latent = shape.width, shape.latent
        if self.picture:
            channels, high, wide = shape.shape
            self.inner = (2 * width, -(-high // 4), -(-wide // 4))
            size = math.prod(self.inner)
            self.down = nn.Sequential(
                *(nn.Conv2d(channels, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU()),
                *(nn.Flatten(), nn.Linear(size, 2 * latent)),
            )
            self.start = nn.Sequential(nn.Linear(latent, size), nn.ReLU(), nn.Unflatten(1, self.inner))
            self.up = nn.Sequential(
                *(nn.Upsample(scale_factor=2), nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU()),
                *(nn.Upsample(size=(high, wide)), nn.Conv2d(width, channels, 3, padding=1)),
            )
        else:
            size, wide = math.prod(shape.shape), 8 * width
            self.down = nn.Sequential(nn.Flatten(), nn.Linear(size, wide), nn.ReLU(), nn.Linear(wide, 2 * latent))
            self.start = nn.Sequential(nn.Linear(latent, wide), nn.ReLU())
            self.up = nn.Sequential(nn.Linear(wide, size), nn.Unflatten(1, shape.shape))

    @classmethod
    def train_on(
        cls,
        data: Data,
        *,
        latent: int = 20,
        width: int = 32,
        recipe: Recipe | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        folder: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Train an auto-encoder of inputs with `nescio.training.train`.

        Args:
            data: The inputs ``[N, ...]``.
            latent: The dimension of the latent space.
            width: Channels of its first layer.
            recipe: How to train.
            seed: Of all random numbers.
            device: Where to train.
            folder: Where the state is kept: a run that was killed goes on from there.
            progress: As in `nescio.score`.

        Returns:
            The trained auto-encoder, which `save` keeps.
        """
        x = inputs.as_inputs(data)
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2 or len(x) < 2:
            raise InputError(
                f"expected at least 2 floating-point inputs [N, ...] to train on, got {inputs.describe(x)}"
            )
        integer("latent", latent, at_least=1)
        integer("width", width, at_least=1)
        integer("seed", seed, at_least=0)
        with seeded(seed):
            vae = cls(Shape(tuple(x.shape[1:]), latent, width))
        wide = x.double()
        vae.center, vae.spread = wide.mean().float(), wide.std().float().clamp(min=1e-6)
        vae.to(device)
        chosen = RECIPE if recipe is None else replace(recipe, choose="loss")
        nothing = torch.zeros(len(x), dtype=torch.int64)
        train(vae, (x.float(), nothing), recipe=chosen, loss=_bound, seed=seed, folder=folder, progress=progress)
        return vae.requires_grad_(False)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute μ(x) and log σ²(x).

        Args:
            x: Inputs ``[N, ...]``.

        Returns:
            The two, each ``[N, latent]``.
        """
        mean, log_variance = self.down((x - self.center) / self.spread).chunk(2, dim=1)
        return mean, log_variance.clamp(-20.0, 20.0)

    def decode(self, w: Tensor) -> Tensor:
        """Compute f(w) in the units of the inputs.

        Args:
            w: Latent vectors ``[N, latent]``.

        Returns:
            Inputs ``[N, ...]``.
        """
        result: Tensor = self.up(self.start(w)) * self.spread + self.center
        return result

    def forward(self, x: Tensor) -> Tensor:
        """−log p(x | w), up to a constant, and KL(q ‖ p): ``[N, 2]``."""
        mean, log_variance = self.encode(x)
        w = mean + (log_variance / 2).exp() * torch.randn_like(mean) if self.training else mean
        square = ((self.decode(w) - x) / self.spread).square().flatten(1)
        fit = 0.5 * (square * (-self.log_variance).exp() + self.log_variance).sum(1)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(1)
        return torch.stack([fit, divergence], dim=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all; `VAE.load` reads it.

        Args:
            path: The file.
        """
        state = {name: value.detach().cpu() for name, value in self.state_dict().items()}
        with replacing(os.fspath(path)) as part:
            torch.save({"format": _FORMAT, "shape": asdict(self.shape), "state": state}, part)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Args:
            path: The file.

        Returns:
            The network, on the CPU.
        """
        try:
            held = torch.load(os.fspath(path), map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, ValueError, EOFError, KeyError) as error:
            raise InputError(f"cannot read an auto-encoder from {os.fspath(path)}: {error}") from error
        except Exception as error:  # pickle's own, which is no public name of torch
            raise InputError(f"expected a file that VAE.save wrote, got {os.fspath(path)}: {error}") from error
        if not isinstance(held, dict) or held.get("format") != _FORMAT:
            raise InputError(f"expected a file that VAE.save wrote, got {os.fspath(path)}, which is another")
        shape = held["shape"]
        made = cls(Shape(tuple(shape["shape"]), shape["latent"], shape["width"]))
        made.load_state_dict(held["state"])
        return made.eval().requires_grad_(False)


def _bound(output: Tensor, y: Tensor, step: Step) -> Tensor:
    """The negative evidence lower bound, the mean over a batch."""
    return output.sum(1).mean()
