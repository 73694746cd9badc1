"""A pass through a piecewise-linear network that carries values and rates of change side by side, in float64.

The rows of the batch are B blocks of the N inputs. Block 0 holds values, where the pass has them; every other block
holds the rate of change of these values along one direction. A linear operation acts on all rows alike, a bias is added
to values only, and at a `Site` all blocks of an input take the piece that was chosen for it. The model's own code is
run, on a tensor that sees every operation, so functional calls, residual sums and modules that are used twice need no
special case. An operation that is not in the list of those known here to be linear is refused by its name.

A pass that holds rates alone can be recorded on a `Tape`. When it is run again, only the rows of inputs whose piece has
changed are computed anew, and none of the model's own code is run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nescio.limits import rules, shapes
from nescio.limits.pieces import Change, Site
from nescio.limits.shapes import Args, Kwargs
from nescio.models import Classifier
from nescio.types import ModelError

_ATTRIBUTES = {
    *("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "is_sparse", "is_nested"),
    *("is_quantized", "is_meta", "is_leaf", "itemsize", "names"),
}
_QUESTIONS = {"size", "dim", "numel", "nelement", "ndimension", "is_floating_point", "is_complex", "is_contiguous"}
_QUESTIONS |= {"stride", "__len__", "get_device", "element_size", "is_inference", "is_same_size"}
_CLOSING = {"softmax", "sigmoid", "log_softmax"}


class Tracked(Tensor):
    """A tensor whose rows are blocks of values and rates; every operation on it comes to the rules.

    `.raw` holds the rows, and is replaced by operations that work in place; `.source` is the place on the tape of the
    operation that made them.
    """

    raw: Tensor
    source: int
    run: Pass
    closed: str | None

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            name = getattr(func, "__name__", "")
            if name == "__get__":
                name = getattr(getattr(func, "__self__", None), "__name__", "")
                if name in _ATTRIBUTES:
                    return func(*args)
            if name in _QUESTIONS:
                return func(*args, **kwargs)
            return _find(args, kwargs)[0].run.operate(name, func, args, kwargs)


Compute = Callable[[Tensor | None], Tensor]


class Pass:
    """One run of the model. sites: those of an earlier pass, in order, whose pieces hold; None: choose them now."""

    def __init__(
        self,
        classifier: Classifier,
        count: int,
        blocks: int,
        *,
        values: bool,
        sites: list[Site] | None = None,
        record: Callable[[Site, Tensor], None] | None = None,
        casts: dict[int, tuple[Tensor, Tensor]] | None = None,
        tape: Tape | None = None,
    ) -> None:
        self.classifier, self.count, self.blocks, self.values = classifier, count, blocks, values
        self.choosing = sites is None
        self.sites: list[Site] = [] if sites is None else sites
        self.record, self.casts, self.tape = record, {} if casts is None else casts, tape
        self.site = self.numbers = 0

    def __call__(self, rows: Tensor) -> Tensor:
        """The logits of all blocks, ``[B, N, C]``, of rows ``[B · N, ...]``."""
        z, _ = self.classifier._run(self.wrap(rows), len(rows))
        if not isinstance(z, Tracked) or z.closed is not None:
            raise self.refusal(getattr(z, "closed", None) or "what leaves PyTorch's functions")
        if self.site != len(self.sites):
            raise ModelError("expected a model that does the same for every input, got one that branches on values")
        return z.raw.view(self.blocks, self.count, -1)

    def wrap(self, raw: Tensor, source: int = -1, closed: str | None = None) -> Tracked:
        """Rows as a tensor that the model can be given."""
        tracked = raw.as_subclass(Tracked)
        tracked.raw, tracked.source, tracked.run, tracked.closed = raw, source, self, closed
        self.numbers += raw.numel()
        return tracked

    def operate(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operation on tracked tensors."""
        tracked = _find(args, kwargs)
        for one in tracked:
            if one.closed is not None:
                raise self.refusal(one.closed)
        plain = name.strip("_")
        if plain in shapes.SAME:
            return self.wrap(tracked[0].raw, tracked[0].source)
        if plain in _CLOSING:  # a model may end with one: its input are the logits, if it is said what is returned
            return self.wrap(tracked[0].raw, closed=self.where(plain))
        rule = rules.RULES.get(plain)
        try:
            if plain in shapes.SHAPES:
                return self._reshaped(plain, func, tracked[0], args, kwargs)
            if rule is None:
                raise rules.NotLinear
            result = rule(self, func, args, kwargs)
        except rules.NotLinear as error:
            raise self.refusal(self.where(plain), str(error)) from None
        if (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or kwargs.get("inplace"):
            tracked[0].raw, tracked[0].source = result.raw, result.source
            return tracked[0]
        return result

    def operation(self, compute: Compute, given: list[Tracked], columns: Tensor | None = None) -> Tracked:
        """What `compute` gives for all rows; it can be asked again for some of them.

        columns: for a product with a matrix, what an entry of 1 at each place of the input adds to the output.
        """
        raw = compute(None)
        if self.tape is None:
            return self.wrap(raw)
        return self.wrap(raw, self.tape.add(Step(raw, compute, [one.source for one in given], columns=columns)))

    def piecewise(self, make: Callable[[], Site], given: Tracked) -> Tracked:
        """The next site applied to a tensor: its pieces are chosen, or read, and its margins recorded."""
        if self.choosing:
            self.sites.append(make())
        elif self.site >= len(self.sites):
            raise ModelError("expected a model that does the same for every input, got one that branches on values")
        site, self.site = self.sites[self.site], self.site + 1
        rows = given.raw
        h = rows.view(self.blocks, self.count, *rows.shape[1:])
        if self.choosing:
            site.settle(h)
        if self.record is not None:
            self.record(site, h)
        if self.tape is None:
            return self.wrap(site.apply(h, self.values).flatten(0, 1))
        site.take(rows, None)

        def compute(some: Tensor | None) -> Tensor:
            return site.apply(h if some is None else h[:, some], False, some)[0]

        raw = compute(None)
        return self.wrap(raw, self.tape.add(Step(raw, compute, [given.source], site, rows)))

    def cast(self, parameter: object) -> Any:
        """A parameter in float64; each is converted once."""
        if not isinstance(parameter, Tensor) or parameter.dtype == torch.float64:
            return parameter
        known = self.casts.get(id(parameter))
        if known is None or known[0] is not parameter:
            known = self.casts[id(parameter)] = parameter, parameter.detach().double()
        return known[1]

    def added(self, rows: Tensor, bias: Tensor | float) -> Tensor:
        """Rows with a bias added to the values, in place."""
        if self.values:
            rows[: self.count] += bias
        return rows

    def refusal(self, what: str, why: str = "") -> ModelError:
        """The error for an operation that is not linear piece by piece."""
        return ModelError(
            f"expected a piecewise-linear network, got {what}{' ' + why if why else ''}, which is not; "
            "measure it numerically: nescio.limits.audit(model, x, radius=...)"
        )

    def where(self, operation: str) -> str:
        """The operation and the module that calls it, found on the stack of calls."""
        module = self.classifier.module
        names = {} if module is None else {part: name for name, part in module.named_modules()}
        frame: Any = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module):
                name = names.get(owner, "")
                return f"{operation} in {f'{name!r} ' if name else ''}({type(owner).__name__})"
            frame = frame.f_back
        return operation

    def _reshaped(self, name: str, func: Callable[..., Any], given: Tracked, args: Args, kwargs: Kwargs) -> Any:
        """The same numbers in another shape. It is done for all rows: their number may be among the arguments."""
        moved = "which moves the inputs out of the first dimension"
        if not shapes.SHAPES[name](args[1:], kwargs, given.raw.ndim):
            raise rules.NotLinear(moved)
        raw = given.raw

        def shaped() -> Any:
            return func(raw, *args[1:], **kwargs) if args else func(**(kwargs | {"input": raw}))

        result = shaped()
        parts = result if isinstance(result, tuple | list) else (result,)
        if any(part.shape[:1] != raw.shape[:1] for part in parts):
            raise rules.NotLinear(moved)
        if parts[0].untyped_storage().data_ptr() == raw.untyped_storage().data_ptr():
            wrapped = tuple(self.wrap(part, given.source) for part in parts)
        else:
            wrapped = (self.operation(lambda rows: shaped() if rows is None else shaped()[rows], [given]),)
        return wrapped if isinstance(result, tuple | list) else wrapped[0]


