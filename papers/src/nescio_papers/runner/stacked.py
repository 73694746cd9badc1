"""Many small CNNs trained at once: every weight has one more dimension, K, the number of networks.

Active learning trains thousands of networks on a few hundred pictures each. One by one a GPU waits for Python; side by
side they are a few large matrix products. Convolutions are products over patches here, since grouped convolutions are
slow. All networks see equally many pictures, each its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio.training import Recipe
from nescio.zoo import Normalised
from nescio_papers.zoo.plans import to_floats

State = dict[str, Tensor]


def stacked(networks: Sequence[Normalised]) -> State:
    """Return the parameters of equal networks with a first dimension K.

    Args:
        networks: Small CNNs (`nescio.zoo.small_cnn`) with their normalisation in front.
    """
    names = [name for name, _ in networks[0].named_parameters()]
    by_network = [dict(network.named_parameters()) for network in networks]
    return {name: torch.stack([own[name].detach() for own in by_network]) for name in names}


def put_into(network: nn.Module, state: State, at: int) -> None:
    """Fill a network with the parameters of the one at place `at`."""
    with torch.no_grad():
        for name, value in network.named_parameters():
            value.copy_(state[name][at])


def logits(like: Normalised, state: State, x: Tensor) -> Tensor:
    """Return the logits [K, B, C] of every network for its own pictures x [K, B, channels, H, W], floats in [0, 1].

    Args:
        like: A network of the same make, for its layers and normalisation.
        state: The parameters, as `stacked` gives them.
        x: Pictures; K = 1 gives all networks the same ones.
    """
    x = (x - like.mean) / like.std
    flat = False
    for name, layer in like.network.named_children():
        if isinstance(layer, nn.Conv2d):
            x = _convolved(x, state[f"network.{name}.weight"], state[f"network.{name}.bias"])
        elif isinstance(layer, nn.Linear):
            x = torch.baddbmm(state[f"network.{name}.bias"][:, None], x, state[f"network.{name}.weight"].mT)
        elif isinstance(layer, nn.Flatten):
            x, flat = x.flatten(2), True
        else:
            x = layer(x) if flat else layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    return x


def _convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve pictures [K or 1, B, c, H, W] with weights [K, o, c, k, k], stride 1, no padding."""
    kernel, side = weight.shape[-1], x.shape[-1] - weight.shape[-1] + 1
    patches = F.unfold(x.flatten(0, 1), kernel).unflatten(0, x.shape[:2])  # [K, B, f, L]
    product = weight.flatten(2)[:, None] @ patches  # [K, B, o, L]: the patches are read where they lie
    return product.unflatten(-1, (side, side)) + bias[:, None, :, None, None]


@dataclass
class Trainer:
    """Plain SGD with momentum and weight decay for all networks at once, as `nescio.training` does it for one.

    Args:
        like: A network of the same make as all.
        x: The whole training set, uint8 [M, channels, H, W], on the device of the training.
        y: Its labels [M].
        recipe: Epochs, learning rate, momentum, weight decay and batch size; the rate is constant.
        every: Validation comes after every so many epochs; the best of these is kept.
    """

    like: Normalised
    x: Tensor
    y: Tensor
    recipe: Recipe
    every: int = 10

    def train(
        self, state: State, indices: Tensor, validation: Tensor, seeds: Sequence[int], check: Callable[[], None]
    ) -> State:
        """Train from `state` on pictures [K, n]; return the parameters of each network's best epoch on validation."""
        parameters = {name: value.clone().requires_grad_() for name, value in state.items()}
        velocity = {name: torch.zeros_like(value) for name, value in state.items()}
        best = {name: value.clone() for name, value in state.items()}
        highest = torch.full((len(indices), 2), -torch.inf, device=indices.device)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        for epoch in range(1, self.recipe.epochs + 1):
            orders = torch.stack([torch.randperm(indices.shape[1], generator=g) for g in generators])
            for batch in indices.gather(1, orders.to(indices.device)).split(self.recipe.batch_size, 1):
                self._step(parameters, velocity, batch)
            if epoch % self.every == 0 or epoch == self.recipe.epochs:
                check()
                reached = self._reached(parameters, validation)
                better = (reached[:, 0] > highest[:, 0]) | (
                    (reached[:, 0] == highest[:, 0]) & (reached[:, 1] > highest[:, 1])
                )
                highest[better] = reached[better]
                for name, value in parameters.items():
                    best[name][better] = value.detach()[better]
        return best

    def _step(self, parameters: State, velocity: State, batch: Tensor) -> None:
        losses = F.cross_entropy(
            logits(self.like, parameters, to_floats(self.x[batch])).flatten(0, 1), self.y[batch].flatten(),
            reduction="none",
        )  # fmt: skip
        loss = losses.view(batch.shape).mean(1).sum()  # each network's own mean: their gradients do not mix
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        with torch.no_grad():
            for (name, value), gradient in zip(parameters.items(), gradients, strict=True):
                velocity[name].mul_(self.recipe.momentum).add_(gradient + self.recipe.weight_decay * value)
                value.sub_(self.recipe.lr * velocity[name])

    @torch.no_grad()
    def _reached(self, parameters: State, validation: Tensor) -> Tensor:
        """Return accuracy and minus the mean loss of each network, [K, 2]."""
        right = loss = torch.zeros(1, dtype=torch.float64, device=self.x.device)
        labels = self.y[validation]
        for start, block in self.answers(parameters, self.x[validation]):
            own = labels[start : start + block.shape[1]]
            right = right + (block.argmax(2) == own).double().sum(1)
            loss = loss + F.cross_entropy(block.mT, own.expand(len(block), -1), reduction="none").double().sum(1)
        return torch.stack([right, -loss], 1).float() / len(labels)

    @torch.no_grad()
    def answers(self, parameters: State, pictures: Tensor, block: int = 250) -> Iterator[tuple[int, Tensor]]:
        """Give the logits [K, b, C] of pictures (uint8) that all networks see, with where each block starts."""
        for start in range(0, len(pictures), block):
            yield start, logits(self.like, parameters, to_floats(pictures[start : start + block])[None])
