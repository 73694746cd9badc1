"""Replaying a pass on a GPU: the kernels of a chunk recorded once as a CUDA graph and launched again for the next one.

A small batch spends most of its time in launching kernels one by one. A pass that comes a second time with the same
shapes, settings and state of the model is recorded, and from the third time on replayed. A recording holds addresses of
tensors and the path that the Python code took, so it is found again by a `fingerprint` of the model: its modules, their
attributes and hooks, the addresses of its tensors, and torch's global switches. Weights changed in place are
followed. The GPU does not wait for the look at the model: where what a recording reads is in its place, that of the
last call is launched first, and before its result is read `Changed` says if it is of another model. A pass that needs
the host in between (control flow on data, the general path) cannot be recorded and is run as it is. A recording keeps
its memory; the last few are kept, and `clear` lets go of them.

A replay runs no code of the model, so nothing has to be put back after it, unless the recorded kernels themselves write
to the model's buffers or draw random numbers: such a recording is not `pure`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import Watch
from nescio.trace.runtime import cuda_graph

Result = tuple[Tensor, dict[str, Tensor]]
"""Logits, and the norms that were computed from them."""

KEPT = 4
"""Recordings that are kept at most."""
_seen: OrderedDict[Hashable, int] = OrderedDict()
_recordings: OrderedDict[Hashable, _Recording | None] = OrderedDict()


@dataclass(frozen=True)
class _Recording:
    graph: Any
    x: Tensor
    result: Result
    pure: bool = False
    """Whether the kernels leave the model and the random generators alone."""


class Changed(Exception):
    """A model is not what it was the last time, for which it was taken."""


def clear() -> None:
    """Let go of all recordings and their memory."""
    _seen.clear()
    _recordings.clear()


def run(
    key: Hashable,
    x: Tensor,
    work: Callable[[Tensor, bool], Result],
    classifier: Classifier,
    enter: Callable[[], None],
    settle: Callable[[], None] = lambda: None,
    later: list[Tensor] | None = None,
) -> Result:
    """``work(x, True)``, recorded or replayed where that can be done; ``work(x, False)`` must do without the host.

    The first time the work is done as it is; the second time it is recorded too. ``enter`` is called before a replay
    that changes the classifier (`modes.lazily`); the work itself has to see to that. ``settle`` is called while a
    replay is going on, and raises `Changed` where its result is not that of the model. Whether the logits of a replay
    are finite is put into ``later``, where that is given, for whoever reads the result; else it is waited for here.
    """
    recording = _recordings.get(key)
    if recording is not None:
        _recordings.move_to_end(key)
        if not recording.pure:
            enter()
        recording.x.copy_(x)
        recording.graph.replay()
        settle()
        logits, norms = recording.result
        finite = logits.isfinite().all()
        result = logits.clone(), {name: t.clone() for name, t in norms.items()}
        if later is not None:
            later.append(finite)
            return result
        return result if bool(finite) else work(x, True)  # which says what is wrong
    watch = Watch(classifier) if key in _seen and key not in _recordings else None
    result = work(x, True)
    if key not in _recordings:
        _seen[key] = _seen.pop(key, 0) + 1
        if watch is not None:
            recording = _record(x, work)
            _recordings[key] = recording and replace(recording, pure=not watch.changed())
        while len(_recordings) > KEPT:
            _recordings.popitem(last=False)
        while len(_seen) > 256:
            _seen.popitem(last=False)
    return result


def _record(x: Tensor, work: Callable[[Tensor, bool], Result]) -> _Recording | None:
    static = x.clone()
    recorded = cuda_graph.record(lambda: work(static, False), x.device)
    return None if recorded is None else _Recording(recorded[0], static, recorded[1])


def can_replay(classifier: Classifier, x: Inputs) -> bool:
    """Whether a pass on this input may be recorded at all."""
    return isinstance(x, torch.Tensor) and x.is_cuda and isinstance(classifier.module, nn.Module)
