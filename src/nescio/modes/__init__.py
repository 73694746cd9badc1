"""Context managers that change a model for a while, and put its state back at the end, also after an error.

    with preserved(model), tracing(model):      # eval mode, every parameter has a gradient, compiled parts run eagerly
        ...
    with preserved(model), predicting(model):   # eval mode, no gradients
        ...
    with lazily(model) as enter:                # the first two, from the first enter() on
        ...
    with preserved_when_run(model):             # the first one, if one of the others is entered in it
        ...

`model` is an ``nn.Module``, a bound method of one, an object that names its modules in `.roots`, or any other callable,
which has nothing to put back but the state of the random generators.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

import torch
from torch import nn

from nescio.modes.float32_products import full_products, tf32, tf32_products
from nescio.modes.loose import Loose, current, forgetting
from nescio.modes.state import Generators, ModuleState, Values, Watch, modules_of
from nescio.types import ModelError

_preserved: ContextVar[frozenset[int]] = ContextVar("preserved", default=frozenset())
"""Modules that are being preserved, or will be as soon as they may change."""


class _State:
    """What the random generators are and, from `take` on, some modules: nothing is taken twice."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.modules, self.ids, self.taken = modules, frozenset(map(id, modules)), False
        self.generators = Generators()

    def take(self) -> None:
        if self.taken:
            return
        self.parts = [ModuleState(module) for module in self.modules]
        self.loose = Loose(self.modules)
        self.values = Values([value for part in self.parts for value in part.values] + self.loose.tensors)
        self.taken = True

    def restore(self) -> None:
        if self.taken:
            for part in self.parts:
                part.restore()
            self.loose.restore()
            self.values.restore()
        self.generators.restore()


_waiting: ContextVar[tuple[_State, ...]] = ContextVar("waiting", default=())
"""States that are taken as soon as a mode is entered for one of their modules (`preserved_when_run`)."""


def _take_state(modules: Iterable[nn.Module]) -> None:
    """Let those that wait take the state of these modules: they may change from now on."""
    if waiting := [state for state in _waiting.get() if not state.taken]:
        ids = set(map(id, modules))
        for state in waiting:
            if not state.ids.isdisjoint(ids):
                state.take()


@contextmanager
def preserved(model: object, again: bool = True) -> Iterator[None]:
    """Put back, bit for bit, what work on the model may change.

    Of every submodule these are the training flag, the hooks, the buffers (the objects and their values), tensors in
    plain attributes and in dicts and lists there, and the parameters with their `requires_grad` and `.grad` (the same
    objects). The random state of torch (CPU, and CUDA where it is used), numpy and Python is put back too.

    Args:
        model: A module, or anything with `roots`, the modules whose state matters.
        again: False does nothing where the block stands inside of another `preserved` for the same modules, which puts
            them back anyway. The work takes milliseconds for a large model.

    Returns:
        A context manager.

    Examples:
        >>> model = torch.nn.Linear(2, 2)
        >>> with preserved(model):
        ...     _ = model.eval().requires_grad_(False)
        >>> model.training, model.weight.requires_grad
        (True, True)
    """
    modules = modules_of(model)
    _take_state(modules)
    outer = _preserved.get()
    if not again and outer and outer.issuperset(map(id, modules)):
        yield
        return
    state = _State(modules)
    token = _preserved.set(outer | state.ids)
    state.take()
    try:
        yield
    finally:
        state.restore()
        _preserved.reset(token)


@contextmanager
def preserved_when_run(model: object) -> Iterator[None]:
    """As `preserved`, but cheap where the model is not run: its state is taken when it may change for the first time.

    That is when another function here is entered for one of its modules inside of the block, so the work there has to
    use them. The random state is taken at once.

    Args:
        model: A module, or anything with `roots`, the modules whose state matters.

    Returns:
        A context manager.

    Examples:
        >>> model = torch.nn.BatchNorm1d(2)
        >>> with preserved_when_run(model):
        ...     with preserved(model, again=False):
        ...         _ = model(torch.rand(4, 2))
        >>> int(model.num_batches_tracked)
        0
    """
    state, outer = _State(modules_of(model)), _preserved.get()
    if outer and outer.issuperset(state.ids):
        yield
        return
    tokens = _preserved.set(outer | state.ids), _waiting.set((*_waiting.get(), state))
    try:
        yield
    finally:
        state.restore()
        _preserved.reset(tokens[0])
        _waiting.reset(tokens[1])