@dataclass
class Step:
    """An operation on a tape, and the rows that it gave."""

    rows: Tensor
    compute: Compute
    sources: list[int]
    """The places of what it is given on the tape; −1 is the input."""
    site: Site | None = None
    given: Tensor | None = None
    """What the site is given."""
    columns: Tensor | None = None
    stale: Tensor | None = None
    """The inputs whose rows changed in this replay, without those in `change`."""
    change: Change | None = None

    def all_stale(self) -> Tensor | None:
        """All inputs whose rows changed in this replay."""
        if self.change is None:
            return self.stale
        rows = self.change.rows
        return _joined(self.stale, rows if rows.shape[0] == 1 else rows.unique())

    def renew(self, some: Tensor | None) -> None:
        """Work these rows out anew."""
        if some is None:
            return
        if some.shape[0] == self.rows.shape[0]:
            self.rows.copy_(self.compute(None))
        else:
            self.rows.index_copy_(0, some, self.compute(some))


class Tape:
    """The operations of a pass that holds rates, in order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def add(self, step: Step) -> int:
        """Take an operation down; its place on the tape."""
        self.steps.append(step)
        return len(self.steps) - 1

    def replay(self, zeros: list[tuple[Tensor, Tensor] | None]) -> None:
        """Change the pieces that have to, and work out anew the rows that come after a change.

        zeros: for each site in order the inputs and units whose margin is 0.
        """
        at = 0
        for step in self.steps:
            step.change = step.stale = None
            sources = [self.steps[source] for source in step.sources if source >= 0]
            if step.columns is not None and sources and sources[0].change is not None:
                self._nudge(step, sources[0])
                continue
            for source in sources:
                step.stale = _joined(step.stale, source.all_stale())
            if step.site is not None and step.given is not None:
                here, at = zeros[at], at + 1
                if step.stale is not None:
                    step.site.take(step.given, step.stale)
                change = None if here is None else step.site.turn(step.given, *here)
                if change is not None and change.growth is None:
                    step.stale = _joined(step.stale, change.rows)
                elif change is not None:
                    self._place(step, change)
            step.renew(step.stale)

    @staticmethod
    def _place(step: Step, change: Change) -> None:
        """Rows with a few new entries: those entries alone, unless the whole row is worked out anew."""
        rows, places, growth = change
        assert places is not None and growth is not None
        if step.stale is not None:
            other = ~torch.isin(rows, step.stale)
            rows, places, growth = rows[other], places[other], growth[other]
        if rows.numel():
            step.rows.view(-1).index_add_(0, rows * step.rows[0].numel() + places, growth)
            step.change = Change(rows, places, growth)

    @staticmethod
    def _nudge(step: Step, source: Step) -> None:
        """A product with a matrix, of which a few entries of the input changed: add those columns."""
        step.renew(source.stale)
        change = source.change
        assert change is not None and change.growth is not None and step.columns is not None
        step.rows.index_add_(0, change.rows, change.growth[:, None] * step.columns[change.places])
        step.stale = source.all_stale()


def _joined(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    result: Tensor | None = torch.cat([a, b]).unique()
    return result


def _find(args: Args, kwargs: Kwargs) -> list[Tracked]:
    """All tracked tensors among the arguments, also in lists."""
    tracked: list[Tracked] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tracked):
            tracked.append(value)
        elif isinstance(value, tuple | list):
            tracked += [item for item in value if isinstance(item, Tracked)]
    return tracked
