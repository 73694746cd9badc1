"""Context managers that change a model for a while and put back what they found, whatever happens in between.

    with preserved(model), tracing(model):      # eval mode, every parameter has a gradient, compiled parts run eagerly
        ...
    with preserved(model), predicting(model):   # eval mode, no gradients
        ...
    with lazily(model) as enter:                # the first two, from the first enter() on
        ...

`model` is an ``nn.Module``, a bound method of one, an object that names its modules in `.roots`, or any other callable,
which has nothing to put back but the state of the random generators.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from nescio.types import ModelError

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


_preserved: ContextVar[frozenset[int]] = ContextVar("preserved", default=frozenset())
"""Modules that are being preserved."""


@contextmanager
def preserved(model: object, again: bool = True) -> Iterator[None]:
    """Put back, bit for bit, what work on the model may change.

    These are the training flag of every submodule, its hooks, its buffers (the objects and their values), its tensors
    held as plain attributes, its parameters with their `requires_grad` and `.grad` (the very objects), and the random
    state of torch (CPU, and CUDA where it is in use), numpy and Python. With ``again=False`` it leaves that to another
    one for the same modules, where it stands inside of one: the work takes milliseconds for a large model.
    """
    modules = _modules(model)
    outer = _preserved.get()
    if not again and outer and outer.issuperset(map(id, modules)):
        yield
        return
    token = _preserved.set(outer.union(map(id, modules)))
    state = [_ModuleState(module) for module in modules]
    values = _Values([value for saved in state for value in saved.values])
    generators = _Generators()
    try:
        yield
    finally:
        for saved in state:
            saved.restore()
        values.restore()
        generators.restore()
        _preserved.reset(token)


@contextmanager
def tracing(model: object) -> Iterator[None]:
    """Eval mode, gradients on for every floating-point parameter (frozen ones too), compiled models run eagerly.

    Recurrent layers on a GPU leave cuDNN, which computes their gradients in training mode only.
    """
    modules = _modules(model)
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(eager())
        stack.enter_context(without_cudnn(modules))
        stack.enter_context(_evaluating(modules))
        stack.enter_context(_unfrozen(modules))
        yield


@contextmanager
def lazily(model: object) -> Iterator[Callable[[], None]]:
    """Gives a function that enters `preserved` and `tracing` for the rest of the block, the first time it is called.

    It is called before any code of the model runs; work that runs none needs neither. Inference mode is off and
    gradients are on from the start, so that results are ordinary tensors whether it was called or not.
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
    """Eval mode without gradients; a compiled model stays compiled."""
    with torch.no_grad(), _evaluating(_modules(model)):
        yield


@contextmanager
def eager() -> Iterator[None]:
    """Run whatever `torch.compile` has wrapped as plain Python."""
    if "torch._dynamo" not in sys.modules:  # nothing can be compiled yet, and the import takes seconds
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def full_products() -> Iterator[None]:
    """Matrix products and convolutions of float32 with all their digits, not in TF32."""
    with ExitStack() as stack:
        for read, write, full in _precisions():
            before = read()
            if before != full:
                stack.callback(write, before)
                write(full)
        yield


def tf32() -> tuple[object, ...]:
    """How products and convolutions of float32 are worked out."""
    return tuple(read() for read, _, _ in _precisions())


def tf32_products() -> bool:
    """Whether matrix products of float32 on a GPU are in TF32."""
    read, _, full = _precisions()[0]
    return read() != full


def _precisions() -> list[tuple[Callable[[], Any], Callable[[Any], None], object]]:
    """For products and for convolutions: how to read the setting, how to write it, and the one that loses nothing.

    PyTorch has an older and a newer way to say it, and where one was used the other refuses to answer.
    """

    def attribute(place: Any, name: str, full: object) -> Any:
        return (lambda: getattr(place, name), lambda value: setattr(place, name, value), full)

    matmul: Any = (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")
    convolution = attribute(torch.backends.cudnn, "allow_tf32", False)
    newer: list[Any] = [torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)]
    found = []
    for way, place in zip((matmul, convolution), newer, strict=True):
        try:
            way[0]()
        except RuntimeError:
            way = attribute(place, "fp32_precision", "ieee")
        found.append(way)
    return found


