"""`nescio.score`: one number for each input that says how uncertain a pre-trained classifier is about it.

Methods that need training data are fitted first: within `nescio.score(..., fit=data)`, or once by `nescio.fit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from nescio import inputs, quantities, scores
from nescio._common.argument_checks import integer
from nescio.fitting import check_fit, fitted
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import preserved
from nescio.posteriors.base import total
from nescio.progress import bar
from nescio.scores import Score
from nescio.types import (
    Check,
    InputError,
    Logits,
    Method,
    ModelError,
    NormTable,
    Posterior,
    Predictions,
    Scored,
)

Output = Literal["logits", "probabilities", "binary"]
MethodLike = str | Method | type[Score]


@overload
def score(
    model: Any,
    x: Any,
    method: MethodLike = ...,
    *,
    fit: Any = ...,
    output: Output | None = ...,
    progress: bool | None = ...,
    chunk: int | None = ...,
    memory_gb: float | None = ...,
    report: Literal[False] = ...,
    **settings: Any,
) -> Tensor: ...
@overload
def score(
    model: Any,
    x: Any,
    method: MethodLike = ...,
    *,
    fit: Any = ...,
    output: Output | None = ...,
    progress: bool | None = ...,
    chunk: int | None = ...,
    memory_gb: float | None = ...,
    report: Literal[True],
    **settings: Any,
) -> Scored: ...
@overload
def score(
    model: Any,
    x: Any,
    method: list[Any] | tuple[Any, ...],
    *,
    fit: Any = ...,
    output: Output | None = ...,
    progress: bool | None = ...,
    chunk: int | None = ...,
    memory_gb: float | None = ...,
    report: Literal[False] = ...,
    **settings: Any,
) -> dict[str, Tensor]: ...
@overload
def score(
    model: Any,
    x: Any,
    method: list[Any] | tuple[Any, ...],
    *,
    fit: Any = ...,
    output: Output | None = ...,
    progress: bool | None = ...,
    chunk: int | None = ...,
    memory_gb: float | None = ...,
    report: Literal[True],
    **settings: Any,
) -> dict[str, Scored]: ...
def score(
    model: Any,
    x: Any,
    method: MethodLike | list[Any] | tuple[Any, ...] = "regrad",
    *,
    fit: Any = None,
    output: Output | None = None,
    progress: bool | None = None,
    chunk: int | None = None,
    memory_gb: float | None = None,
    report: bool = False,
    **settings: Any,
) -> Tensor | dict[str, Tensor] | Scored | dict[str, Scored]:
    """How uncertain the model is about each input: float64 [N] on the CPU, higher = more uncertain.

    Args:
        model: a PyTorch classifier, any callable that gives logits, or a `Classifier`. It is left as it was found.
            Or a posterior (`nescio.posteriors`): for "mutual_information", and for methods that need nothing but
            probabilities, which are then the mean over its samples.
        x: a tensor [N, ...], a mapping of names to tensors (the model's keyword arguments), or an iterable of batches
            of either kind, such as a data loader; of batches that are tuples the first item is taken.
        method: a name (`nescio.methods()` lists them), an object such as ``nescio.scores.REGrad(power=1)``, or a list
            of these: then all are computed in one pass over the data, shared work once, and a dict is returned.
            A method that is listed twice with other settings is keyed by its name and those settings.
        fit: labelled training data, (x, y) or an iterable of such pairs, for the methods that need it: they are fitted
            in one pass. To fit once and score often, see `nescio.fit`.
        output: what the model returns: "logits" (unless a Classifier says otherwise), "probabilities", or "binary"
            for one logit per input.
        progress: True or False shows or hides the progress bar; None shows it in a terminal after two seconds.
        chunk: how many inputs or noisy copies are handled at once; None chooses. Scores do not depend on it, unless
            layers are estimated (tolerance above 0): a check that finds larger errors than were estimated has more
            inputs of its chunk computed exactly.
        memory_gb: about how much memory the gradients may take, beyond the model; None chooses.
        report: True gives `Scored` objects in place of the tensors: the scores with the estimated error of each, and
            how estimates of layers compared with exact values for some of the inputs.
        settings: settings of the method; with a list, they go to every method of it.
    """
    several = isinstance(method, list | tuple)
    chosen = _choose(list(method) if isinstance(method, list | tuple) else [method], settings)
    if chunk is not None:
        integer("chunk", chunk, at_least=1, hint="leave it out to choose it from the memory at hand")
    source = _source(model, output)
    _check_needs(chosen, source)
    check_fit(chosen, fit)
    if fit is not None and isinstance(source, Classifier):
        chosen = fitted(source, chosen, fit, progress, chunk)
    requests = [request for one in chosen.values() for request in one.needs]
    parts = {key: _Parts() for key in chosen}
    done = 0
    with preserved(source), bar(total(x), show=progress, description="scoring") as shown:
        for block in _blocks(x, chunk or _block(source)):
            values = quantities.compute(source, block, requests, chunk, memory_gb)
            for key, one in chosen.items():
                own = _together([values[request] for request in one.needs])
                parts[key].add(one, own, _checked(one(*own), key, inputs.size(block), done))
            done += inputs.size(block)
            shown.update(inputs.size(block))
    whole = {key: part.whole() for key, part in parts.items()}
    joined: Any = whole if report else {key: scored.scores for key, scored in whole.items()}
    return joined if several else next(iter(joined.values()))


@overload
def fit(
    model: Any,
    method: MethodLike,
    data: Any,
    *,
    output: Output | None = ...,
    progress: bool | None = ...,
    chunk: int | None = ...,
    **settings: Any,
) -> Method: ...
@overload
def fit(
    model: Any,
    method: list[Any] | tuple[Any, ...],
    data: Any,
    *,
    output: Output | None = ...,
    progress: bool | None = ...,
    chunk: int | None = ...,
    **settings: Any,
) -> list[Method]: ...
def fit(
    model: Any,
    method: MethodLike | list[Any] | tuple[Any, ...],
    data: Any,
    *,
    output: Output | None = None,
    progress: bool | None = None,
    chunk: int | None = None,
    **settings: Any,
) -> Method | list[Method]:
    """The method, fitted to labelled training data, to be given to `nescio.score` in the place of its name.

    data: a pair (x, y), or an iterable of such pairs, read once; a list of methods gives a list, in which those that
    need no training data stay as they are. The model is left as it was found. The other arguments are those of
    `nescio.score`.
    """
    several = isinstance(method, list | tuple)
    chosen = _choose(list(method) if isinstance(method, list | tuple) else [method], settings)
    if chunk is not None:
        integer("chunk", chunk, at_least=1, hint="leave it out to choose it from the memory at hand")
    classifier = _source(model, output)
    if not isinstance(classifier, Classifier):
        raise ModelError(f"expected a model to fit a method with, got the posterior {type(model).__name__}")
    _check_needs(chosen, classifier)
    check_fit(chosen, data)
    found = list(fitted(classifier, chosen, data, progress, chunk).values())
    return found if several else found[0]


def _source(model: Any, output: Output | None) -> Classifier | Posterior:
    """A posterior as it is, anything else as a Classifier; a module is a model, also if it has a `predict`."""
    if isinstance(model, Posterior) and not isinstance(model, nn.Module | Classifier | type):
        if output is not None:
            raise InputError(f"expected no output= beside a posterior, which gives probabilities, got {output!r}")
        return model
    return Classifier.of(model, output=output)


def _check_needs(chosen: dict[str, Method], source: Classifier | Posterior) -> None:
    """Raise a ModelError for a method that needs a posterior, or more than one can give."""
    for key, one in chosen.items():
        if isinstance(source, Classifier):
            if callable(of_one_model := getattr(one, "check_model", None)):
                of_one_model(source)
            if Predictions() in one.needs:
                raise ModelError(
                    f"expected a posterior for '{key}', got the model {source.name}; give one in its place, such as "
                    f"nescio.posteriors.MCDropout(model): nescio.score(posterior, x, '{key}')"
                )
        elif getattr(one, "needs_level", False) or not set(one.needs) <= {Logits(), Predictions()}:
            raise ModelError(
                f"expected a method that needs probabilities alone with a posterior ({type(source).__name__}), got "
                f"'{key}'; use mutual_information, entropy or max_probability, or give the model itself"
            )


def _together(values: list[Any]) -> list[Any]:
    """The values of one score on one device: a table that stands beside other quantities comes to the CPU."""
    if all(isinstance(value, NormTable) for value in values):
        return values
    return [value.cpu() if isinstance(value, NormTable) else value for value in values]


class _Parts:
    """The scores of one method, block by block, with what is known of their error."""

    def __init__(self) -> None:
        self.scores = [torch.empty(0, dtype=torch.float64)]
        self.errors: list[Tensor | None] = []
        self.checks: list[Check] = []

    def add(self, method: Method, values: list[Any], found: Tensor) -> None:
        """A block's scores, and the values that they were made from."""
        self.scores.append(found.cpu())
        estimated = getattr(method, "error", None)
        error = estimated(*values) if callable(estimated) else None
        self.errors.append(None if error is None else error.cpu())
        self.checks += [value.check for value in values if isinstance(value, NormTable) and value.check is not None]

    def whole(self) -> Scored:
        """All blocks together."""
        scores = torch.cat(self.scores)
        error = None
        if any(e is not None for e in self.errors):
            blocks = zip(self.errors, self.scores[1:], strict=True)
            error = torch.cat([torch.zeros_like(s) if e is None else e for e, s in blocks])
        check = None
        if self.checks:
            check = Check(
                sum(c.inputs for c in self.checks), max(c.worst for c in self.checks), sum(c.exact for c in self.checks)
            )
        return Scored(scores, error, check)


def _choose(listed: list[MethodLike], settings: dict[str, Any]) -> dict[str, Method]:
    """The methods by the keys of the result."""
    if not listed:
        raise InputError(f"expected at least one method, got an empty list; known: {', '.join(scores.names())}")
    try:
        found = [scores.get(one, **settings) for one in listed]
    except InputError as error:
        if len(listed) == 1 or not settings:
            raise
        raise InputError(
            f"{error}. With a list of methods the settings go to every one of them; to set one alone, "
            "give it as an object: [nescio.scores.REGrad(samples=10), 'entropy']"
        ) from error
    counts = Counter(one.name for one in found)
    keys = [one.name if counts[one.name] == 1 else getattr(one, "label", one.name) for one in found]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"expected each method once, got '{key}' {keys.count(key)} times; leave the others out")
    return dict(zip(keys, found, strict=True))


