"""Kernels compiled ahead, in threads, while the model is still being looked at.

Triton compiles a kernel where it is first launched, some 0.3 s each, one after the other. Within `noted` a launch
starts nothing: it notes which variant of the kernel would be needed, and these are compiled side by side. A later
launch waits for those of its kernel. What was not foreseen is compiled when it comes, and what fails here fails there
again.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from typing import Any

import torch

MOST = 16
"""Kernels that are compiled at once, at most, and no more than there are processors."""
SAFE = (3, 5)
"""From this version on Triton itself compiles in threads (`triton.AsyncCompileMode`)."""

Launch = tuple["Kernel", Any, Any, Any]
"""A kernel, and the grid, arguments and options that it would be launched with."""

_asking: ContextVar[dict[Hashable, Launch] | None] = ContextVar("asking", default=None)
_known: set[Hashable] = set()
_ready: list[Future[None]] = []
_waiting: list[Future[None]] = []


class Kernel:
    """A kernel of Triton's with the variants that are being compiled for it.

    Args:
        jitted: What ``triton.jit`` gave.
    """

    def __init__(self, jitted: Any) -> None:
        self.jitted = jitted
        self.pending: list[Future[None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.jitted, name)

    def __getitem__(self, grid: Any) -> Any:
        if (asked := _asking.get()) is not None:
            return functools.partial(self._note, asked, grid)
        if self.pending:
            wait(self.pending)
            self.pending.clear()
        return self.jitted[grid]

    def _note(self, asked: dict[Hashable, Launch], grid: Any, *args: Any, **options: Any) -> None:
        kinds = [_kind(param, value) for param, value in zip(self.jitted.params, args, strict=False)]  # some by name
        asked[(id(self), *kinds, *sorted(options.items()))] = self, grid, args, options


def _kind(param: Any, value: Any) -> Hashable:
    """What Triton looks at in an argument, when it decides whether a kernel is compiled anew."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.storage_offset() * value.element_size() % 16 == 0
    if param.is_constexpr:
        return value
    return type(value), param.do_not_specialize or (value == 1, value % 16 == 0)


def asking() -> bool:
    """Whether launches are only noted, here and now."""
    return _asking.get() is not None


@contextlib.contextmanager
def noted() -> Iterator[dict[Hashable, Launch]]:
    """What the block would launch, by variant; its tensors may be on the device "meta"."""
    found: dict[Hashable, Launch] = {}
    token = _asking.set(found)
    try:
        yield found
    finally:
        _asking.reset(token)


def compile_all(launches: Mapping[Hashable, Launch], device: torch.device) -> None:
    """Compile these variants for a GPU, in threads, if they were not before; long kernels take long, and go first."""
    longest = sorted(launches.items(), key=lambda item: len(getattr(item[1][0].jitted, "src", "")), reverse=True)
    for key, (kernel, *launch) in longest:
        if (device, key) not in _known:
            _known.add((device, key))
            kernel.pending.append(_submit(_compile, device, kernel.jitted, *launch))


def begin(device: torch.device) -> bool:
    """Let Triton set itself up for this GPU in a thread; whether this Triton compiles in threads at all."""
    import triton

    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < SAFE:
        return False
    if (device, None) not in _known:
        _known.add((device, None))
        _ready.append(_submit(_set_up, device))
    return True


def finish() -> None:
    """Wait for all that is being compiled: loading a kernel would disturb the recording of a CUDA graph."""
    wait(_waiting)
    _waiting.clear()


def _set_up(device: torch.device) -> None:
    """What Triton does once in a process: build its driver, and read itself for the names of files in its cache."""
    with contextlib.suppress(Exception), torch.cuda.device(device):
        from triton.runtime import cache, driver

        driver.active.get_current_target()
        cache.triton_key()


def _compile(device: torch.device, jitted: Any, grid: Any, args: Any, options: Any) -> None:
    wait(_ready)
    with contextlib.suppress(Exception), torch.cuda.device(device):  # the launch itself will tell what is wrong
        _ = jitted.warmup(*args, grid=grid, **options).run  # which loads it


def _submit(work: Any, *args: Any) -> Future[None]:
    future = _pool().submit(work, *args)
    _waiting.append(future)
    return future


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MOST, os.cpu_count() or 1), thread_name_prefix="nescio-kernels")