@contextmanager
def without_cudnn(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Turn cuDNN off if there is a recurrent layer on a GPU among the modules."""
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
    parameters = [p for m in modules for p in m.parameters(recurse=False) if p.is_floating_point()]
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


def _modules(model: object) -> list[nn.Module]:
    """Every submodule of the model, once."""
    if isinstance(model, nn.Module):
        return list(model.modules())
    owner = getattr(model, "__self__", None)
    roots = (owner,) if isinstance(owner, nn.Module) else getattr(model, "roots", ())
    return list({id(m): m for root in roots if isinstance(root, nn.Module) for m in root.modules()}.values())


class _ModuleState:
    """What one module holds itself, its submodules left aside."""

    def __init__(self, module: nn.Module) -> None:
        held = module.__dict__
        self.module = module
        self.training = module.training
        self.held = dict(held)
        self.hooks = [
            (hooks, hooks.copy() if hooks else {}) for name in _HOOKS if (hooks := held.get(name)) is not None
        ]
        self.parameters = [
            (name, p, p.requires_grad, p.grad if p.is_leaf else None)
            for name, p in module._parameters.items()
            if p is not None
        ]
        self.buffers = dict(module._buffers.items())
        self.temporary = set(held.get("_non_persistent_buffers_set", ()))
        # a lazy module's buffer has no values yet
        self.values = [b for b in self.buffers.values() if b is not None and not is_lazy(b)]
        if held.get("max_norm") is not None:  # such an embedding scales its weights down when it is called
            self.values += [p for p in module._parameters.values() if p is not None and not is_lazy(p)]

    def restore(self) -> None:
        module, held = self.module, self.module.__dict__
        if module.training != self.training:
            module.training = self.training
        for hooks, before in self.hooks:
            if (hooks or before) and hooks != before:
                hooks.clear()
                hooks.update(before)
        changed = [name for name, value in held.items() if self.held.get(name, self) is not value]
        for name in [*changed, *(self.held.keys() - held.keys())]:
            old, new = self.held.get(name), held.get(name)
            loose = isinstance(old, Tensor) or isinstance(new, Tensor) or name == "_is_full_backward_hook"
            if loose and name not in self.held:
                del held[name]
            elif loose and new is not old:
                held[name] = old
        named = module._parameters
        for name, parameter, requires_grad, grad in self.parameters:
            if name in named and named[name] is not parameter:
                named[name] = parameter
            if parameter.is_leaf:
                if parameter.requires_grad != requires_grad:
                    parameter.requires_grad_(requires_grad)
                if parameter.grad is not grad:
                    parameter.grad = grad
        self._restore_buffers()

    def _restore_buffers(self) -> None:
        """Put the buffer objects back. A module that has made new ones keeps the book of them in plain attributes."""
        held, buffers = self.module.__dict__, self.module._buffers
        if isinstance(self.module, torch.jit.ScriptModule):  # where they cannot be replaced
            return
        if buffers.keys() == self.buffers.keys() and all(buffers[name] is b for name, b in self.buffers.items()):
            return
        buffers.clear()
        buffers.update(self.buffers)
        held["_non_persistent_buffers_set"].clear()
        held["_non_persistent_buffers_set"].update(self.temporary)
        for name in held.keys() - self.held.keys():
            del held[name]
        held.update(self.held)


class _Values:
    """The values of tensors. Those on an accelerator are copied and compared together, one wait in place of many."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.alone: list[tuple[Tensor, Tensor]] = []
        groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for tensor in tensors:
            if tensor.device.type in ("cpu", "meta") or tensor.layout != torch.strided:
                self.alone.append((tensor, tensor.detach().clone()))
            else:
                groups.setdefault((tensor.device, tensor.dtype), []).append(tensor)
        self.groups = [(members, [m.shape for m in members], _joined(members)) for members in groups.values()]

    def changed(self) -> list[tuple[Tensor, Tensor]]:
        """The tensors with other values than they had, each with those."""
        pairs = [(now, then) for now, then in self.alone if _differs(now, then)]
        for members, shapes, joined in self.groups:
            parts = joined.split([shape.numel() for shape in shapes])
            both = [(m, part.view(shape)) for m, shape, part in zip(members, shapes, parts, strict=True)]
            if any(_kind(a) != _kind(b) for a, b in both) or _differs(_joined(members), joined):
                pairs += [(a, b) for a, b in both if _differs(a, b)]
        return pairs

    def restore(self) -> None:
        """Write back the values that differ, and only those: writing would invalidate graphs that hold them."""
        pairs = self.changed()
        with torch.no_grad():
            for now, then in pairs:
                if _kind(now) != _kind(then):
                    now.data = then.clone()
                else:
                    with torch.inference_mode(now.is_inference() or torch.is_inference_mode_enabled()):
                        now.detach().copy_(then)


def _joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _differs(now: Tensor, then: Tensor) -> bool:
    if now.device.type == "meta" or _kind(now) != _kind(then) or now.layout != torch.strided:
        return now.device.type != "meta"
    return not (torch.equal(now, then) or bool(_same(now, then)))


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device


def _same(a: Tensor, b: Tensor) -> Tensor:
    """Whether all values are equal, counting NaN as equal to NaN."""
    return ((a == b) | ((a != a) & (b != b))).all()


class _Generators:
    """The state of the global random generators."""

    def __init__(self) -> None:
        self.python = random.getstate()
        self.numpy: Any = np.random.get_state()
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def drawn(self) -> bool:
        """Whether torch has drawn random numbers since, on any device."""
        now = _Generators()
        return not torch.equal(torch.cat([self.torch, *self.cuda]), torch.cat([now.torch, *now.cuda]))

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        for device, state in enumerate(self.cuda):
            torch.cuda.set_rng_state(state, device)


class Watch:
    """Tells whether work has written to a buffer of the model or a tensor that it holds as a plain attribute, or has
    drawn random numbers. To write the value that was there counts too: it may be another one the next time.
    """

    def __init__(self, model: object) -> None:
        modules = _modules(model)
        own = [value for module in modules for value in _ModuleState(module).values]
        self.tensors = own + [held for module in modules for held in vars(module).values() if isinstance(held, Tensor)]
        self.versions, self.values, self.generators = self._versions(), _Values(own), _Generators()

    def changed(self) -> bool:
        """Whether it has, or may have."""
        return self.versions != self._versions() or bool(self.values.changed()) or self.generators.drawn()

    def _versions(self) -> list[object]:
        # what inference mode made does not count writes, and is taken for another each time
        return [object() if tensor.is_inference() else tensor._version for tensor in self.tensors]