@contextmanager
def tracing(model: object) -> Iterator[None]:
    """Run a block in eval mode with gradients on for every floating-point parameter, frozen ones too.

    Compiled models run eagerly. Recurrent layers on a GPU leave cuDNN, which computes their gradients in training mode
    only. What a call of the model leaves in plain attributes is put back before the next call.

    Args:
        model: A module, or anything with `roots`, the modules whose state matters.

    Returns:
        A context manager.

    Raises:
        ModelError: If a parameter was made under `torch.inference_mode` and cannot have a gradient.

    Examples:
        >>> model = torch.nn.Linear(2, 2).requires_grad_(False)
        >>> with tracing(model):
        ...     model.training, model.weight.requires_grad
        (False, True)
    """
    modules = modules_of(model)
    _take_state(modules)
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(eager())
        stack.enter_context(without_cudnn(modules))
        stack.enter_context(_evaluating(modules))
        stack.enter_context(_unfrozen(modules))
        stack.enter_context(forgetting(modules))
        yield


@contextmanager
def lazily(model: object) -> Iterator[Callable[[], None]]:
    """Give a function that enters `preserved` and `tracing` for the rest of the block, the first time it is called.

    Call it before any code of the model runs; work that runs none needs neither. Inference mode is off and gradients
    are on from the start, so that results are ordinary tensors whether it was called or not.

    Args:
        model: A module, or anything with `roots`, the modules whose state matters.

    Returns:
        A context manager, which gives the function.

    Examples:
        >>> model = torch.nn.Dropout()
        >>> with lazily(model) as enter:
        ...     before = model.training
        ...     enter()
        ...     before, model.training
        (True, False)
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        entered = False

        def enter() -> None:
            nonlocal entered
            if not entered:
                stack.enter_context(preserved(model, again=False))
                stack.enter_context(tracing(model))
                entered = True

        yield enter


@contextmanager
def predicting(model: object) -> Iterator[None]:
    """Run a block in eval mode without gradients; a compiled model stays compiled.

    Args:
        model: A module, or anything with `roots`, the modules whose state matters.

    Returns:
        A context manager.

    Examples:
        >>> model = torch.nn.Dropout()
        >>> with predicting(model):
        ...     model.training
        False
        >>> model.training
        True
    """
    modules = modules_of(model)
    _take_state(modules)
    with torch.no_grad(), _evaluating(modules):
        yield


@contextmanager
def eager() -> Iterator[None]:
    """Run whatever `torch.compile` has wrapped as plain Python.

    Returns:
        A context manager.

    Examples:
        >>> with eager():
        ...     pass
    """
    if "torch._dynamo" not in sys.modules:  # nothing can be compiled yet, and the import takes seconds
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def without_cudnn(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Turn cuDNN off where there is a recurrent layer on a GPU.

    Args:
        modules: The modules that the block runs.

    Returns:
        A context manager.

    Examples:
        >>> with without_cudnn([torch.nn.Linear(1, 1)]):
        ...     pass
    """
    used = any(isinstance(m, nn.RNNBase) and any(p.is_cuda for p in m.parameters(recurse=False)) for m in modules)
    before = torch.backends.cudnn.enabled
    if not used or not before:
        yield
        return
    try:
        torch.backends.cudnn.enabled = False
        yield
    finally:
        torch.backends.cudnn.enabled = before


@contextmanager
def _evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    training = [module for module in modules if module.training]
    try:
        for module in training:
            module.training = False  # not .eval(): models override it, to keep parts of them in training mode
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _unfrozen(modules: Iterable[nn.Module]) -> Iterator[None]:
    parameters = [p for m in modules for p in m._parameters.values() if p is not None and p.is_floating_point()]
    if any(parameter.is_inference() for parameter in parameters):
        raise ModelError(
            "expected parameters that can have a gradient, got some that were made under torch.inference_mode(); "
            "build the model outside of it, or copy it outside of it with copy.deepcopy"
        )
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in frozen:
            if parameter.requires_grad:
                parameter.requires_grad_(False)


__all__ = [
    "preserved",
    "preserved_when_run",
    "tracing",
    "lazily",
    "predicting",
    "eager",
    "full_products",
    "tf32",
    "tf32_products",
    "without_cudnn",
    "Watch",
    "current",
]
