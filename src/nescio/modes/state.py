"""What a model and the random generators are at a moment: to be put back, or to tell whether work has changed it."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_NONE: Mapping[Any, Any] = MappingProxyType({})


def modules_of(model: object) -> list[nn.Module]:
    """Every submodule of the model, once, by its depth; in a fifth of the time of ``model.modules()``."""
    owner = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    roots = (owner,) if isinstance(owner, nn.Module) else getattr(model, "roots", ())
    by_id: dict[int, nn.Module] = {}
    level = [root for root in roots if isinstance(root, nn.Module)]
    while level:
        by_id.update(zip(map(id, level), level, strict=True))
        inside = [module._modules.values() for module in level if module._modules]
        level = [m for children in inside for m in children if m is not None and id(m) not in by_id]
    return list(by_id.values())


class ModuleState:
    """What one module holds itself, its submodules left aside.

    A network has hundreds of modules, most of which hold next to nothing: for what is empty no container is made, since
    each new one brings Python's garbage collector nearer to looking through everything there is.
    """

    __slots__ = ("buffers", "held", "hooks", "module", "parameters", "temporary", "training", "values")

    def __init__(self, module: nn.Module) -> None:
        held = module.__dict__
        self.module = module
        self.training = module.training
        self.held = dict(held)
        self.hooks: Mapping[str, Mapping[int, Any]] = _NONE
        for name in _HOOKS:
            if hooks := held.get(name):
                self.hooks = {**self.hooks, name: hooks.copy()}
        self.parameters: Sequence[tuple[str, nn.Parameter, bool, Tensor | None, Tensor | None]] = ()
        if named := module._parameters:
            self.parameters = [
                (name, p, p.requires_grad, p.grad if p.is_leaf else None, None if is_lazy(p) else p.data)
                for name, p in named.items()
                if p is not None
            ]
        self.buffers: Mapping[str, Tensor | None] = dict(module._buffers.items()) if module._buffers else _NONE
        temporary = held.get("_non_persistent_buffers_set")
        self.temporary: Collection[str] = set(temporary) if temporary else ()
        self.values: Sequence[Tensor] = ()
        if self.buffers:  # a lazy module's buffer has no values yet
            self.values = [b for b in self.buffers.values() if b is not None and not is_lazy(b)]
        if held.get("max_norm") is not None:  # such an embedding scales its weights down when it is called
            self.values = [*self.values, *(p for p in named.values() if p is not None and not is_lazy(p))]

    def restore(self) -> None:
        module, held = self.module, self.module.__dict__
        if module.training != self.training:
            module.training = self.training
        for name in _HOOKS:
            hooks, before = held.get(name), self.hooks.get(name, _NONE)
            if hooks is not None and (hooks or before) and hooks != before:
                hooks.clear()
                hooks.update(before)
        key = "_is_full_backward_hook"
        if held.get(key) is not self.held.get(key):
            held[key] = self.held[key]
        named = module._parameters
        for name, parameter, requires_grad, grad, data in self.parameters:
            if name in named and named[name] is not parameter:
                named[name] = parameter
            if data is not None and not _shares(parameter, data):  # a forward that sets weight.data
                parameter.data = data
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


def _shares(a: Tensor, b: Tensor) -> bool:
    if a.layout != torch.strided or b.layout != torch.strided:
        return True
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()


class Values:
    """The values of tensors. Those on an accelerator are copied and compared together, one wait in place of many."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.alone: list[tuple[Tensor, Tensor]] = []
        groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for tensor in tensors:
            if tensor.device.type in ("cpu", "meta") or tensor.layout != torch.strided:
                self.alone.append((tensor, tensor.detach().clone()))
            else:
                groups.setdefault((tensor.device, tensor.dtype), []).append(tensor)
        self.groups = [(members, list(map(_kind, members)), _joined(members)) for members in groups.values()]

    def changed(self) -> list[tuple[Tensor, Tensor]]:
        """The tensors with other values than they had, each with those."""
        same = [list(map(_kind, now)) == kinds and _same(_joined(now), then) for now, kinds, then in self.groups]
        pairs = [(now, then) for now, then in self.alone if _differs(now, then)]
        for (members, kinds, joined), alike in zip(self.groups, same, strict=True):
            if bool(alike):  # here an accelerator is waited for: all that it has to compare is with it already
                continue
            parts = joined.split([shape.numel() for shape, *_ in kinds])
            both = [(m, part.view(shape)) for m, (shape, *_), part in zip(members, kinds, parts, strict=True)]
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


class Generators:
    """The state of the global random generators."""

    def __init__(self) -> None:
        self.python = random.getstate()
        self.numpy: Any = np.random.get_state()
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def drawn(self) -> bool:
        """Whether torch has drawn random numbers since, on any device."""
        now = Generators()
        return not torch.equal(torch.cat([self.torch, *self.cuda]), torch.cat([now.torch, *now.cuda]))

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        for device, state in enumerate(self.cuda):
            torch.cuda.set_rng_state(state, device)


class Watch:
    """Tell whether work has changed the state of a model, or has drawn random numbers.

    The state is the model's buffers and the tensors that it holds as plain attributes. A write of the value that was
    there counts too: it may be another value the next time.

    Args:
        model: A module, or anything with `roots`, the modules whose state matters.

    Examples:
        >>> model = torch.nn.BatchNorm1d(3)
        >>> watch = Watch(model)
        >>> _ = model(torch.ones(2, 3))  # in training mode, which updates the running mean
        >>> watch.changed()
        True
    """

    def __init__(self, model: object) -> None:
        modules = modules_of(model)
        own = [value for module in modules for value in ModuleState(module).values]
        self.tensors = own + [held for module in modules for held in vars(module).values() if isinstance(held, Tensor)]
        self.versions, self.values, self.generators = self._versions(), Values(own), Generators()

    def changed(self) -> bool:
        """Return whether the work has done so, or may have."""
        return self.versions != self._versions() or bool(self.values.changed()) or self.generators.drawn()

    def _versions(self) -> list[object]:
        # what inference mode made does not count writes, and is taken for another each time
        return [object() if tensor.is_inference() else tensor._version for tensor in self.tensors]
