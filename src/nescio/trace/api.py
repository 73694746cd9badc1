"""The engine's front: norms of gradients for a whole batch.

`class_gradients` is for users, `gradient_norms` for scores. What happens to a batch, in order: the settings are checked
(`request_checks`); two inputs tell what the model does (`probe`); chunks of inputs go through the model forwards and,
for all classes at once, backwards (`backward`); rules turn what arrives at each layer (`rules`) into norms (`norms`);
and entries of the table that are not computed are completed and checked (`estimate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from torch import Tensor

from nescio import inputs, modes
from nescio.inputs import Data, Inputs
from nescio.models import Classifier, ModelLike
from nescio.trace.backward.cotangents import Smoothing
from nescio.trace.estimate.cut import Cut
from nescio.trace.estimate.error_check import enforced
from nescio.trace.estimate.small_work import by_loop, may_be_small
from nescio.trace.estimate.table import TableBuilder
from nescio.trace.probe.cached_tensors import forget
from nescio.trace.probe.layers import patterns
from nescio.trace.probe.leaves import detached
from nescio.trace.request_checks import check_request
from nescio.trace.runtime.replay import Changed
from nescio.types import ClassGradients, InputError, NormSettings, NormTable


def class_gradients(
    model: ModelLike,
    x: Data,
    *,
    layers: str = "module",
    norm: int = 2,
    select: Sequence[str] | None = None,
    sigma: float = 0.0,
    samples: int = 0,
    seed: int = 0,
    smoothing: Smoothing = "log",
    chunk: int | None = None,
    output: str | None = None,
    classes: int | Literal["exact", "auto"] = "exact",
    precision: Literal["bfloat16"] | None = None,
    memory_gb: float | None = None,
    exclude: Sequence[str] | None = None,
) -> ClassGradients:
    """Compute the norms of ``∂ log p_c/∂θ_l`` for every input, class and layer. The model stays as it was.

    Args:
        model: an ``nn.Module`` or a `nescio.Classifier`; it is run in eval mode.
        x: a batch of inputs [N, ...], or a mapping of argument names to tensors.
        layers: "module" (a layer is a module's own parameters) or "tensor" (each parameter tensor is one).
        norm: 2 or 1.
        select: names or patterns (``"layer4.*"``) of the layers to take; None takes all. Frozen parameters count.
        sigma: standard deviation of the noise, in the units of the input; 0 is no smoothing.
        samples: average each gradient over the input and this many copies ``x + σε`` before the norm.
        seed: of the noise, which is the same for every input.
        smoothing: "log" averages log-probabilities (Eq. 13), "mean" takes the log of the mean probability.
        chunk: inputs at a time; None chooses from the memory at hand. Results do not depend on it.
        output: what the model returns: "logits" (unless a Classifier says otherwise), "probabilities" or "binary".
        classes: "exact" computes every class; a number n does about the work of n classes, however many there are, and
            estimates the rest (`nescio.trace.estimate`); "auto" is 40.
        precision: "bfloat16" computes the gradients in that type; probabilities stay in the model's own type.
        memory_gb: about how much memory to work in, beyond the model; None chooses.
        exclude: names or patterns of the layers to leave out, such as a table of positions that is not trained.

    Returns:
        `ClassGradients` with ``norms`` [N, C, L], ``probabilities`` [N, C], ``layers`` in forward order, and
        ``spread``, the standard errors of what was estimated (None: nothing was).

    Raises:
        InputError: a setting or an input is not one of those above.
        ModelError: the model has no gradients that could be computed, or couples the inputs of a batch.

    Examples:
        >>> import torch
        >>> from nescio import trace
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> gradients = trace.class_gradients(model, torch.randn(5, 4))
        >>> gradients.norms.shape, gradients.layers
        (torch.Size([5, 3, 2]), ('0', '2'))
    """
    request = NormSettings(
        "classes", norm, layers, patterns(select), sigma, samples, seed, smoothing, classes=classes,
        precision=precision, exclude=patterns(exclude),
    )  # fmt: skip
    classifier = Classifier.of(model, output=output)
    later: list[Tensor] = []
    table = gradient_norms(classifier, x, request, chunk=chunk, memory_gb=memory_gb, later=later)["classes"].cpu()
    if not all(map(bool, later)):
        table = gradient_norms(classifier, x, request, chunk=chunk, memory_gb=memory_gb)["classes"].cpu()
    return ClassGradients(table.norms, table.probabilities, table.layers, table.spread)


def gradient_norms(
    classifier: Classifier,
    x: Data,
    request: NormSettings = NormSettings("classes"),  # noqa: B008 (it is frozen)
    rows: Sequence[str] = (),
    chunk: int | None = None,
    memory_gb: float | None = None,
    loop: bool = False,
    prepared: bool = False,
    later: list[Tensor] | None = None,
) -> dict[str, NormTable]:
    """Compute the table of norms for each kind of row, on the model's device.

    Where layers are estimated, some inputs are computed exactly too, and so is every input whose estimated error, or
    what the check makes of it, is larger than the tolerance (`estimate.error_check`). The model is changed, and put
    back, only when its code runs: not in a call that recordings serve alone (`replay`).

    Args:
        classifier: the model.
        x: a batch of inputs [N, ...], or a mapping of argument names to tensors.
        request: norm, layers, smoothing and what may be estimated.
        rows: "classes" (one row a class), "uniform", "expected" (see `backward.cotangents`); empty: the request's own.
        chunk: inputs at a time; None chooses from the memory at hand.
        memory_gb: about how much memory to work in, beyond the model; None chooses.
        loop: let small work take the loop over inputs and rows, where that is the faster way (`estimate.small_work`).
        prepared: whether the batch comes from `Classifier.prepare`, for whose check a GPU has to be waited for.
        later: takes what tells whether the logits of recorded passes were finite, tensors of one boolean, so that a GPU
            is not waited for here. Where one is false the tables do not count: ask again without it.

    Returns:
        For each kind of row a `NormTable` with ``norms`` [N, R, L].

    Raises:
        InputError: a setting or an input is not one of those above.
        ModelError: the model has no gradients that could be computed, or couples the inputs of a batch.

    Examples:
        >>> import torch
        >>> from nescio import Classifier, trace
        >>> tables = trace.gradient_norms(Classifier(torch.nn.Linear(4, 3)), torch.randn(5, 4), rows=("uniform",))
        >>> tables["uniform"].norms.shape
        torch.Size([5, 1, 1])
    """
    rows = tuple(rows) or (request.rows,)
    check_request(classifier, rows, request, chunk, memory_gb)
    with modes.lazily(classifier) as enter:
        batch = cast(Inputs, x) if prepared else classifier.prepare(x)
        x = inputs.apply(batch, detached)  # it may come from the model's own parameters
        if inputs.size(x) == 0:
            raise InputError("expected at least one input; got an empty batch")

        def entered() -> None:
            enter()
            forget(classifier, inputs.take(x, slice(0, 2)))

        if loop and may_be_small(classifier, x, request):
            entered()
            if (small := by_loop(classifier, x, rows, request)) is not None:
                return small

        def built(trust: bool) -> tuple[TableBuilder, Cut | None, dict[str, NormTable]]:
            builder = TableBuilder(classifier, x, rows, request, chunk, memory_gb, entered, trust)
            cut = builder.cut()
            read = cut is not None and not cut.drawn  # here, where layers are estimated
            return builder, cut, builder.build(builder.x, cut, None if read else later)

        try:
            builder, cut, tables = built(trust=True)
        except Changed:  # it was replayed as it was the last time, and is another
            builder, cut, tables = built(trust=False)
        if cut is None or cut.drawn or tables["classes"].spread is None:  # of many classes no layer is left out
            return tables

        def exact(chosen: Tensor) -> Tensor:
            return builder.build(inputs.take(builder.x, chosen), None)["classes"].norms

        return tables | {"classes": enforced(tables["classes"], request, exact)}
