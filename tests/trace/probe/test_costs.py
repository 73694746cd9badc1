"""What layers cost."""

from __future__ import annotations

import torch
from torch import nn

from nescio.models import Classifier
from nescio.trace.estimate.table import TableBuilder
from nescio.trace.probe.costs import MOVED
from nescio.types import NormSettings


def test_costs_are_multiplications_on_the_way_and_numbers_that_are_moved() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)
    ).eval()
    work = TableBuilder(Classifier.of(model), torch.randn(2, 3, 4, 4), ("classes",), NormSettings("classes"), None)
    inputs, plane = 2, 8 * 16  # inputs of the pass that they are counted in
    assert work.survey.costs == (
        1 + inputs * MOVED * plane,
        1 + inputs * (MOVED * plane + 5 * plane),
        1 + inputs * MOVED * 5,
    )
