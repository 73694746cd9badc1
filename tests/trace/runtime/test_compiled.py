"""A GPU kernel is compiled a few times for all networks, and in one process only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trace.runtime.compiled import ask, spied

pytest.importorskip("triton")
pytest.importorskip("torchvision")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["efficientnet_b0", "resnet50", "convnext_tiny", "mobilenet_v2"])
@pytest.mark.filterwarnings("ignore")
def test_a_network_asks_for_few_variants_of_a_kernel(name: str) -> None:
    """Whatever the number of inputs and cotangents: those of the first look are those of the work."""
    with spied() as spies:
        ask(name)
    found = {kernel: len(spy.variants) for kernel, spy in spies.items()}
    assert any(found.values())
    most = {
        "_times": 1, "_affine": 4, "_patches": 2, "_depthwise": 2, "_depthwise_weight": 2, "_turned": 2,
        "_contracted": 1, "_paired": 1,
    }  # fmt: skip
    assert {kernel for kernel, count in found.items() if count > most[kernel]} == set(), found


@pytest.mark.slow
def test_a_second_process_has_nothing_to_compile(tmp_path: Path) -> None:
    env = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    env.pop("TRITON_INTERPRET", None)
    kept = []
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.trace.runtime.compiled"], cwd=ROOT, env=env, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        kept.append({path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()})
    assert any(path.suffix == ".cubin" for path in kept[0])
    assert kept[0] == kept[1]
