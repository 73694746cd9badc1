"""A small network and inputs for it."""

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture
def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
