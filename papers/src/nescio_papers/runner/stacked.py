"""Many small CNNs trained at once: every weight has one more dimension, K, the number of networks.

Active learning trains thousands of networks on a few hundred pictures each. One by one a GPU waits for Python; here a
step of all networks is recorded once (a CUDA graph), and played again for every batch. Dense layers are one product
for all networks. Convolutions stay one call a network: grouped ones are slow, and products over patches read every
pixel many times. All networks see equally many pictures, each its own.
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
Step = Callable[[Tensor], object]


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
    count = len(next(iter(state.values())))
    normal = (x - like.mean) / like.std
    maps = list(normal.expand(count, *x.shape[1:]))  # by network, up to the first dense layer
    if x.is_cuda and torch.is_autocast_enabled("cuda"):  # as its fast convolutions read them
        maps = [one.contiguous(memory_format=torch.channels_last) for one in maps]
    flat: Tensor | None = None
    light = not torch.is_grad_enabled() and not x.is_cuda
    for place, (name, layer) in enumerate(like.network.named_children()):
        if light and place == 0 and len(x) == 1:
            maps = _first_layer(normal[0], state[f"network.{name}.weight"], state[f"network.{name}.bias"])
        elif light and isinstance(layer, nn.MaxPool2d):
            maps = [_halved(one) for one in maps]
        elif isinstance(layer, nn.Conv2d):
            own = zip(maps, state[f"network.{name}.weight"], state[f"network.{name}.bias"], strict=True)
            maps = [F.conv2d(one, weight, bias) for one, weight, bias in own]
        elif isinstance(layer, nn.Flatten):
            flat = torch.stack([one.flatten(1) for one in maps])
        elif flat is None:
            maps = [layer(one) for one in maps]
        elif isinstance(layer, nn.Linear):
            flat = torch.baddbmm(state[f"network.{name}.bias"][:, None], flat, state[f"network.{name}.weight"].mT)
        else:
            flat = layer(flat)
    assert flat is not None
    return flat


def _first_layer(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """Return the first convolution of pictures [B, channels, H, W] by every network's weight [K, out, channels, k, k].

    All networks see the same patches: on a CPU they are taken once, for one product, which is faster with one channel.
    """
    side = weight.shape[-1]
    high, wide = (size - side + 1 for size in x.shape[2:])
    patches = F.unfold(x, side)
    products = torch.baddbmm(bias.flatten()[:, None], weight.flatten(2).flatten(0, 1).expand(len(x), -1, -1), patches)
    return list(products.view(len(x), *weight.shape[:2], high, wide).unbind(1))


def _halved(x: Tensor) -> Tensor:
    """Return the maxima of 2 × 2 pixels, the same as those of `nn.MaxPool2d(2)`: without places, for no gradient."""
    high, wide = (size - size % 2 for size in x.shape[2:])
    rows = torch.maximum(x[:, :, 0:high:2], x[:, :, 1:high:2])
    return torch.maximum(rows[..., 0:wide:2], rows[..., 1:wide:2])


@dataclass
class Trainer:
    """Plain SGD with momentum and weight decay for all networks at once, as `nescio.training` does it for one.

    Args:
        like: A network of the same make as all.
        x: The whole training set, uint8 [M, channels, H, W], on the device of the training.
        y: Its labels [M].
        recipe: Epochs, learning rate, momentum, weight decay and batch size; the rate is constant. On a GPU also the
            precision of steps; the CPU takes all digits.
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
        generators = {seed: torch.Generator().manual_seed(seed) for seed in seeds}
        steps: dict[int, Step] = {}  # by size of the batch
        for epoch in range(1, self.recipe.epochs + 1):
            order_of = {seed: torch.randperm(indices.shape[1], generator=g) for seed, g in generators.items()}
            orders = torch.stack([order_of[seed] for seed in seeds]).to(indices.device)
            for batch in indices.gather(1, orders).split(self.recipe.batch_size, 1):
                size = batch.shape[1]
                if size not in steps:
                    steps[size] = self._ready(parameters, velocity, batch)
                steps[size](batch)
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

    def _ready(self, parameters: State, velocity: State, like: Tensor) -> Step:
        """Return what makes a step with batches of this size: on a GPU one that was recorded."""

        def eager(batch: Tensor) -> None:
            self._step(parameters, velocity, batch)

        if not like.is_cuda:
            return eager
        changed = [*parameters.values(), *velocity.values()]
        before = [value.detach().clone() for value in changed]
        place, graph, stream = like.clone(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
        try:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # libraries choose their ways in the first steps, which cannot be recorded
                for _ in range(3):
                    eager(place)
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                eager(place)
        except RuntimeError:  # what cannot be recorded is done step by step, with the same numbers
            return eager
        finally:
            with torch.no_grad():
                for value, old in zip(changed, before, strict=True):
                    value.copy_(old)

        def replayed(batch: Tensor) -> None:
            place.copy_(batch)
            graph.replay()

        return replayed

    def _step(self, parameters: State, velocity: State, batch: Tensor) -> None:
        with self._rounding():
            answers = logits(self.like, parameters, to_floats(self.x[batch]))
        answers = answers.float() if answers.dtype == torch.bfloat16 else answers
        losses = F.cross_entropy(answers.flatten(0, 1), self.y[batch].flatten(), reduction="none")
        loss = losses.view(batch.shape).mean(1).sum()  # each network's own mean: their gradients do not mix
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        with torch.no_grad():
            for (name, value), gradient in zip(parameters.items(), gradients, strict=True):
                velocity[name].mul_(self.recipe.momentum).add_(gradient + self.recipe.weight_decay * value)
                value.sub_(self.recipe.lr * velocity[name])

    def _rounding(self) -> torch.autocast:
        """Return the context of a step; without a cache, which a recorded step cannot have."""
        rounded = self.recipe.precision is not None and self.x.is_cuda
        return torch.autocast(self.x.device.type, torch.bfloat16, enabled=rounded, cache_enabled=False)

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
    def answers(self, parameters: State, pictures: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Give the logits [K, b, C] of pictures (uint8) that all networks see, with where each block starts."""
        block = 2000 if pictures.is_cuda else 250
        for start in range(0, len(pictures), block):
            yield start, logits(self.like, parameters, to_floats(pictures[start : start + block])[None])
