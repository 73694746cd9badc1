"""SHE by hand: patterns of what is classified rightly, and classes without any."""

import pytest
import torch

from nescio import scores
from nescio.types import InputError

H = torch.tensor([[1.0, 0.0], [3.0, 2.0], [100.0, 100.0], [0.0, 4.0]], dtype=torch.float64)
Z = torch.tensor([[9.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [9.0, 0.0, 0.0]], dtype=torch.float64)
Y = torch.tensor([0, 0, 0, 1])  # the third is classified wrongly, and so is the only one of class 1
NEW = torch.tensor([[1.0, 2.0], [5.0, 1.0], [7.0, 7.0]], dtype=torch.float64)


def test_by_hand() -> None:
    """Class 0 has the pattern (2, 1), class 1 that of its one input, (0, 4), and class 2 none."""
    with pytest.warns(UserWarning, match="she: 1 of 3 classes have no training input; .* scores 0"):
        method = scores.SHE().fitted([H, Z], Y)
    found = method(NEW, torch.eye(3, dtype=torch.float64))
    assert found.tolist() == [-4.0, -4.0, 0.0]


def test_labels_and_features_that_do_not_fit_are_said() -> None:
    with pytest.raises(InputError, match="she: expected labels from 0 to 2, got 3"):
        scores.SHE().fitted([H, Z], Y + 2)
    full = scores.SHE().fitted([H, Z], torch.tensor([0, 1, 2, 0]))
    with pytest.raises(InputError, match="she: expected 2 features as in the training data, got 1"):
        full(NEW[:, :1], Z[:3])
