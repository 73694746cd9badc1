"""The table chunk by chunk. When memory runs out: fewer inputs, fewer cotangents, copies in parts, the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import modes, trace
from nescio._common import memory
from nescio.models import Classifier
from nescio.trace.backward import pull as backward
from nescio.trace.backward.cotangents import blocks
from nescio.trace.estimate import entries
from nescio.trace.estimate.entries import Settings, split_norms
from nescio.trace.probe.layers import find_layers
from nescio.trace.probe.passes import forward
from nescio.types import ModelError, NormSettings
from tests.trace.helpers import SMOOTH, close, identical, ready, state
from tests.trace.subjects import make

ERRORS = {
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    "cpu": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes"),
    "python": MemoryError(),
}
ROWS = ("classes", "uniform", "expected")


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Counts how often memory was given back; to collect all garbage takes long where much is loaded."""
    done: list[None] = []
    monkeypatch.setattr(memory.gc, "collect", lambda: done.append(None))
    return done


class Narrow(nn.Module):
    """Runs out of memory for more than ``most`` inputs at a time."""

    def __init__(self, most: int, error: BaseException) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 4)
        self.raw = nn.Parameter(torch.randn(5, 5))
        self.most, self.error, self.sizes = most, error, [0]

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        if len(x) > self.most:
            raise self.error
        return self.head(torch.tanh(self.norm(self.first(x))) @ torch.sin(self.raw))


def narrow(most: int, kind: str = "cuda") -> Narrow:
    torch.manual_seed(0)
    model = ready(Narrow(most, ERRORS[kind]))
    assert isinstance(model, Narrow)
    return model


def inputs(n: int = 9) -> Tensor:
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("most", [1, 2, 3, 4, 7])
def test_chunks_are_halved(most: int, kind: str, released: list[None]) -> None:
    wanted = trace.class_gradients(narrow(99), inputs(), chunk=8)
    model = narrow(most, kind)
    before = state(model)
    found = trace.class_gradients(model, inputs(), chunk=8)
    close(found.norms, wanted.norms)
    torch.testing.assert_close(found.probabilities, wanted.probabilities)
    assert identical(before, state(model))
    assert max(model.sizes) > most
    assert released


def test_work_that_is_done_is_not_done_again() -> None:
    """Chunks of 8, 4, 2: the sizes that are tried once the model is known."""
    model = narrow(3)
    trace.class_gradients(model, inputs(9), chunk=8)
    model.sizes.clear()
    trace.class_gradients(model, inputs(9), chunk=8)
    tried = [s for s in model.sizes if s > 1]
    assert tried.count(8) == 1
    assert tried.count(4) == 1
    assert tried.count(2) == 4  # four chunks of two before the last input; the first is the survey itself


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_cotangents_are_taken_in_smaller_blocks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = trace.class_gradients(narrow(99), inputs(2))
    plain, sizes = backward.pull, []

    def pull(logits: Tensor, wanted: Any, vectors: Tensor, *rest: Any, **named: Any) -> Any:
        sizes.append(len(vectors))
        if len(vectors) > 1:
            raise ERRORS[kind]
        return plain(logits, wanted, vectors, *rest, **named)

    monkeypatch.setattr(backward, "pull", pull)
    close(trace.class_gradients(narrow(99), inputs(2)).norms, wanted.norms)
    assert [s for s in sizes if s > 1] == [4, 4, 2]  # two inputs, one input, one input with half of the classes


@pytest.mark.parametrize("smoothing, norm, most", [("log", 2, 1), ("mean", 1, 2), ("log", 1, 3), ("mean", 2, 3)])
def test_copies_in_parts_are_the_same_as_together(smoothing: str, norm: int, most: int) -> None:
    settings: dict[str, Any] = {"norm": norm, "smoothing": smoothing, **SMOOTH, "samples": 4}
    for pairs in (False, True):
        request = NormSettings("classes", pairs=pairs, **settings)
        wanted = trace.gradient_norms(Classifier.of(narrow(99)), inputs(3), request, rows=ROWS)
        model = narrow(most)
        found = trace.gradient_norms(Classifier.of(model), inputs(3), request, rows=ROWS)
        for row in ROWS:
            close(found[row].norms, wanted[row].norms)
            torch.testing.assert_close(found[row].probabilities, wanted[row].probabilities)
    assert max(s for s in model.sizes if s <= most) == most


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["cnn", "tied", "lstm", "raw"])
def test_split_norms_on_every_kind_of_row(name: str, parts: int) -> None:
    model, x = make(name)
    classifier = Classifier.of(model)
    wanted = trace.gradient_norms(classifier, x[:1].repeat(5, *[1] * (x.dim() - 1)), rows=ROWS)
    settings = Settings(ROWS, 2, 5, "log", parts=parts)
    assert [len(range(5)[p]) for p in settings.pieces] == {1: [5], 2: [3, 2], 3: [2, 2, 1], 5: [1] * 5}[parts]
    five = x[:1].repeat(5, *[1] * (x.dim() - 1))
    with modes.preserved(classifier), modes.tracing(classifier):
        run = forward(classifier, five)
        table = find_layers(run.graph, classifier.parameters(), "module", None)
        found = {
            row: split_norms(classifier, five, table, settings, blocks(row, run.logits.detach(), 5, "log"))
            for row in ("classes", "uniform")
        }
    for row in found:  # five equal copies have the mean gradient of one
        close(found[row].transpose(0, 1), wanted[row].norms[:1])


@pytest.mark.parametrize("kind", ERRORS)
def test_a_model_that_is_too_large(kind: str) -> None:
    model = narrow(0, kind)
    before = state(model)
    for settings in ({}, SMOOTH):
        with pytest.raises(ModelError, match="not enough memory for a single input and a single class; use") as caught:
            trace.class_gradients(model, inputs(), **settings)
        assert caught.value.__cause__ is ERRORS[kind]
    assert identical(before, state(model))


def test_other_errors_are_not_taken_for_it() -> None:
    class Broken(Narrow):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        trace.class_gradients(Broken(9, ERRORS["cpu"]), inputs())


def test_as_many_cotangents_at_once_as_take_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    wide = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 4, 3, padding=1), nn.ReLU()]
    narrow = [part for _ in range(12) for part in (nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 300)]
    model = nn.Sequential(*wide, *narrow, *head).double().eval()
    x = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    exact = trace.class_gradients(model, x).norms
    blocks: list[tuple[int, int]] = []
    plain = entries.visit

    def visit(logits: Tensor, nodes: Any, lowest: Any, vectors: Tensor, read: Any) -> None:
        blocks.append((len(nodes), len(vectors)))
        plain(logits, nodes, lowest, vectors, read)

    monkeypatch.setattr(entries, "visit", visit)
    found = trace.class_gradients(model, x, classes=40, memory_gb=2e-3)
    deep = max(blocks)[1]  # of the rows through all layers
    assert max(rows for _, rows in blocks) == 8 * deep  # the first layer's output is eight times as large as the others
    assert (found.norms[:, :, -1] / exact[:, :, -1] - 1).abs().max() < 1e-9
    plenty = trace.class_gradients(model, x, classes=40)
    torch.testing.assert_close(found.norms, plenty.norms, rtol=1e-9, atol=1e-12)
