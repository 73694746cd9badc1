"""Tables with one feature scaled up."""

import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from nescio_papers.know_your_limits import scaling


def test_tables_are_standardised_and_one_feature_is_scaled():
    parts = scaling.split("wine", 0)
    order = torch.randperm(178, generator=torch.Generator().manual_seed(0))
    raw = load_wine().data
    training = raw[order[:106].numpy()]
    right = StandardScaler().fit(training)
    unbiased = training.std(0, ddof=1) / right.scale_
    assert parts.training[0].numpy() * unbiased == pytest.approx(right.transform(training), abs=1e-9)
    assert sum(len(part[0]) for part in (parts.training, parts.held_out, parts.test)) == 178
    x = parts.test[0]
    found = scaling.scaled(x, 3, 100.0)
    assert torch.equal(found[:, 3], 100 * x[:, 3]) and torch.equal(found[:, :3], x[:, :3])
