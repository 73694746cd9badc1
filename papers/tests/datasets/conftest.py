"""Tiny files of picture sets, and no other data within reach."""

import io
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No test finds data by accident, but those that ask for it."""
    if "real" not in request.fixturenames:
        monkeypatch.setenv("NESCIO_DATA", str(tmp_path / "nowhere"))


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def grey(path: Path, array: np.ndarray) -> None:
    blob = io.BytesIO()
    np.save(blob, array)
    path.write_bytes(lzma.compress(blob.getvalue()))


def colour(path: Path, columns: list[np.ndarray], first: int = 0) -> None:
    """Each column [K, S, S, 3] becomes one lossless WebP."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, column in enumerate(columns):
            blob = io.BytesIO()
            Image.fromarray(column.reshape(-1, *column.shape[2:])).save(blob, "WEBP", lossless=True)
            archive.writestr(f"{first + number:04d}.webp", blob.getvalue())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """MNIST test (5 grey pictures) and CIFAR-10 test (7 colour pictures in two parts and three columns)."""
    grey(tmp_path / "mnist_test.npy.xz", random(5, 28, 28))
    x = random(7, 32, 32, 3)
    colour(tmp_path / "cifar10_test_0.zip", [x[:3], x[3:5]])
    colour(tmp_path / "cifar10_test_1.zip", [x[5:]], first=2)
    np.savez(tmp_path / "labels.npz", mnist_test=np.arange(5, dtype=np.uint8))
    np.savez(tmp_path / "labels_cifar10.npz", cifar10_test=np.array([9, 0, 1, 2, 3, 4, 5], np.uint8))
    return tmp_path
