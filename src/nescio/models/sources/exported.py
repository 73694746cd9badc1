"""``FILE.pt2``: a program of torch.export, with its weights inside, as a module whose gradients can be taken.

A program is made for a fixed number of inputs at once unless its batch was marked as dynamic: then the inputs go
through it in parts of that number, the last one filled up with copies.

An archive is a program, and opening it can execute code: by pickles of weights, constants and sample inputs, by
expressions that torch evaluates, by the functions and operators that its graph names (some of which write files). What
torch reads out of it differs from one version to the next, and from what other readers of archives see. So no look
from outside can tell a harmless one, and every archive needs `trust_pickle`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nescio._common.formatting import count
from nescio.models.sources.base import Opened
from nescio.models.sources.heads import Weights, size
from nescio.models.weights import fill, read_weights
from nescio.types import InputError, ModelError


class Exported(nn.Module):
    """A program that takes any number of inputs; batch: how many it takes at once, None for any number."""

    def __init__(self, program: nn.Module, batch: int | None) -> None:
        super().__init__()
        self.program, self.batch = program, batch

    def forward(self, *tensors: Tensor, **named: Tensor) -> Any:
        """Logits of a batch."""
        if self.batch is None:
            return self.program(*tensors, **named)
        count = len(next(iter((*tensors, *named.values()))))
        parts = []
        for start in range(0, count, self.batch):
            rows = slice(start, start + self.batch)
            output = self.program(
                *(self._filled(value[rows]) for value in tensors),
                **{name: self._filled(value[rows]) for name, value in named.items()},
            )
            parts.append(_logits(output))
        return torch.cat(parts)[:count]

    def _filled(self, part: Tensor) -> Tensor:
        missing = (self.batch or 0) - len(part)
        return part if missing == 0 else torch.cat([part, part[-1:].expand(missing, *part.shape[1:])])


def find(name: str, weights: Weights | None, trust_pickle: bool) -> Opened:
    """The program in that file."""
    file = Path(name)
    if not file.is_file():
        raise InputError(f"expected an archive of torch.export at {name}, but there is none (seen from {Path.cwd()})")
    if not trust_pickle:
        raise ModelError(
            f"expected trust_pickle=True (--trust-pickle) to open {name}: an archive of torch.export can execute any "
            "code that is in it. Say so only if you trust where the file comes from; otherwise load its weights into "
            "a model that you build (package.module:factory with --weights)"
        )
    try:
        program = torch.export.load(file)
    except Exception as error:  # a damaged file can raise anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(
            f"expected an archive of torch.export in {name}, but it cannot be read ({reason}); export it again with "
            f"this torch ({torch.__version__}): torch.export.save(torch.export.export(model, (x,)), file)"
        ) from error
    _check_mode(program, name)
    batch = _batch(program, name)
    module = Exported(_with_layers(program.module()), batch)
    if weights is not None:
        fill(module.program, read_weights(weights, trust_pickle=trust_pickle), str(weights))
    how = "any number of inputs at once"
    if batch is not None:
        how = f"{count(batch, 'input')} at once (methods that read features need any number)"
    return Opened(module, f"{file.name}, exported for {how}, {size(module)}")


def _with_layers(program: Any) -> Any:
    """The program with its linear layers as modules again, for the methods that look for the last of them.

    In a program they are calls of an operator on the weights; the weights stay the same, and keep their names.
    """
    for node in program.graph.nodes:
        if node.target is not torch.ops.aten.linear.default or len(node.args) < 2:
            continue
        operands = (*node.args[1:], node.kwargs.get("bias"))  # programs of older versions name it
        held = [argument for argument in operands if argument is not None]
        owner = str(held[0].target).rpartition(".")[0]
        names = [f"{owner}.weight", f"{owner}.bias"][: len(held)]
        if not owner or [argument.target for argument in held] != names or any(a.op != "get_attr" for a in held):
            continue
        there = program.get_submodule(owner)
        if isinstance(there, nn.Linear) or sorted(there._parameters) != sorted(
            name.rpartition(".")[2] for name in names
        ):
            continue
        outputs, inputs = there.weight.shape
        layer = nn.Linear(inputs, outputs, bias=len(held) == 2, device="meta")
        for name, parameter in there._parameters.items():
            layer.register_parameter(name, parameter)
        layer.train(there.training)
        program.set_submodule(owner, layer)
        with program.graph.inserting_before(node):
            called = program.graph.call_module(owner, (node.args[0],))
        called.meta = dict(node.meta)
        node.replace_all_uses_with(called)
        program.graph.erase_node(node)
    program.recompile()
    return program


def _logits(output: Any) -> Tensor:
    while not isinstance(output, Tensor):
        output = next(iter(output.values())) if isinstance(output, dict) else output[0]
    return output


def _batch(program: Any, name: str) -> int | None:
    """How many inputs it takes at once; None for any number."""
    inputs = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    tensors = [node.meta["val"] for node in nodes if isinstance(node.meta.get("val"), Tensor)]
    if not tensors or any(value.ndim == 0 for value in tensors):
        raise ModelError(f"expected a program of a batch of inputs [N, ...] in {name}, got one of other inputs")
    lengths = {value.shape[0] for value in tensors if isinstance(value.shape[0], int)}
    if len(lengths) > 1:
        raise ModelError(f"expected inputs with one first dimension in {name}, got {sorted(lengths)}")
    return int(lengths.pop()) if lengths else None


def _check_mode(program: Any, name: str) -> None:
    """Raise for a program of a model in training mode, which draws at random and mixes its inputs."""
    place = {"aten::dropout": 2, "aten::batch_norm": 5, "aten::native_dropout": 2}
    for node in program.graph.nodes:
        where = place.get(getattr(getattr(node.target, "_schema", None), "name", ""))
        if where is not None and len(node.args) > where and node.args[where] is True:
            raise ModelError(
                f"expected a program for evaluation in {name}, got one with {node.name} in training mode; "
                "export it again: torch.export.export(model.eval(), ...)"
            )
