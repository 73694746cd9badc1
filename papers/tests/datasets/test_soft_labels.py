"""Labels by several people, from a file made here."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nescio.types import InputError
from nescio_papers.datasets import soft_labels


class TestSoftLabels:
    def write(self, folder: Path, counts: np.ndarray) -> None:
        np.savez_compressed(folder / "cifar10h.npz", counts=counts)

    def test_shares(self, tmp_path: Path) -> None:
        counts = np.ones((10000, 10), np.uint8)
        counts[0] = [0, 3, 1, 0, 0, 0, 0, 0, 0, 0]
        self.write(tmp_path, counts)
        got = soft_labels("cifar10h", root=tmp_path)
        assert got.dtype == torch.float64
        assert got.shape == (10000, 10)
        assert got[0].tolist() == [0, 0.75, 0.25, 0, 0, 0, 0, 0, 0, 0]
        assert (got.sum(1) - 1).abs().max() < 1e-15

    def test_errors(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"cifar10h\.npz.*NESCIO_DATA"):
            soft_labels(root=tmp_path)
        with pytest.raises(InputError, match="expected one of cifar10h"):
            soft_labels("cifar100h")
        self.write(tmp_path, np.ones((9999, 10)))
        with pytest.raises(InputError, match=r"\[10000, 10\].*\[9999, 10\]"):
            soft_labels(root=tmp_path)
        for place, bad in (((7,), 0), ((7, 3), -1), ((7, 3), np.nan)):
            counts = np.ones((10000, 10))
            counts[place] = bad
            self.write(tmp_path, counts)
            with pytest.raises(InputError, match="none negative, and one or more"):
                soft_labels(root=tmp_path)
