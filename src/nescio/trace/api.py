"""Gradient norms of a whole batch: the loop over chunks of inputs, with what it does when memory runs out.

Inputs go through in chunks. When memory runs out the chunk is halved and the work goes on from where it was; a single
input that does not fit has its cotangents taken in smaller blocks, and at last its noisy copies in parts whose
gradients are added up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from nescio import inputs, modes
from nescio._common import memory
from nescio.models import Classifier
from nescio.trace.backward import cotangents
from nescio.trace.backward.substitutes import attention
from nescio.trace.estimate import cut as estimate
from nescio.trace.estimate import error_check as checked
from nescio.trace.probe.cached_tensors import forget
from nescio.trace.probe.layers import patterns
from nescio.trace.probe.passes import Pass, Settings, chunk_norms, forward, pieces, pulled_norms, split_norms
from nescio.trace.probe.plan import detached, prove_silent
from nescio.trace.probe.survey import TOO_LARGE, begin
from nescio.trace.request_checks import check_request
from nescio.trace.runtime import batch_sizes, noise, replay
from nescio.trace.runtime.precision import Lowered, lowered
from nescio.types import ClassGradients, InputError, ModelError, NormSettings, NormTable


def class_gradients(
    model: Any,
    x: Any,
    *,
    layers: str = "module",
    norm: int = 2,
    select: Sequence[str] | None = None,
    sigma: float = 0.0,
    samples: int = 0,
    seed: int = 0,
    smoothing: cotangents.Smoothing = "log",
    chunk: int | None = None,
    output: str | None = None,
    classes: int | Literal["exact", "auto"] = "exact",
    precision: Literal["bfloat16"] | None = None,
    memory_gb: float | None = None,
    exclude: Sequence[str] | None = None,
) -> ClassGradients:
    """Norms of ``∂ log p_c/∂θ_l`` for every input, class and layer, with the model left as it was found.

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
        classes: "exact" computes every class; a number does about the work of as many, whatever their number, and
            estimates the rest (`nescio.trace.estimate.cut`); "auto" is 40.
        precision: "bfloat16" works out the gradients in that type, from the probabilities of the model's own.
        memory_gb: about how much memory to work in, beyond the model; None chooses.
        exclude: names or patterns of the layers to leave out, such as a table of positions that is not trained.

    Returns:
        `ClassGradients` with ``norms`` [N, C, L], ``probabilities`` [N, C], ``layers`` in forward order, and
        ``spread``, the standard errors of what was estimated (None: nothing was).
    """
    request = NormSettings(
        "classes", norm, layers, patterns(select), sigma, samples, seed, smoothing, classes=classes,
        precision=precision, exclude=patterns(exclude),
    )  # fmt: skip
    classifier = Classifier.of(model, output=output)
    found = gradient_norms(classifier, x, request, chunk=chunk, memory_gb=memory_gb)["classes"].cpu()
    return ClassGradients(found.norms, found.probabilities, found.layers, found.spread)


def gradient_norms(
    classifier: Classifier,
    x: Any,
    request: NormSettings = NormSettings("classes"),  # noqa: B008 (it is frozen)
    rows: Sequence[str] = (),
    chunk: int | None = None,
    memory_gb: float | None = None,
) -> dict[str, NormTable]:
    """The table of norms for each kind of row (see `cotangents`; by default the request's own), on the model's device.

    Where layers are estimated, some inputs are computed exactly too (`checked`), and so is every input whose estimated
    error, or what the check makes of it, is larger than the tolerance. The model is changed, and put back, only when
    its code runs: not in a call that recordings serve alone (`replay`).
    """
    rows = tuple(rows) or (request.rows,)
    check_request(classifier, rows, request, chunk, memory_gb)
    with modes.lazily(classifier) as enter:
        x = inputs.apply(classifier.prepare(x), detached)  # it may come from the model's own parameters
        if inputs.size(x) == 0:
            raise InputError("expected at least one input; got an empty batch")

        def entered() -> None:
            enter()
            forget(classifier, inputs.take(x, slice(0, 2)))

        work = _Work(classifier, x, rows, request, chunk, memory_gb, entered)
        cut = work.cut()
        tables = work.tables(work.x, cut)
        if cut is None or cut.drawn or tables["classes"].spread is None:  # of many classes no layer is left out
            return tables
        table = checked.enforced(
            tables["classes"], request, lambda some: work.tables(inputs.take(work.x, some), None)["classes"].norms
        )
        return tables | {"classes": table}


class _Work:
    """One call: what was asked, what two inputs told of the model, and the loop over chunks of inputs."""

    def __init__(
        self,
        classifier: Classifier,
        x: Any,
        rows: tuple[str, ...],
        request: NormSettings,
        chunk: int | None = None,
        memory_gb: float | None = None,
        enter: Callable[[], None] = lambda: None,
    ) -> None:
        self.classifier, self.request, self.chunk = classifier, request, chunk
        self.enter = enter  # called before any code of the model runs
        self.most = None if memory_gb is None else memory_gb * 1e9
        plain = request.pairs and not noise.takes(x)
        samples = request.samples if request.sigma > 0 and not plain else 0
        self.pairs = request.pairs and samples > 0
        self.noise = (request.sigma, samples, request.seed, self.pairs)
        self.settings = Settings(rows, request.norm, samples + (not self.pairs), request.smoothing)
        self.x, self.survey = begin(classifier, x, lambda y: noise.copies(y, *self.noise), request, enter)

    def cut(self) -> estimate.Cut | None:
        """What is computed; None: everything."""
        asked = self.request
        if "classes" not in self.settings.rows:
            return None
        decay, tolerance = asked.decay, asked.tolerance
        if self.survey.silent:  # rare; their share of a sum is not known from other layers
            decay = 0.0
        if inputs.size(self.x) == 1:  # the check would take longer than all of it
            tolerance = 0.0
        part = 2 / self.settings.copies if self.pairs else 1.0
        return estimate.plan(self.survey.classes, self.survey.costs, asked.classes, decay, tolerance, part)

    def tables(self, x: Any, cut: estimate.Cut | None) -> dict[str, NormTable]:
        """The tables of some inputs, chunk by chunk, with less at a time whenever memory runs out."""
        size, settings = self._sizes(cut)
        if self.chunk is None:  # chunks of one size: a pass that was recorded serves for all
            size = -(-inputs.size(x) // -(-inputs.size(x) // size))
        parts: list[dict[str, Tensor]] = []
        probabilities: list[Tensor] = []
        start = 0
        while start < inputs.size(x):
            part = inputs.take(x, slice(start, start + size))
            try:
                logits, found = self._chunk(part, settings, cut)
            except (RuntimeError, MemoryError) as error:
                if not memory.exhausted(error):
                    raise
                size, settings = _smaller(inputs.size(part), settings, error)
                self.survey.sizes.clear()
                replay.clear()
                memory.release(self.survey.device)
                continue
            start += inputs.size(part)
            parts.append({row: n.transpose(0, 1) for row, n in found.items()})
            probabilities.append(logits.double().softmax(1))
        p = _joined(probabilities)
        if any("spread" in part for part in parts):  # a chunk whose copies were taken in parts is exact
            parts = [{"spread": torch.zeros_like(part["classes"])} | part for part in parts]
        joined = {name: _joined([part[name] for part in parts]) for name in parts[0]}
        spread = joined.pop("spread", None)
        names = self.survey.table.names
        return {row: NormTable(n, p, names, spread if row == "classes" else None) for row, n in joined.items()}

    def _sizes(self, cut: estimate.Cut | None) -> tuple[int, Settings]:
        """Inputs at a time, and the settings with the number of cotangents at a time."""
        survey, copies = self.survey, self.settings.copies
        rows, most = self._widest(cut)
        whole = cut is None or survey.moved or len(self.settings.rows) > 1
        share = (1.0 if whole or cut is None else survey.shares[cut.floor][0], most)
        key = (rows, copies, self.most, share)
        if key not in survey.sizes:  # asking a GPU for its free memory takes a millisecond
            plan = survey.plan
            needs = (share[0] * plan.activations, share[1] * plan.gradients)
            survey.sizes[key] = batch_sizes.choose(survey.device, *needs, rows, copies, self.most)
        size, at_once = survey.sizes[key]
        return self.chunk or size, replace(self.settings, at_once=at_once)

    def _widest(self, cut: estimate.Cut | None) -> tuple[int, float]:
        """The cotangents that take most memory at once, and their share of what one takes in a pass of all layers."""
        rows = max(cotangents.row_count(row, self.survey.classes) for row in self.settings.rows)
        if cut is None or len(self.settings.rows) > 1:
            return rows, 1.0
        if not cut.drawn and self.survey.device.type != "cuda":
            return rows, self._share(cut.floor)
        return max(((level.rows, self._share(level.floor)) for level in cut.levels), key=math.prod)

    def _share(self, floor: int) -> float:
        """The share of the memory of a cotangent that it takes from this layer on."""
        return 1.0 if self.survey.moved else self.survey.shares[floor][1] or 1.0

    def _chunk(self, part: Any, settings: Settings, cut: estimate.Cut | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits of a chunk of inputs and their norms, with the proof that no selected parameter escapes."""
        classifier, survey = self.classifier, self.survey
        copies = noise.copies(part, *self.noise)
        if settings.parts > 1:
            return self._in_parts(part, copies, settings)
        x: Any = inputs.concatenate([part, copies]) if self.pairs else copies
        count = inputs.size(part)
        if survey.silent and survey.key is not None:  # a pass that is replayed proves nothing itself
            self.enter()
            prove_silent(classifier, x, survey.silent)

        def own(x: Any) -> Any:  # the copies
            return inputs.take(x, slice(count, None)) if self.pairs else x

        @attention.plain(survey.plain)
        def work(x: Any, check: bool) -> tuple[Tensor, dict[str, Tensor]]:
            self.enter()
            model = classifier if self.request.precision is None else Lowered(classifier, torch.bfloat16)
            kept = survey.first is not None and survey.first.x is x and model is classifier
            lowest = 0 if cut is None else cut.top if self.pairs and settings.copies > 2 else cut.floor
            lowest = 0 if len(settings.rows) > 1 else lowest  # rows that are not estimated go through all layers
            run = survey.first if kept else self._pass(model, own(x), lowest, check)
            assert run is not None
            if kept:
                prove_silent(model, x, survey.silent)
            if settings.copies == 1:
                return run.z, self._found(model, run, run, run.z, settings, cut)
            if not self.pairs:
                z = run.z[:: settings.copies]
                return z, self._found(model, run, run, z, settings, cut)
            with torch.no_grad():
                z = classifier.functional({}, inputs.take(x, slice(0, count)))
            first = inputs.apply(
                own(x), lambda t: t.unflatten(0, (count, -1))[:, :2].flatten(0, 1)
            )  # of one pair alone
            base = run if cut is None or settings.copies == 2 else self._pass(model, first, cut.floor, check)
            return z, self._found(model, run, base, z, settings, cut)

        if survey.key is None:
            return work(survey.first.x if survey.first and _same(survey.first.x, x) else x, True)
        key = (survey.key, x.shape, settings, cut, self.noise, self.request.precision)
        return replay.run(key, x, work, classifier, self.enter)

    def _found(
        self, model: Classifier, run: Pass, base: Pass, z: Tensor, settings: Settings, cut: estimate.Cut | None
    ) -> dict[str, Tensor]:
        """Norms of every kind of row and, where some are estimated, the standard errors of those of the classes.

        ``run`` is the pass of all copies, ``base`` the one that single rows are taken from, z the inputs' own logits.
        """
        table, p = self.survey.table, z.double().softmax(1)
        if cut is None or "classes" not in settings.rows:
            return chunk_norms(model, run, table, settings, p)
        rest = replace(settings, rows=tuple(row for row in settings.rows if row != "classes"))
        found = chunk_norms(model, run, table, rest, p)
        widest = self._widest(cut)[1]

        def fitting(floor: int, **changes: Any) -> Settings:  # as many cotangents as fit where they do not go so far
            at_once = settings.at_once and max(1, int(settings.at_once * widest / self._share(floor)))
            return replace(settings, at_once=at_once, **changes)

        last = chunk_norms(model, run, table.part(cut.top), fitting(cut.top, rows=("classes",)), p)["classes"]
        copies = len(base.z) // len(p)

        def norms(start: int, stop: int | None, pulled: cotangents.Cotangents) -> Tensor:
            return pulled_norms(model, base, table.part(start, stop), fitting(start, copies=copies), pulled)

        found["classes"], found["spread"] = estimate.complete(
            base, copies, settings.smoothing, p, table, cut, last, base is run, norms
        )
        return found

    def _pass(self, model: Classifier, x: Any, lowest: int, check: bool) -> Pass:
        """A pass that follows the parameters of the layers from ``lowest`` on."""
        survey = self.survey
        wanted = survey.table.part(lowest).parameters
        every = survey.moved or len(wanted) == len(model.parameters())
        given = x if model is self.classifier else lowered(x, torch.bfloat16)
        run = forward(model, given, check, None if every else frozenset(wanted))
        if not check and any(name not in run.plan.fast for name in wanted if name in run.graph.uses):
            raise NotImplementedError("the general path cannot be recorded")
        if check:
            prove_silent(model, x, [n for n in dict.fromkeys((*survey.silent, *wanted)) if n not in run.graph.uses])
        if model is self.classifier:
            return run
        with torch.no_grad():
            return replace(run, z=self.classifier.functional({}, x))  # cotangents keep their digits

    def _in_parts(self, part: Any, copies: Any, settings: Settings) -> tuple[Tensor, dict[str, Tensor]]:
        """One input whose copies do not fit together: everything exactly."""
        self.enter()
        own = [inputs.take(copies, piece) for piece in pieces(settings)]
        for some in own:
            prove_silent(self.classifier, some, self.survey.silent)
        with torch.no_grad():
            logits = torch.cat([self.classifier.logits(some) for some in own])
            z = self.classifier.logits(part) if self.pairs else logits[:1]
        return z, split_norms(self.classifier, copies, logits, self.survey.table, settings, z.double().softmax(1))


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _same(a: Any, b: Any) -> bool:
    """Whether two batches are the very same memory."""
    pairs = zip(inputs.tensors(a), inputs.tensors(b), strict=True)
    return all(s.shape == t.shape and s.data_ptr() == t.data_ptr() and s.stride() == t.stride() for s, t in pairs)


def _smaller(size: int, settings: Settings, error: BaseException) -> tuple[int, Settings]:
    """What to try after memory ran out: fewer inputs, then fewer cotangents, then the copies in parts."""
    if size > 1:
        return size // 2, settings
    if settings.at_once and settings.at_once > 1:
        return 1, replace(settings, at_once=settings.at_once // 2)
    if settings.parts < settings.copies:
        return 1, replace(settings, parts=min(settings.copies, settings.parts * 2))
    raise ModelError(TOO_LARGE) from error
