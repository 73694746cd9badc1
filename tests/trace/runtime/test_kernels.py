"""The GPU path on a CPU: kernels against plain formulas, and the engine with them against the oracle.

Triton's interpreter must be switched on before Triton is imported, and is slow to start: one process works everything
out (`interpreted`), and the tests look at what it found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.trace.runtime.interpreted import CASES, HALVES, KERNELS

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the one process found; the workers of pytest-xdist share it."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    done, log = folder / "interpreted.json", folder / "interpreted.log"
    try:
        (folder / "interpreted").mkdir()
    except FileExistsError:
        start = time.monotonic()
        while not log.exists() and time.monotonic() - start < 300:
            time.sleep(0.2)
    else:
        command = [sys.executable, "-m", "tests.trace.runtime.interpreted", f"{done}.part"]
        env = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        if ran.returncode == 0:
            os.replace(f"{done}.part", done)
        log.write_text(ran.stderr, encoding="utf-8")
    if not done.exists():
        pytest.fail(f"the interpreter's process ended without a result:\n{log.read_text() if log.exists() else ''}")
    result: dict[str, Any] = json.loads(done.read_text())
    if "missing" in result:
        pytest.skip(f"{result['missing']} (it comes with PyTorch's CUDA builds)")
    return result


def found(entry: dict[str, Any]) -> Any:
    if "failed" in entry:
        pytest.fail(entry["failed"], pytrace=False)
    return entry["found"]


def tolerance(name: str) -> float:
    return 2e-2 if "float16" in name else 1e-5  # bfloat16 keeps 8 bits


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_its_formula(results: dict[str, Any], name: str) -> None:
    assert found(results["kernels"][name]) < tolerance(name)


@pytest.mark.parametrize("name", CASES)
def test_the_engine_agrees_with_the_oracle(results: dict[str, Any], name: str) -> None:
    entry = found(results["models"][name])
    assert entry["layers"]
    assert entry["error"] < 1e-4


@pytest.mark.parametrize("name", CASES)
def test_every_parameter_is_on_the_fast_path(results: dict[str, Any], name: str) -> None:
    """Else the general path would hide a kernel that is wrong."""
    assert found(results["models"][name])["slow"] == sorted(CASES[name].slow)


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_that_should_run_do_and_no_other(results: dict[str, Any], name: str) -> None:
    calls = found(results["models"][name])["calls"]
    ran = {kernel for kernel, count in calls.items() if count}
    assert ran - {"patches"} == CASES[name].uses - {"patches"}  # which pictures with channels last bring with them
    assert CASES[name].uses <= ran


@pytest.mark.parametrize("name", CASES)
def test_the_model_and_the_inputs_are_untouched(results: dict[str, Any], name: str) -> None:
    assert found(results["models"][name])["changed"] == []


@pytest.mark.parametrize("name", HALVES)
def test_half_precision_keeps_the_order(results: dict[str, Any], name: str) -> None:
    entry = found(results["halves"][name])
    assert entry["finite"]
    assert entry["rank"] > 0.99
    assert entry["slow"] == []


def test_each_norm_reads_its_gradient_once(results: dict[str, Any]) -> None:
    """The rule's pass makes the data gradient too, and the backward pass takes it."""
    calls = {name: found(results["models"][name])["repeated"] for name in ("short", "encoder")}
    ran = {name: {kernel: times for kernel, times in each.items() if times} for name, each in calls.items()}
    assert ran["short"] == {"times": 1, "affine": 2, "patches": 2}
    assert ran["encoder"] == {"times": 1, "layer_norm": 2, "attention": 1}


def test_an_activation_adds_the_gradients_of_a_skip_up_by_itself(results: dict[str, Any]) -> None:
    """The last block's has one gradient, the others two."""
    assert found(results["forked"]) == [3, 2]


def test_a_rectifier_keeps_its_value_and_sees_when_a_model_writes_into_it(results: dict[str, Any]) -> None:
    """As PyTorch's own does: its derivative would take as much memory again."""
    assert found(results["rectified"]) == {"plain": True, "in place": True, "norm": True, "both": True}


def test_a_convolution_by_channel_is_computed_once_each_way(results: dict[str, Any]) -> None:
    """Forward, and back for all cotangents together."""
    assert found(results["models"]["separable, channels last"])["repeated"]["depthwise"] == 2


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_a_gradient_left_behind_is_not_taken_for_another(results: dict[str, Any], norm: str) -> None:
    entry = found(results["stale"])[norm]
    assert entry["error"] < 1e-6
    assert entry["taken"] and not entry["left"]
