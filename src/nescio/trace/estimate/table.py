"""The table of norms of a whole batch, chunk by chunk.

Inputs go through in chunks. When memory runs out the chunk is halved and the work goes on from where it was; a single
input that does not fit has its cotangents taken in smaller blocks, and at last its noisy copies in parts whose
gradients are added up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nescio import inputs
from nescio._common import memory
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.trace.backward import cotangents
from nescio.trace.backward.substitutes import attention
from nescio.trace.estimate.completion import complete
from nescio.trace.estimate.cut import GROUPS, Cut, plan_cut
from nescio.trace.estimate.entries import Settings, pass_norms, split_norms
from nescio.trace.probe.linear_head import Head
from nescio.trace.probe.passes import Pass, forward
from nescio.trace.probe.proofs import prove_silent
from nescio.trace.probe.survey import TOO_LARGE, begin
from nescio.trace.runtime import batch_sizes, noise, replay
from nescio.trace.runtime.fingerprint import fingerprint
from nescio.trace.runtime.precision import Lowered
from nescio.types import ModelError, NormSettings, NormTable


class TableBuilder:
    """One call of the engine: the request, what two inputs told of the model, and the loop over chunks of inputs."""

    def __init__(
        self,
        classifier: Classifier,
        x: Inputs,
        rows: tuple[str, ...],
        request: NormSettings,
        chunk: int | None = None,
        memory_gb: float | None = None,
        enter: Callable[[], None] = lambda: None,
        trust: bool = False,
    ) -> None:
        self.classifier, self.request, self.chunk = classifier, request, chunk
        self._enter = enter  # called before any code of the model runs
        self.most = None if memory_gb is None else memory_gb * 1e9
        plain = request.pairs and not noise.takes(x)
        samples = request.samples if request.sigma > 0 and not plain else 0
        self.pairs = request.pairs and samples > 0
        self.noise = (request.sigma, samples, request.seed, self.pairs)
        self.settings = Settings(rows, request.norm, samples + (not self.pairs), request.smoothing)
        self.x, self.survey, self.supposed = begin(
            classifier, x, lambda y: noise.copies(y, *self.noise), request, enter, trust
        )

    def enter(self) -> None:
        """What comes before any code of the model runs."""
        self._settle()
        self._enter()

    def _settle(self) -> None:
        """Look, once, whether the model is what it was supposed to be; it cannot be told after `enter`."""
        supposed, self.supposed = self.supposed, None
        if supposed is not None and fingerprint(self.classifier) != supposed:
            raise replay.Changed

    def cut(self) -> Cut | None:
        """Which entries are computed; None: all."""
        if "classes" not in self.settings.rows:
            return None
        decay, tolerance = self.request.decay, self.request.tolerance
        if self.survey.silent:  # rare; their share of a sum is not known from other layers
            decay = 0.0
        part = 2 / self.settings.copies if self.pairs else 1.0
        closed = self.request.norm == 2 and self.request.precision is None
        head = self.survey.head if closed else 0
        groups = math.gcd(self.settings.copies // 2, GROUPS) if self.pairs else 1  # of whole pairs
        costs, budget = self.survey.costs, self.request.classes
        cut = plan_cut(self.survey.classes, costs, budget, decay, tolerance, part, head, groups)
        if cut is not None and not cut.drawn and inputs.size(self.x) == 1:
            return None  # the check of one input would take longer than all of it
        if cut is not None and cut.drawn and self.survey.silent:  # nothing can be completed from layers of zeros
            return replace(cut, levels=cut.levels[-1:]) if cut.closed else None
        return cut

    def build(self, x: Inputs, cut: Cut | None, later: list[Tensor] | None = None) -> dict[str, NormTable]:
        """The tables of some inputs, chunk by chunk, with less at a time whenever memory runs out; ``later`` is as in
        `replay.run`.
        """
        size, settings = self._sizes(cut)
        if self.chunk is None:  # chunks of one size: a pass that was recorded serves for all
            size = -(-inputs.size(x) // -(-inputs.size(x) // size))
        chunks: list[dict[str, Tensor]] = []
        each_logits: list[Tensor] = []
        start = 0
        while start < inputs.size(x):
            part = inputs.take(x, slice(start, start + size))
            try:
                logits, norms = self._chunk(part, settings, cut, later)
            except (RuntimeError, MemoryError) as error:
                if not memory.exhausted(error):
                    raise
                size, settings = _smaller(inputs.size(part), settings, error)
                self.survey.sizes.clear()
                replay.clear()
                memory.release(self.survey.device)
                continue
            start += inputs.size(part)
            chunks.append({row: n.transpose(0, 1) for row, n in norms.items()})
            each_logits.append(logits)
        z = _joined(each_logits)
        p = z.double().softmax(1)
        if any("spread" in chunk for chunk in chunks):  # a chunk whose copies were taken in parts is exact
            chunks = [{"spread": torch.zeros_like(chunk["classes"])} | chunk for chunk in chunks]
        joined = {name: _joined([chunk[name] for chunk in chunks]) for name in chunks[0]}
        spread = joined.pop("spread", None)
        names = self.survey.table.names
        return {
            row: NormTable(n, p, names, spread if row == "classes" else None, logits=z) for row, n in joined.items()
        }

    def _sizes(self, cut: Cut | None) -> tuple[int, Settings]:
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

    def _widest(self, cut: Cut | None) -> tuple[int, float]:
        """The cotangents that take most memory at once, and their share of what one takes in a pass of all layers."""
        rows = max(cotangents.row_count(row, self.survey.classes) for row in self.settings.rows)
        if cut is None or len(self.settings.rows) > 1:
            return rows, 1.0
        if not cut.drawn and self.survey.device.type != "cuda":
            return rows, self._share(cut.floor)
        return max(((level.rows // cut.groups, self._share(level.floor)) for level in cut.levels), key=math.prod)

    def _share(self, floor: int) -> float:
        """The share of the memory of a cotangent that it takes from this layer on."""
        return 1.0 if self.survey.moved else self.survey.shares[floor][1] or 1.0

    def _chunk(
        self, part: Any, settings: Settings, cut: Cut | None, later: list[Tensor] | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits of a chunk of inputs and their norms, with the proof that no selected parameter escapes."""
        classifier, survey = self.classifier, self.survey
        copies = noise.copies(part, *self.noise)
        if settings.parts > 1:
            return self._in_parts(part, copies, settings)
        x: Inputs = inputs.concatenate([part, copies]) if self.pairs else copies
        count = inputs.size(part)
        if survey.silent and survey.key is not None:  # a pass that is replayed proves nothing itself
            self.enter()
            prove_silent(classifier, x, survey.silent)

        work = partial(self._compute, count, settings, cut)
        if survey.key is None:
            return work(survey.first.x if survey.first and _same(survey.first.x, x) else x, True)
        assert isinstance(x, Tensor)  # nothing else has a key
        key = (survey.key, x.shape, settings, cut, self.noise, self.request.precision)
        return replay.run(key, x, work, classifier, self.enter, self._settle, later)

    def _compute(
        self, count: int, settings: Settings, cut: Cut | None, x: Inputs, check: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits and norms of ``count`` inputs from x: their copies, with the inputs themselves in front of pairs."""
        survey, model = self.survey, self.classifier
        with attention.plain(survey.plain):
            self.enter()
            if self.request.precision is not None:
                model = Lowered(self.classifier, torch.bfloat16)
            copies = inputs.take(x, slice(count, None)) if self.pairs else x
            known = survey.first is not None and survey.first.x is x and model is self.classifier
            alone = self.pairs and settings.copies > 2 and cut is not None and not cut.closed  # rows are of one pair
            lowest = 0 if cut is None else cut.top if alone else cut.floor
            lowest = 0 if len(settings.rows) > 1 else lowest  # rows that are not estimated go through all layers
            run = survey.first if known else self._pass(model, copies, lowest, check)
            assert run is not None
            if known:
                prove_silent(model, x, survey.silent)
            if not self.pairs:
                z = run.z if settings.copies == 1 else run.z[:: settings.copies]
                return z, self._norms(model, run, run, z, settings, cut)
            with torch.no_grad():
                z = self.classifier.functional({}, inputs.take(x, slice(0, count)))
            base = run
            if alone and cut is not None:
                one_pair = inputs.apply(copies, lambda t: t.unflatten(0, (count, -1))[:, :2].flatten(0, 1))
                base = self._pass(model, one_pair, cut.floor, check)
            return z, self._norms(model, run, base, z, settings, cut)

    def _norms(
        self, model: Classifier, run: Pass, base: Pass, z: Tensor, settings: Settings, cut: Cut | None
    ) -> dict[str, Tensor]:
        """Norms of every kind of row and, where some are estimated, the standard errors of those of the classes.

        ``run`` is the pass of all copies, ``base`` the one that single rows are taken from, z the inputs' own logits.
        """
        table, p = self.survey.table, z.double().softmax(1)
        build = partial(cotangents.blocks, logits=run.z, copies=settings.copies, smoothing=settings.smoothing, p=p)
        norms: dict[str, Tensor] = {}
        for row in settings.rows:
            if cut is None or row != "classes":
                norms[row] = pass_norms(model, run, table, settings, build(row, at_once=settings.at_once))
        if cut is None or "classes" not in settings.rows:
            return norms
        widest = self._widest(cut)[1]

        def at_once(floor: int) -> int | None:  # as many cotangents as fit where they do not go so far
            return settings.at_once and max(1, int(settings.at_once * widest / self._share(floor)))

        above: Tensor | None = None
        lying: Tensor | None = None
        parts: Tensor | None = None
        copies = len(base.z) // len(p)
        if cut.closed:
            head = Head(run.graph, run.logits, run.z, settings.copies, settings.smoothing)
            last, (above, lying) = head.norms(table.part(cut.top)), head.below()
            if cut.groups > 1:
                copies = settings.copies // cut.groups
                parts = Head(run.graph, run.logits, run.z, copies, settings.smoothing).below()[0]
        else:
            last = pass_norms(model, run, table.part(cut.top), settings, build("classes", at_once=at_once(cut.top)))

        def row_norms(start: int, stop: int | None, rows: cotangents.Cotangents) -> Tensor:
            own = replace(settings, copies=len(base.z) // rows.scale.shape[1])  # all of an input, or those of a group
            return pass_norms(model, base, table.part(start, stop), own, rows.split(at_once(start)))

        norms["classes"], norms["spread"] = complete(
            base.z, copies, settings.smoothing, p, table, cut, last, base is run, row_norms, above, lying, parts
        )
        return norms

    def _pass(self, model: Classifier, x: Inputs, lowest: int, check: bool) -> Pass:
        """A pass that follows the parameters of the layers from ``lowest`` on."""
        survey = self.survey
        wanted = survey.table.part(lowest).parameters
        every = survey.moved or len(wanted) == len(model.parameters())
        run = forward(model, x, check, None if every else frozenset(wanted))
        if not check and any(name not in run.plan.fast for name in wanted if name in run.graph.uses):
            raise NotImplementedError("the general path cannot be recorded")
        if check:
            prove_silent(model, x, [n for n in dict.fromkeys((*survey.silent, *wanted)) if n not in run.graph.uses])
        if not isinstance(model, Lowered):
            return run
        if run.logits in model.wide:  # cotangents keep their digits
            return replace(run, z=model.wide[run.logits])
        with torch.no_grad():
            return replace(run, z=self.classifier.functional({}, x))

    def _in_parts(self, part: Any, copies: Any, settings: Settings) -> tuple[Tensor, dict[str, Tensor]]:
        """One input whose copies do not fit together: everything exactly."""
        self.enter()
        pieces = [inputs.take(copies, piece) for piece in settings.pieces]
        for piece in pieces:
            prove_silent(self.classifier, piece, self.survey.silent)
        with torch.no_grad():
            logits = torch.cat([self.classifier.logits(piece) for piece in pieces])
            z = self.classifier.logits(part) if self.pairs else logits[:1]
        p = z.double().softmax(1)
        norms = {}
        for row in settings.rows:
            blocks = cotangents.blocks(row, logits, settings.copies, settings.smoothing, p, settings.at_once)
            norms[row] = split_norms(self.classifier, copies, self.survey.table, settings, blocks)
        return z, norms


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
