"""What is attributed: the floating-point input itself, or, for token indices, what the embedding makes of them.

Token indices have no gradient. Their embedding e = E[x] has one, and takes the place of the input: noise is added to
it, paths lead to it from a baseline, and a token's attribution comes from the features of its embedding. Members with
embeddings of their own each have an e of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nescio.attribution.places import Places
from nescio.attribution.sampled_members import Member
from nescio.inputs import Inputs, describe
from nescio.models import Classifier
from nescio.types import InputError, ModelError

Channels = int | Literal["auto"] | None


@dataclass(frozen=True)
class Source:
    """Which tensor of a batch is attributed; tokens: through its embedding."""

    entry: str | None
    tokens: bool
    channels: Channels = "auto"

    @classmethod
    def of(cls, x: Inputs, channels: Channels) -> Source:
        """The source of a batch: the tensor, or of a mapping the one entry that can be attributed."""
        if not isinstance(channels, int | None) and channels != "auto":
            raise InputError(f"expected channels= to be 'auto', None or a dimension of the input, got {channels!r}")
        if isinstance(x, Tensor):
            return cls(None, not x.is_floating_point(), channels)
        open_ = {name: t for name, t in x.items() if "mask" not in name}
        floats = [name for name, t in open_.items() if t.is_floating_point()]
        if len(floats) == 1:
            return cls(floats[0], False, channels)
        whole = [name for name, t in open_.items() if not t.is_floating_point() and t.ndim == 2]
        chosen = [name for name in whole if name == "input_ids"] or whole
        if floats or not chosen:
            raise InputError(
                "expected one floating-point entry, or token indices [N, T], among the inputs to be attributed, got "
                f"{describe(x)}; give the model a function that takes the others from elsewhere"
            )
        return cls(chosen[0], True, channels)

    def tensor(self, x: Inputs) -> Tensor:
        """The tensor of the batch."""
        return x if isinstance(x, Tensor) else x[str(self.entry)]

    def places(self, x: Inputs) -> Places:
        """The places of the batch."""
        t = self.tensor(x)
        if self.tokens:
            if t.ndim != 2:
                raise InputError(f"expected token indices [N, T] or floating-point inputs, got {describe(t)}")
            return Places(tuple(t.shape[1:]), 2, _absent(x, t.shape))
        dim = {2: None, 3: 2}.get(t.ndim, 1) if self.channels == "auto" else self.channels
        if t.ndim < 2 or (dim is not None and not 1 <= dim < t.ndim):
            raise InputError(
                f"expected channels= to be a dimension from 1 of inputs [N, ...], got {dim} for {describe(t)}"
            )
        shape = tuple(size for at, size in enumerate(t.shape) if at not in (0, dim))
        if not shape or 0 in t.shape:
            raise InputError(f"expected inputs with places to attribute to, got {describe(t)}")
        return Places(shape, dim, _absent(x, torch.Size([len(t), *shape])))

    @contextmanager
    def settled(self, classifier: Classifier, x: Inputs, change: Callable[[Tensor], Tensor]) -> Iterator[Inputs]:
        """The batch with `change` of what is attributed in its place, inside of the block."""
        if not self.tokens:
            new = change(self.tensor(x))
            yield new if isinstance(x, Tensor) else {**x, str(self.entry): new}
            return
        ids = self.tensor(x)
        seen: list[bool] = []
        known = [] if classifier.module is None else list(classifier.module.modules())

        def hook(_: nn.Module, given: tuple[Any, ...], gave: Tensor) -> Tensor | None:
            same = given and given[0].shape == ids.shape and torch.equal(given[0], ids)
            if seen or not same:
                return None
            seen.append(True)
            return change(gave)

        handles = [m.register_forward_hook(hook) for m in known if isinstance(m, nn.Embedding)]
        try:
            yield x
        finally:
            for handle in handles:
                handle.remove()
        if not seen:
            raise ModelError(
                f"expected a model that looks up the token indices in an nn.Embedding, got {classifier.name}, which "
                "does not; give it floating-point inputs, such as the embeddings themselves"
            )


def as_floats(member: Member, x: Inputs) -> Member:
    """The member, which makes floats of pictures in whole numbers first, by its own function before the model."""
    classifier = member.network()
    first = classifier.preprocess
    if not isinstance(x, Tensor) or x.is_floating_point() or x.ndim < 3 or first is None:
        return member
    bare = Classifier(classifier.model, output=classifier.output, item=classifier.item)
    return replace(member, network=lambda: bare, before=lambda x: first(x.to(classifier.device)))


def _absent(x: Inputs, shape: torch.Size) -> Tensor | None:
    """Where an attention mask says that there is nothing."""
    if not isinstance(x, Mapping):
        return None
    masks = [t for name, t in x.items() if "mask" in name and t.shape == shape and not t.is_floating_point()]
    if not masks:
        return None
    empty = masks[0] == 0
    if bool(empty.flatten(1).all(1).any()):
        raise InputError("expected at least one token that the mask lets through for each input, got none for some")
    return empty