def _blocks(data: Any, most: int) -> Iterator[Inputs]:
    """The data in blocks of at most `most` inputs: a table of norms or draws is held for one block at a time."""
    for batch in inputs.batches(data):
        for start in range(0, inputs.size(batch), most):
            yield inputs.take(batch, slice(start, start + most))


def _block(source: Classifier | Posterior) -> int:
    device = source.device if isinstance(source, Classifier) else None
    return 64 if device is None or device.type == "cpu" else 512


def _checked(found: Tensor, key: str, count: int, first: int) -> Tensor:
    """The score of a block, or an error that says what is wrong with it."""
    if not isinstance(found, Tensor) or found.dtype != torch.float64 or found.shape != (count,):
        raise InputError(
            f"expected '{key}' to give a tensor of float64 and shape [{count}], got {inputs.describe(found)}; "
            "mend its __call__"
        )
    wrong = (~found.isfinite()).nonzero().flatten() + first
    if len(wrong):
        listed = ", ".join(str(i) for i in wrong[:5].tolist()) + (", …" if len(wrong) > 5 else "")
        raise ModelError(
            f"expected finite scores, but '{key}' is not for {len(wrong)} inputs (at {listed}): numbers overflow "
            "inside the model; score it in float32 or float64, with model.float() or model.double()"
        )
    return found
