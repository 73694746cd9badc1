"""What somebody needs to know about a run: the state of the sources, the machine, the versions."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from nescio import __version__

COMMIT = "NESCIO_COMMIT"


def git_state() -> dict[str, Any] | None:
    """Return the commit of the sources and whether they were changed since; None where they are in no repository.

    A copy without its history is told its commit by the environment variable NESCIO_COMMIT.
    """
    if told := os.environ.get(COMMIT):
        return {"commit": told, "dirty": False}
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changed)}


def machine(device: str) -> dict[str, Any]:
    """Return the device and the machine around it."""
    kind = torch.device(device)
    name = torch.cuda.get_device_name(kind) if kind.type == "cuda" else _processor()
    return {"device": device, "name": name, "cores": os.cpu_count(), "platform": platform.platform()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that take part."""
    numbers = {"nescio": __version__, "python": platform.python_version()}
    for package in ("torch", "numpy", "scikit-learn", "torchvision"):
        with suppress(PackageNotFoundError):
            numbers[package] = version(package)
    return numbers


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
