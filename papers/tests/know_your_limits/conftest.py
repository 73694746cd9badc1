"""Points of the plane, and small networks on it."""

import torch

from nescio_papers.know_your_limits import models

ROOT = torch.randn(7, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def network(*hidden, inputs=2, classes=2, rate=0.0, seed=0):
    torch.manual_seed(seed)
    return models.mlp(inputs, classes, models.Net(hidden, rate, 0.0))().eval()
