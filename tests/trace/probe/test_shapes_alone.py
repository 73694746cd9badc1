"""Shapes and types of operations without memory are those of the operations, and nothing heavy is loaded for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nescio.trace.probe.shapes_alone import ShapesAlone

HEAVY = ("torch.fx.experimental.symbolic_shapes", "torch._dynamo")
OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": lambda a, b: torch.bmm(a, b.mT),
    "pointwise product": lambda a, b: a * b[:, :1],
    "a number": lambda a, b: 2 * a + 1,
    "more dimensions": lambda a, b: a[0] * b,
    "several types": lambda a, b: a * b.double(),
    "sum": lambda a, b: a.sum(),
    "sum of one": lambda a, b: a.sum(1),
    "sum of some": lambda a, b: torch.sum(a, (0, -1)),
    "sum in another type": lambda a, b: a.sum(-1, dtype=torch.float64),
    "sum that keeps": lambda a, b: a.sum(1, keepdim=True),
    "norm": lambda a, b: torch.linalg.vector_norm(a, dim=-1, dtype=torch.float64).square(),
    "norm of all": lambda a, b: torch.linalg.vector_norm(a),
    "clamp": lambda a, b: a.clamp(min=0).abs(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_they_are_those_of_the_operation(name: str) -> None:
    a, b = torch.randn(4, 3, 5), torch.randn(4, 3, 5)
    wanted = OPERATIONS[name](a, b)
    with ShapesAlone():
        found = OPERATIONS[name](a.to("meta"), b.to("meta"))
        same = OPERATIONS[name](a, b)
    assert found.is_meta and (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert torch.equal(same, wanted)  # what has memory is computed


PREPARED = f"""
import importlib, sys
import torch.utils.checkpoint
from torch import nn
print([name in sys.modules for name in {HEAVY}])
from nescio.trace.backward.substitutes import folding
from nescio.trace.probe import kernels_ahead
from nescio.trace.probe.graph import Graph
class Told:
    noted = importlib.import_module("nescio.trace.runtime.kernels").ahead.noted
    def compile_all(self, launches, device):
        print(len(launches))
kernels_ahead.compiler = lambda device: Told
Told.compile_all = classmethod(Told.compile_all)
Told.noted = staticmethod(Told.noted)
layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 16, 3, groups=16), nn.BatchNorm2d(16),
          nn.Conv2d(16, 64, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100)]
model = nn.Sequential(*layers).eval()
x = torch.randn(3, 3, 32, 32).to(memory_format=torch.channels_last).requires_grad_()
kernels_ahead.prepare_forward(model, x.device)
with folding():
    logits = model(x)
kernels_ahead.prepare(Graph(logits, dict(model.named_parameters()), (x,)), 3, x.device)
print([name in sys.modules for name in {HEAVY}])
"""


def test_kernels_are_foreseen_without_the_compiler_of_pytorch() -> None:
    pytest.importorskip("triton")
    done = subprocess.run([sys.executable, "-c", PREPARED], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    before, forward, backward, after = done.stdout.splitlines()
    assert int(forward) > 0 and int(backward) > 3
    if "True" in before:
        pytest.skip("this PyTorch loads it by itself")
    assert after == "[False, False]"
