"""The structure of a model: its modules and parameters by their public names, without wrappers, and replaced.

A public name is the name that the module or parameter has once the wrappers of `torch.compile`, `DataParallel` and
`DistributedDataParallel` are taken off at every depth: ``_orig_mod.body.module.weight`` becomes ``body.weight``.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from nescio.modes import eager, without_cudnn
from nescio.modes.state import modules_of
from nescio.types import InputError, ModelError

_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def wrapped(module: nn.Module) -> nn.Module | None:
    """The module inside of a wrapper, or None where the module is no wrapper."""
    if isinstance(module, _PARALLEL):
        result: nn.Module | None = module.module
        return result
    # how a compiled module holds the original; TorchScript's modules are in a mapping without .get
    return module._modules["_orig_mod"] if "_orig_mod" in module._modules else None  # noqa: SIM401


def unwrap(module: nn.Module) -> nn.Module:
    """Return a module without the wrappers of `torch.compile` and of parallel training around it.

    Args:
        module: The module, wrapped or not.

    Returns:
        The module inside.

    Examples:
        >>> inner = torch.nn.Linear(4, 3)
        >>> unwrap(torch.nn.DataParallel(inner)) is inner
        True
    """
    while (inner := wrapped(module)) is not None:
        module = inner
    return module


def compiled_call(module: nn.Module) -> nn.Module:
    """The module to call: without parallel wrappers, which split a batch, but compiled where it was compiled."""
    call = module
    while (inner := wrapped(module)) is not None:
        if isinstance(module, _PARALLEL):
            call = inner
        module = inner
    return call


def named_modules(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Give every module once with its public name, each before its children.

    Args:
        module: The root, whose own name is "".

    Returns:
        An iterator over pairs of name and module.

    Examples:
        >>> [name for name, _ in named_modules(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 3)))]
        ['', '0', '1']
    """
    seen: set[int] = set()
    todo = [("", module)]
    while todo:
        name, current = todo.pop()
        current = unwrap(current)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield name, current
        children = [(f"{name}.{key}" if name else key, m) for key, m in current._modules.items() if m is not None]
        todo += reversed(children)


def parameter_places(module: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """Find for every parameter the modules that hold it; tied parameters have several.

    Args:
        module: The model.

    Returns:
        By public name, a list of pairs: the module, and the parameter's name there.

    Examples:
        >>> list(parameter_places(torch.nn.Linear(4, 3)))
        ['weight', 'bias']
    """
    first: dict[int, str] = {}
    places: dict[str, list[tuple[nn.Module, str]]] = {}
    for name, owner in named_modules(module):
        for key, parameter in owner._parameters.items():
            if parameter is None:
                continue
            public = first.setdefault(id(parameter), f"{name}.{key}" if name else key)
            places.setdefault(public, []).append((owner, key))
    return places


def coupled_modules(module: nn.Module) -> list[str]:
    """Find the batch-norm layers that use the statistics of the batch even in eval mode.

    With such a layer the logits of one input depend on the others of its batch, so no score of one input exists.

    Args:
        module: The model.

    Returns:
        Their public names.

    Examples:
        >>> coupled_modules(torch.nn.Sequential(torch.nn.BatchNorm1d(4, track_running_stats=False)))
        ['0']
    """

    def coupled(part: nn.Module) -> bool:
        return isinstance(part, _BatchNorm) and part.running_mean is None and part.running_var is None

    if not any(map(coupled, modules_of(module))):  # names take longer
        return []
    return [name for name, part in named_modules(module) if coupled(part)]


def refuse_coupled(module: nn.Module) -> None:
    """Raise a ModelError if inputs of one batch influence each other."""
    if names := coupled_modules(module):
        raise ModelError(
            "expected a model that treats each input of a batch on its own, got batch-norm without running statistics "
            f"in {listing(names)}; build it with track_running_stats=True and train it, or use GroupNorm or "
            "InstanceNorm in its place"
        )


def refuse_unready(module: nn.Module) -> None:
    """Raise a ModelError if the model has parameters without values."""
    named = [values for part in modules_of(module) for values in (part._parameters, part._buffers) if values]
    held = [t for values in named for t in values.values() if t is not None]
    if not (any(map(attrgetter("is_meta"), held)) or any(map(is_lazy, held))):  # names take longer
        return
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if lazy := [name for name, tensor in tensors.items() if is_lazy(tensor)]:
        raise ModelError(
            f"expected a model that is ready to run, got lazy layers without weights ({listing(lazy)}); "
            "call the model once on a batch, then load its weights"
        )
    if meta := [name for name, tensor in tensors.items() if tensor.is_meta]:
        raise ModelError(
            f"expected a model with weights, got tensors on the meta device ({listing(meta)}); "
            "make it with model.to_empty(device=...) and load its weights"
        )


@contextmanager
def replaced(module: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Replace parameters while a block lasts; the originals are back afterwards, whatever happens.

    All places of a tied parameter follow. `torch.func.functional_call` would leave the replaced tensors in the weight
    lists of recurrent layers (and on a GPU move their storage), so the swap is done here.

    Args:
        module: The model.
        values: The new values, by public names of parameters.

    Returns:
        A context manager.

    Examples:
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> with replaced(model, {"weight": torch.ones(1, 2)}):
        ...     model(torch.ones(1, 2))
        tensor([[2.]])
    """
    if isinstance(module, torch.jit.ScriptModule):
        if not values:
            yield
            return
        raise ModelError(
            "expected a Python module, got one compiled by TorchScript, whose parameters cannot be replaced; "
            "give the module that it was made from"
        )
    places = parameter_places(module)
    if unknown := [name for name in values if name not in places]:
        raise InputError(f"expected names of parameters of the model ({listing(list(places))}), got {unknown}")
    recurrent = [part for _, part in named_modules(module) if isinstance(part, nn.RNNBase)]
    originals = [(owner, key, owner._parameters[key]) for name in values for owner, key in places[name]]
    flat = [(rnn, rnn._flat_weights, rnn._flat_weight_refs) for rnn in recurrent]
    with ExitStack() as stack:
        stack.enter_context(eager())
        stack.enter_context(without_cudnn(recurrent))
        try:
            for name, value in values.items():
                for owner, key in places[name]:
                    owner._parameters[key] = value  # type: ignore[assignment]  # as functional_call does
            for rnn in recurrent:
                # through __dict__: their __setattr__ would see a new weight
                weights = [getattr(rnn, key, None) for key in rnn._flat_weights_names]
                rnn.__dict__["_flat_weights"] = weights
                rnn.__dict__["_flat_weight_refs"] = [None if w is None else weakref.ref(w) for w in weights]
            yield
        finally:
            for owner, key, original in originals:
                owner._parameters[key] = original
            for rnn, weights, references in flat:
                rnn.__dict__["_flat_weights"] = weights
                rnn.__dict__["_flat_weight_refs"] = references


def listing(names: Sequence[str], most: int = 10, quoted: bool = True) -> str:
    """The names for a message, all or the first few and how many more there are."""
    shown = ", ".join(repr(name) if quoted else name for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def layer_error(name: str | None, modules: Mapping[str, nn.Module], unnamed: str) -> ModelError:
    """Return the error for a layer that the model does not call; `unnamed` says what is wrong where none was named."""
    last = f"the last modules are: {', '.join(each for each in list(modules)[-8:] if each) or 'none'}"
    if name is None:
        return ModelError(f"{unnamed} with layer='...' ({last})")
    state = "is never called" if name in modules else "is not there"
    return ModelError(f"expected layer='{name}' to name a module that the model calls, but it {state}; {last}")
