"""Kernels are compiled ahead: those that a pass will ask for, in threads, and a launch waits for them."""

from __future__ import annotations

import importlib
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio.trace.backward.substitutes import folding
from nescio.trace.backward.substitutes.attention import Attention, Packed
from nescio.trace.backward.substitutes.layer_norm import DataLayerNorm
from nescio.trace.backward.substitutes.pointwise import Pointwise
from nescio.trace.probe import kernels_ahead
from nescio.trace.probe.graph import Graph

pytest.importorskip("triton")
ROOM = "nescio.trace.runtime.kernels"
CPU = torch.device("cpu")
room = importlib.import_module(ROOM)
ahead = room.ahead


class Told:
    """In the place of what compiles: keeps which kernels it was told of."""

    def __init__(self) -> None:
        self.noted, self.kernels = ahead.noted, list[str]()

    def compile_all(self, launches: dict[Any, Any], device: torch.device) -> None:
        self.kernels += [launch[0].jitted.__name__ for launch in launches.values()]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()
    monkeypatch.setattr(kernels_ahead, "compiler", lambda device: found)
    monkeypatch.setattr(importlib.import_module(f"{ROOM}.attention_kernel"), "_roomy", lambda device: True)
    return found


def pictures() -> Tensor:
    """What a convolution, one by channel, a batch norm and an activation leave in the graph."""
    wide, deep, norm = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, groups=16), nn.BatchNorm2d(16).eval()
    with folding():
        y = norm(deep(wide(torch.randn(3, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_())))
    return Pointwise.apply(y, y.detach().relu(), (y.detach() > 0).float(), False).mean((2, 3))


def words() -> Tensor:
    """Layer norm, projections, and attention in both forms."""
    x = torch.randn(3, 80, 16, requires_grad=True)
    y = DataLayerNorm.apply(x, torch.ones(16), torch.zeros(16), 1e-5)[0]
    y = Packed.apply(F.linear(y, torch.randn(48, 16, requires_grad=True)), 2, True)
    q = y.unflatten(2, (2, 8)).transpose(1, 2)
    return Attention.apply(q, q, q, 0.3).flatten(1)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (pictures, {"_patches", "_turned", "_depthwise", "_depthwise_weight", "_affine", "_times"}),
        (words, {"_layer_norm", "_turned", "_attention"}),
    ],
)
def test_a_graph_tells_which_kernels_its_backward_pass_will_ask_for(make: Any, wanted: set[str], told: Told) -> None:
    kernels_ahead.prepare(Graph(make(), {}), 3, CPU)
    assert set(told.kernels) == wanted


def test_convolutions_by_channel_are_known_before_there_is_a_graph(told: Told) -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 24, 1))
    kernels_ahead.prepare_forward(model, CPU)
    assert told.kernels == ["_depthwise"]


def test_batch_norms_are_known_before_there_is_a_graph(told: Told) -> None:
    """But one without statistics, which looks at the batch."""
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False))
    kernels_ahead.prepare_forward(model, CPU)
    assert set(told.kernels) == {"_channel_map"}
    told.kernels.clear()
    kernels_ahead.prepare_forward(nn.BatchNorm2d(3, track_running_stats=False), CPU)
    assert not told.kernels


def test_nothing_is_compiled_for_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "compile_all", lambda *_: pytest.fail("compiled"))
    kernels_ahead.prepare(Graph(pictures(), {}), 3, CPU)


def test_an_operation_in_an_unusual_form_breaks_nothing(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "affine", lambda *_: 1 / 0)
    kernels_ahead.prepare(Graph(pictures(), {}), 3, CPU)
    assert "_times" in told.kernels


class Slow:
    """A kernel of Triton's that takes its time to be compiled, and cannot be launched before it is."""

    params = (SimpleNamespace(is_constexpr=False, do_not_specialize=False),) * 2

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.compiled, self.launched = fails, list[str](), 0

    def warmup(self, *args: Any, grid: Any, **options: Any) -> Any:
        time.sleep(0.05)
        if self.fails:
            raise RuntimeError
        self.compiled.append(threading.current_thread().name)
        return SimpleNamespace(run=None)

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **options: Any) -> None:
            assert self.compiled or self.fails
            self.launched += 1

        return launch


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())


def test_what_is_noted_is_compiled_once_in_a_thread_and_a_launch_waits_for_it() -> None:
    slow = Slow()
    kernel, device = ahead.Kernel(slow), torch.device("cuda", 0)
    for _ in range(2):
        with ahead.noted() as found:
            kernel[(1,)](torch.empty(4, device="meta"), 32)
            kernel[(9,)](torch.empty(8, device="meta"), 64)  # the same variant
            kernel[(9,)](torch.empty(8, device="meta"), 1)
        assert len(found) == 2 and not slow.launched
        ahead.compile_all(found, device)
    kernel[(1,)](torch.empty(4), 32)
    assert slow.launched == 1 and len(slow.compiled) == 2
    assert all(name.startswith("nescio-kernels") for name in slow.compiled)


def test_a_kernel_that_cannot_be_compiled_ahead_is_left_to_its_launch() -> None:
    slow = Slow(fails=True)
    kernel = ahead.Kernel(slow)
    with ahead.noted() as found:
        kernel[(1,)](torch.empty(4, device="meta"), 32)
    ahead.compile_all(found, torch.device("cuda", 0))
    ahead.finish()
    kernel[(1,)](torch.empty(4), 32)
    assert slow.launched == 1


def test_other_threads_launch_while_one_notes() -> None:
    slow = Slow()
    slow.compiled.append("before")
    kernel = ahead.Kernel(slow)
    with ahead.noted():
        other = threading.Thread(target=lambda: kernel[(1,)](torch.empty(4), 32))
        other.start()
        other.join()
    assert slow.launched == 1


def test_what_takes_long_is_begun_first(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(ahead, "_submit", lambda work, device, jitted, *launch: begun.append(jitted.src))
    with ahead.noted() as found:
        for source in ("short", "the longest of them", "a longer one"):
            slow = Slow()
            slow.src = source  # type: ignore[attr-defined]
            ahead.Kernel(slow)[(1,)](torch.empty(4, device="meta"), 32)
    ahead.compile_all(found, torch.device("cuda", 0))
    assert begun == ["the longest of them", "a longer one", "short"]
