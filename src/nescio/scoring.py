"""`nescio.score` and `nescio.fit`: the pipeline from a model and data to scores, from top to bottom.

score   choose the methods ─► fit those that need it ─► for each block of inputs: quantities once, then every method
fit     choose the methods ─► one pass over the training data ─► the methods, fitted
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from nescio import inputs
from nescio._common.argument_checks import integer
from nescio.dense.position_maps import Mapped, look, mapped
from nescio.inputs import Data, Inputs
from nescio.models import Classifier, ModelOrPosterior
from nescio.models.positions import PositionsFound, recall, remember
from nescio.modes import preserved, preserved_when_run
from nescio.posteriors.base import total
from nescio.progress import bar
from nescio.quantities import Request, compute
from nescio.quantities.bringing import on_one_device, on_the_host
from nescio.scores import Method, Score
from nescio.scores.base import must_be_fitted
from nescio.scores.collected_scores import CollectedScores
from nescio.scores.registry import choose
from nescio.types import InputError, ModelError, Posterior, Scored, refuse_estimator

Output = Literal["logits", "probabilities", "binary", "dense"]
MethodLike = str | Method | type[Score]
MethodList = list[Any] | tuple[Any, ...]

_TRAINING_INPUTS = 512  # between two steps of the bar


# fmt: off
@overload
def score(model: ModelOrPosterior, x: Data, method: MethodLike = ..., *, report: Literal[False] = ...,
          fit: Data | None = ..., output: Output | None = ..., progress: bool | None = ..., chunk: int | None = ...,
          memory_gb: float | None = ..., **settings: Any) -> Tensor: ...
@overload
def score(model: ModelOrPosterior, x: Data, method: MethodLike = ..., *, report: Literal[True],
          fit: Data | None = ..., output: Output | None = ..., progress: bool | None = ..., chunk: int | None = ...,
          memory_gb: float | None = ..., **settings: Any) -> Scored: ...
@overload
def score(model: ModelOrPosterior, x: Data, method: MethodList, *, report: Literal[False] = ...,
          fit: Data | None = ..., output: Output | None = ..., progress: bool | None = ..., chunk: int | None = ...,
          memory_gb: float | None = ..., **settings: Any) -> dict[str, Tensor]: ...
@overload
def score(model: ModelOrPosterior, x: Data, method: MethodList, *, report: Literal[True],
          fit: Data | None = ..., output: Output | None = ..., progress: bool | None = ..., chunk: int | None = ...,
          memory_gb: float | None = ..., **settings: Any) -> dict[str, Scored]: ...
# fmt: on
def score(
    model: ModelOrPosterior,
    x: Data,
    method: MethodLike | MethodList = "regrad",
    *,
    fit: Data | None = None,
    output: Output | None = None,
    progress: bool | None = None,
    chunk: int | None = None,
    memory_gb: float | None = None,
    report: bool = False,
    **settings: Any,
) -> Tensor | dict[str, Tensor] | Scored | dict[str, Scored]:
    """Compute how uncertain a classifier is about each input.

    If the model answers at every position, such as each pixel or token, the scores are maps: see `nescio.dense`.

    Args:
        model: A PyTorch classifier, any callable that gives logits, or a `Classifier`. It is left as it was found.
            A posterior (`nescio.posteriors`) works too: for "mutual_information", and for methods that need only
            probabilities, which are then the mean over its samples.
        x: A tensor ``[N, ...]``, a mapping of names to tensors (the model's keyword arguments), or an iterable of
            batches of either kind, such as a data loader. If the batches are tuples, their first items are used.
        method: A name (`nescio.methods()` lists them), an object such as ``nescio.scores.REGrad(power=1)``, or a list
            of these. A list is computed in one pass over the data, does shared work once, and returns a dict.
            A method that is listed twice, with other settings, has its name and those settings as key.
        fit: Labelled training data, (x, y) or an iterable of such pairs, for the methods that need it: they are fitted
            in one pass. To fit once and score often, see `nescio.fit`.
        output: What the model returns: "logits" (unless a Classifier says otherwise), "probabilities", "binary"
            for one logit per input, or "dense" for logits of every position (often found without being told).
        progress: True or False shows or hides the progress bar; None shows it in a terminal or notebook after two
            seconds.
        chunk: How many inputs or noisy copies are handled at once; None chooses. Scores do not depend on it, with one
            exception: with a tolerance above 0 some inputs of each chunk are checked, and if their errors are larger
            than was estimated, more inputs of that chunk are computed exactly.
        memory_gb: About how much memory the gradients may take, beyond the model; None chooses.
        report: True returns `Scored` objects instead of tensors: the scores, the estimated error of each, and how
            estimates compared with exact values for some of the inputs.
        settings: Settings of the method; with a list, they go to every method of it.

    Returns:
        The scores, float64 ``[N]`` on the CPU, higher = more uncertain; for a list of methods a dict of them. If the
        model answers at every position, the shape is ``[N, *positions]``.

    Raises:
        InputError: The data, the method or its settings cannot be used.
        ModelError: The model cannot answer what the method needs.

    Examples:
        >>> model, x = torch.nn.Linear(4, 3), torch.rand(5, 4)
        >>> nescio.score(model, x).shape
        torch.Size([5])
        >>> list(nescio.score(model, x, ["entropy", "regrad"]))
        ['entropy', 'regrad']
    """
    methods = choose(method, settings)
    if chunk is not None:
        integer("chunk", chunk, at_least=1, hint="leave it out to choose it from the memory at hand")
    source = _source(model, output, dense=True)
    _check_needs(methods, source)
    check_fit(methods, fit)
    if fit is not None and isinstance(source, Classifier):
        methods = _fitted(source, methods, fit, progress, chunk)
    if not isinstance(source, Classifier) or recall(source) or source.dense:
        methods = mapped(methods, posterior=not isinstance(source, Classifier))
    collected = {key: CollectedScores(key) for key in methods}
    keeping = preserved_when_run if isinstance(source, Classifier) else preserved
    with keeping(source), bar(total(x), show=progress, description="scoring") as shown:
        done = 0
        for block in _blocks(x, chunk or _block_size(source)):
            try:
                if done == 0 and isinstance(source, Classifier):
                    look(source, block, methods)
                found = _of_block(source, block, methods, chunk, memory_gb)
            except PositionsFound as positions:
                assert isinstance(source, Classifier)
                methods = mapped(methods)
                remember(source, positions.class_dim)
                found = _of_block(source, block, methods, chunk, memory_gb)
            for key, (values, block_scores) in found.items():
                collected[key].add(methods[key], values if report else [], block_scores)
            done += inputs.size(block)
            shown.update(inputs.size(block))
    results: dict[str, Any] = {key: one.joined() for key, one in collected.items()}
    if not report:
        results = {key: result.scores for key, result in results.items()}
    return results if isinstance(method, list | tuple) else next(iter(results.values()))


# fmt: off
@overload
def fit(model: ModelOrPosterior, method: MethodLike, data: Data, *, output: Output | None = ...,
        progress: bool | None = ..., chunk: int | None = ..., **settings: Any) -> Method: ...
@overload
def fit(model: ModelOrPosterior, method: MethodList, data: Data, *, output: Output | None = ...,
        progress: bool | None = ..., chunk: int | None = ..., **settings: Any) -> list[Method]: ...
# fmt: on
def fit(
    model: ModelOrPosterior,
    method: MethodLike | MethodList,
    data: Data,
    *,
    output: Output | None = None,
    progress: bool | None = None,
    chunk: int | None = None,
    **settings: Any,
) -> Method | list[Method]:
    """Fit a method to labelled training data, so that `nescio.score` can use it many times.

    Args:
        model: As in `nescio.score`, but no posterior. It is left as it was found.
        method: As in `nescio.score`.
        data: A pair (x, y), or an iterable of such pairs, which is read once.
        output: As in `nescio.score`.
        progress: As in `nescio.score`.
        chunk: As in `nescio.score`.
        settings: As in `nescio.score`.

    Returns:
        The fitted method, to give to `nescio.score` instead of its name. For a list of methods a list; methods that
        need no training data stay as they are.

    Raises:
        InputError: No method needs training data, or the data cannot be used.
        ModelError: The model is a posterior, or cannot answer what the method needs.

    Examples:
        >>> model, x = torch.nn.Linear(4, 3), torch.rand(60, 4)
        >>> fitted = nescio.fit(model, "knn", (x, torch.arange(60) % 3), k=5)
        >>> nescio.score(model, x[:5], fitted).shape
        torch.Size([5])
    """
    methods = choose(method, settings)
    if chunk is not None:
        integer("chunk", chunk, at_least=1, hint="leave it out to choose it from the memory at hand")
    classifier = _source(model, output)
    if not isinstance(classifier, Classifier):
        raise ModelError(f"expected a model to fit a method with, got the posterior {type(model).__name__}")
    _check_needs(methods, classifier)
    check_fit(methods, data)
    fitted = list(_fitted(classifier, methods, data, progress, chunk).values())
    return fitted if isinstance(method, list | tuple) else fitted[0]


def check_fit(methods: dict[str, Method], data: Data | None) -> None:
    """Raise an InputError where training data are missing, or where no method needs them.

    Args:
        methods: The methods, by any names.
        data: Training data, or None.

    Raises:
        InputError: Either of the two.

    Examples:
        >>> check_fit({"entropy": nescio.scores.get("entropy")}, None)
    """
    waiting = [key for key, one in methods.items() if must_be_fitted(one)]
    if waiting and data is None:
        raise InputError(
            f"expected training data for {', '.join(map(repr, waiting))}, got none; give labelled data as "
            "nescio.score(..., fit=(x, y)), with a data loader in the place of the pair where there is one"
        )
    if data is not None and not waiting:
        raise InputError(
            f"expected a method that has to be fitted beside training data, got {', '.join(map(repr, methods))}; "
            "leave the training data out"
        )


def _fitted(
    classifier: Classifier, methods: dict[str, Method], data: Data, progress: bool | None, chunk: int | None
) -> dict[str, Method]:
    """The methods, those fitted that have to be, in one pass over the training data."""
    requests = [request for one in methods.values() if must_be_fitted(one) for request in one.training]
    fits = {request: request.start_fit(classifier) for request in requests}
    to_answer = [request for request, fit in fits.items() if fit.needs_answer]
    labels: list[Tensor] = []
    size, step = total(data[0] if isinstance(data, tuple) and len(data) == 2 else data), chunk or _TRAINING_INPUTS
    with preserved(classifier), bar(size, show=progress, description="fitting") as shown:
        for batch, y in inputs.labelled(data):
            for start in range(0, len(y), step):
                x, labels_of_x = inputs.take(batch, slice(start, start + step)), y[start : start + step]
                answers = compute(classifier, x, to_answer, chunk)
                for request, fit in fits.items():
                    fit.absorb(x, labels_of_x, answers.get(request))
                labels.append(labels_of_x)
                shown.update(len(labels_of_x))
        if not labels:
            raise InputError("expected training data of at least one input, got none; give all of it as fit=(x, y)")
        values = {request: fit.finish() for request, fit in fits.items()}
    fitted = dict(methods)
    for key, one in methods.items():
        if must_be_fitted(one):
            fitted[key] = one.fitted([values[request] for request in one.training], torch.cat(labels))
    return fitted


def _source(model: ModelOrPosterior, output: Output | None, dense: bool = False) -> Classifier | Posterior:
    """A posterior as it is, anything else as a Classifier; a module is a model, also if it has a `predict`."""
    refuse_estimator(model)
    if isinstance(model, Posterior) and not isinstance(model, nn.Module | Classifier | type):
        if output is not None:
            raise InputError(f"expected no output= beside a posterior, which gives probabilities, got {output!r}")
        return model
    return Classifier.of(model, output, dense)


def _of_block(
    source: Classifier | Posterior,
    x: Inputs,
    methods: dict[str, Method],
    chunk: int | None,
    memory_gb: float | None,
) -> dict[str, tuple[list[Any], Tensor]]:
    """For each method the values that it needs of one block, and its scores on the CPU.

    A GPU is waited for once, when all methods have begun their work there.
    """
    requests = [request for one in methods.values() for request in one.needs]
    later: list[Tensor] = []
    try:
        values, scores = _begun(compute(source, x, requests, chunk, memory_gb, later=later), methods, inputs.size(x))
        brought, finite = on_the_host(scores, later)
    except Exception:  # a method may fail in any way on logits that are not finite; on others it is its own error
        if all(map(bool, later)):
            raise
        finite = False
    if not finite:  # logits of a recorded pass: a pass that is not recorded says what is wrong
        values, scores = _begun(compute(source, x, requests, chunk, memory_gb), methods, inputs.size(x))
        brought, _ = on_the_host(scores)
    return {key: (values[key], own) for key, own in brought.items()}


def _begun(
    answers: dict[Request, Any], methods: dict[str, Method], count: int
) -> tuple[dict[str, list[Any]], dict[str, Tensor]]:
    """The values that each method needs, and what it makes of them, where these lie."""
    values = {key: on_one_device([answers[request] for request in one.needs]) for key, one in methods.items()}
    return values, {
        key: _checked(one(*values[key]), key, count, isinstance(one, Mapped)) for key, one in methods.items()
    }


def _check_needs(methods: dict[str, Method], source: Classifier | Posterior) -> None:
    """Raise a ModelError for a method that needs a posterior, or more than one can give."""
    for key, one in methods.items():
        if isinstance(source, Classifier):
            if callable(check_model := getattr(one, "check_model", None)):
                check_model(source)
            if not all(getattr(request, "of_model", True) for request in one.needs):
                raise ModelError(
                    f"expected a posterior for '{key}', got the model {source.name}; give one in its place, such as "
                    f"nescio.posteriors.MCDropout(model): nescio.score(posterior, x, '{key}')"
                )
            continue
        beyond = [request for request in one.needs if not getattr(request, "of_posterior", False)]
        if beyond or getattr(one, "needs_level", False):
            raise ModelError(
                f"expected a method that needs probabilities alone with a posterior ({type(source).__name__}), got "
                f"'{key}'; use mutual_information, entropy or max_probability, or give the model itself"
            )


def _blocks(data: Data, most: int) -> Iterator[Inputs]:
    """The data in blocks of at most `most` inputs: a table of norms or draws is held for one block at a time."""
    for batch in inputs.batches(data):
        for start in range(0, inputs.size(batch), most):
            yield inputs.take(batch, slice(start, start + most))


def _block_size(source: Classifier | Posterior) -> int:
    device = source.device if isinstance(source, Classifier) else None
    return 64 if device is None or device.type == "cpu" else 512


def _checked(values: Tensor, key: str, count: int, maps: bool) -> Tensor:
    """The scores of a block, or an error that says what is wrong with their shape or type."""
    fits = isinstance(values, Tensor) and values.dtype == torch.float64 and values.shape[:1] == (count,)
    if not fits or (values.ndim > 1 and not maps):
        raise InputError(
            f"expected '{key}' to give a tensor of float64 and shape [{count}], got {inputs.describe(values)}; "
            "mend its __call__"
        )
    return values
