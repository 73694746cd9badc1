"""What a language model thought of a text as it went along: the doubt behind every token, and one number for an answer.

    reading = nescio.dense.read(model, {"input_ids": ids, "attention_mask": mask}, ["entropy", "exgrad"], prompt=12)
    reading.nll.maps                    # −log p(token | tokens before) [N, T]; NaN for the prompt and padding
    reading.scores["entropy"].maps      # how sure the model was when it wrote each token
    reading.summary("exgrad", "max")    # one number for each answer
    reading.perplexity

Logits at position t are about the token at t + 1. All maps here stand at the token that they are about, so the first
one has none. Gradient scores are those of the last layer at that position (`nescio.dense`), for every class: of
‖e_c − p‖ only p is needed, so 50,000 classes take no more than a softmax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.argument_checks import choice
from nescio._common.chunking import at_once, in_chunks
from nescio.dense.position_maps import PositionMap, by_position, mapped, maps_of
from nescio.dense.summaries import DenseScores
from nescio.inputs import Data, Inputs, describe
from nescio.models import Classifier, ModelLike
from nescio.modes import predicting, preserved
from nescio.scores.registry import choose
from nescio.types import InputError

NLL = "nll"
How = Literal["mean", "max", "quantile", "sum"]


@dataclass(frozen=True)
class Reading:
    """Hold what a language model thought of every token of N texts.

    Attributes:
        nll: −log p of each token, given those before it.
        scores: The doubt at each token by the name of the method, where the model chose it.

    Examples:
        >>> nll = DenseScores(torch.tensor([[torch.nan, 1.0, 3.0]]))
        >>> Reading(nll, {}).perplexity
        tensor([7.3891], dtype=torch.float64)
    """

    nll: DenseScores
    scores: Mapping[str, DenseScores]

    def __len__(self) -> int:
        return len(self.nll)

    @property
    def lengths(self) -> Tensor:
        """How many tokens of each text count, int64 ``[N]``."""
        return self.nll.mask.flatten(1).sum(1)

    @property
    def perplexity(self) -> Tensor:
        """The exponential of the mean −log p of the tokens, float64 ``[N]``."""
        return self.nll.summary("mean").exp()

    def summary(self, name: str = NLL, how: How = "mean", q: float = 0.95) -> Tensor:
        """Return one number for each text, over the tokens that count; higher = more uncertain.

        Args:
            name: A method, or "nll".
            how: "mean" does not depend on the length, "sum" does: of "nll" it is −log p of the whole answer. "max" is
                the most doubtful token, "quantile" that of a share `q`.
            q: The share.

        Returns:
            float64 ``[N]``; NaN for a text none of whose tokens count.
        """
        choice("how", how, ("mean", "max", "quantile", "sum"))
        known = {NLL: self.nll, **self.scores}
        if name not in known:
            raise InputError(f"expected name= to be one of {', '.join(known)}, got {name!r}")
        if how == "sum":
            return known[name].summary("mean") * self.lengths
        return known[name].summary(how, q)


def read(
    model: ModelLike,
    x: Data,
    method: Any = ("entropy", "exgrad"),
    *,
    prompt: int | Tensor = 0,
    chunk: int | None = None,
    memory_gb: float | None = None,
    **settings: Any,
) -> Reading:
    """Let a language model read texts, and note how sure it was of each token before it saw it. One forward pass.

    Args:
        model: A causal language model that returns logits ``[N, T, C]``, such as one of transformers, or a
            `Classifier` of one.
        x: Token indices ``[N, T]``, or a mapping with ``input_ids`` and, where texts differ in length,
            ``attention_mask``.
        method: Names of methods, or methods with their settings: those of one forward pass (entropy, energy, gen …)
            and of the last layer's gradients (exgrad, regrad, evengrad …).
        prompt: How many positions at the beginning were not written by the model, padding included: one number, or
            one for each text. They do not count.
        chunk: How many texts at a time; None chooses.
        memory_gb: About how much memory the scores may take; None chooses.
        settings: Of the methods.

    Returns:
        The −log p of each token and the scores behind it.

    Raises:
        InputError: The inputs have no token indices, or the prompt is longer than a text.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7))
        >>> reading = nescio.dense.read(model, torch.randint(7, (2, 5)), ["entropy", "exgrad"], prompt=2)
        >>> reading.lengths, reading.summary("exgrad", "max").shape
        (tensor([3, 3]), torch.Size([2]))
    """
    texts = inputs.as_inputs(x)
    ids = texts if isinstance(texts, Tensor) else texts.get("input_ids")
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point() or ids.shape[1] < 2:
        raise InputError(
            f"expected token indices [N, T] of at least two tokens, or a mapping with input_ids, got {describe(texts)}"
        )
    counts = _counting(texts, ids, prompt)
    own = Classifier.of(model, dense=True)
    classifier = own if own.class_dim is not None else Classifier(own.model, output="dense", class_dim=-1)
    several = list(method) if isinstance(method, list | tuple) else [method]
    named = {key: one.needs[0] for key, one in mapped(choose(several, settings)).items()}

    def step(start: int, stop: int) -> list[Tensor]:
        return _one_pass(classifier, inputs.take(texts, slice(start, stop)), ids[start:stop], named, memory_gb)

    with preserved(classifier), predicting(classifier):
        chunks = in_chunks(len(ids), at_once(texts, chunk), step)
    nll, *maps = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    every = {key: DenseScores(_at_the_next(value), counts) for key, value in zip(named, maps, strict=True)}
    return Reading(DenseScores(_at_the_next(nll), counts), every)


def _one_pass(
    classifier: Classifier, texts: Inputs, ids: Tensor, named: Mapping[str, Any], memory_gb: float | None
) -> list[Tensor]:
    """The −log p of the next token at every position but the last, and the map of each request."""
    requests: Sequence[PositionMap] = list(named.values())
    logits, maps = maps_of(requests, classifier, texts, memory_gb)
    if logits.shape[:-1] != ids.shape:
        raise InputError(f"expected logits at each of {list(ids.shape)} tokens, got {describe(logits)}")
    after = ids[:, 1:, None].to(logits.device)
    if int(after.max()) >= logits.shape[-1] or int(after.min()) < 0:
        raise InputError(
            f"expected token indices below {logits.shape[-1]}, the number of classes, got {int(after.max())}"
        )

    def surprise(z: Tensor, token: Tensor) -> Tensor:
        return -z.log_softmax(1).gather(1, token)[:, 0]

    return [by_position(surprise, logits[:, :-1], memory_gb, after), *(values[:, :-1] for values in maps)]


def _at_the_next(values: Tensor) -> Tensor:
    """Values of positions 0 … T − 2 at the tokens that they are about, 1 … T − 1."""
    return torch.cat([values.new_zeros(len(values), 1), values], 1)


def _counting(texts: Inputs, ids: Tensor, prompt: int | Tensor) -> Tensor:
    """Which tokens the model wrote: after the prompt, with a token before them, and no padding."""
    starts = torch.as_tensor(prompt).cpu()
    if starts.is_floating_point() or starts.dtype == torch.bool or starts.numel() not in (1, len(ids)):
        raise InputError(f"expected prompt= to be a number of positions, or one for each text, got {prompt!r}")
    if int(starts.min()) < 0 or int(starts.max()) >= ids.shape[1]:
        raise InputError(
            f"expected a prompt of 0 to {ids.shape[1] - 1} positions, which leaves a token to look at, got "
            f"{int(starts.max() if int(starts.min()) >= 0 else starts.min())}"
        )
    counts = torch.arange(ids.shape[1])[None] >= starts.reshape(-1, 1)
    counts = counts.expand(ids.shape).clone()
    counts[:, 0] = False
    mask = None if isinstance(texts, Tensor) else texts.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == ids.shape:
        there = mask.cpu() != 0
        counts &= there
        counts[:, 1:] &= there[:, :-1]
    return counts
