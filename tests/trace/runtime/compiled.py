"""Which variants of the GPU kernels networks ask for, found without a GPU; as a program it compiles them for one.

    python -m tests.trace.runtime.compiled

Triton compiles a kernel anew for each set of types and fixed sizes, for numbers that are one or multiples of 16 where
it looks at them, and for pointers that are not aligned. A spy in a kernel's place notes these and starts nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

ROOM = "nescio.trace.runtime.kernels"
PLACES = {
    "_times": "single_pass", "_affine": "single_pass", "_patches": "single_pass", "_depthwise": "depthwise",
    "_depthwise_weight": "depthwise", "_turned": "single_pass", "_contracted": "contraction", "_paired": "contraction",
}  # fmt: skip
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}


class Spy:
    """Stands where a kernel does, and notes what Triton would have to compile."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.variants: set[tuple[Any, ...]] = set()

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self.launch

    def launch(self, *args: Any, **options: int) -> None:
        kinds = [self.kind(param, value) for param, value in zip(self.kernel.params, args, strict=True)]
        self.variants.add((*kinds, *sorted(options.items())))

    def kind(self, param: Any, value: Any) -> Any:
        if isinstance(value, Tensor):
            return TYPES[value.dtype], value.storage_offset() * value.element_size() % 16 == 0
        if param.is_constexpr:
            return "constexpr", value
        if isinstance(value, float):
            return "fp32", None
        return ("i32", None) if param.do_not_specialize else ("i32", value == 1, value % 16 == 0)


@contextmanager
def spied() -> Iterator[dict[str, Spy]]:
    """The kernels with a spy in the place of each."""
    with ExitStack() as stack:
        spies = {}
        for name, place in PLACES.items():
            module = importlib.import_module(f"{ROOM}.{place}")
            spies[name] = Spy(getattr(module, name))
            stack.enter_context(mock.patch.object(module, name, spies[name]))
        yield spies


def ask(name: str, counts: tuple[int, ...] = (3, 32), cotangents: tuple[int, ...] = (1, 7, 64)) -> None:
    """Ask the kernels for what a network of torchvision needs, for these inputs and cotangents at a time."""
    import torchvision

    room = importlib.import_module(ROOM)
    layers: dict[tuple[Any, ...], tuple[nn.Module, Tensor]] = {}

    def note(module: nn.Module, given: tuple[Any, ...], _: Any) -> None:
        x = given[0]
        if isinstance(module, nn.BatchNorm2d | nn.Conv2d):
            layers[str(module), x.shape] = module, x

    with torch.device("meta"):
        model = torchvision.models.get_model(name, weights=None).eval()
        for module in model.modules():
            module.register_forward_hook(note)
        with torch.no_grad():
            for count in counts:
                model(torch.empty(count, 3, 224, 224))
    for module, x in layers.values():
        x = x.contiguous(memory_format=torch.channels_last)
        if isinstance(module, nn.BatchNorm2d):
            values = [torch.empty(x.shape[1], device="meta") for _ in range(3)]
            for k in cotangents:
                g = torch.empty(k, *x.shape, device="meta")
                room.affine(g, x, *values, 1e-5)
                room.affine(g, x, *values, 1e-5, x)
                room.times(g, x)
        elif isinstance(module, nn.Conv2d):
            settings = module.stride, module.padding, module.dilation
            y = module(x)
            if module.groups == 1:
                norms(room, y, module.weight[0].numel(), cotangents)
            if module.groups == 1 and module.kernel_size != (1, 1):
                room.patches(x, module.kernel_size, *settings, y.shape[2:])
            elif module.groups == x.shape[1]:
                room.depthwise(x, module.weight, *settings, y.shape[2:], False)
                room.depthwise(y, module.weight, *settings, x.shape[2:], True)
                for k in cotangents:
                    room.depthwise_weight(torch.empty(k, *y.shape, device="meta"), x, module.kernel_size, *settings)


def norms(room: Any, y: Tensor, inner: int, cotangents: tuple[int, ...]) -> None:
    """Ask for what takes the norm of a matrix's gradient, as `norms.outer` does: Gram matrices, or all written down."""
    (n, o), t = y.shape[:2], y[0, 0].numel()
    for k in cotangents:
        d = torch.empty(k, n, 1, t, o, device="meta")
        if t > 1 and t * (inner + k * o) >= k * o * inner:
            room.turned(d)
        elif t > 64:
            room.contracted(d, torch.empty(n, t, t, device="meta"))


def compile_all(spies: dict[str, Spy]) -> None:
    """Compile what was asked for, for an H100 or H200."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    for spy in spies.values():
        names = spy.kernel.arg_names
        for kinds in spy.variants:
            pairs = dict(zip(names, kinds, strict=False))
            constants = {(i,): pairs[name][1] for i, name in enumerate(names) if pairs[name][0] == "constexpr"}
            source = ASTSource(spy.kernel.jitted, {name: kind[0] for name, kind in pairs.items()}, constants)
            triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(kinds[len(names) :]))


if __name__ == "__main__":
    with spied() as asked:
        ask("efficientnet_b0", cotangents=(7,))
    compile_all(asked)
