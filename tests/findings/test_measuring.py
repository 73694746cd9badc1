"""What is measured of each row."""

import numpy as np
import pytest
import torch

import nescio
from nescio.data.sources import open_data
from nescio.findings.measuring import measure, subject
from nescio.scores import Entropy


@pytest.mark.filterwarnings("ignore:the reference has .* different inputs")
def test_the_part_of_a_picture_is_that_at_the_level_of_the_page(tmp_path):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ELU(), torch.nn.Conv2d(4, 5, 1))
    guard = nescio.dense.RegionGuard(network).fit(torch.rand(60, 3, 8, 8), progress=False)
    x = torch.rand(4, 3, 8, 8)
    np.savez(tmp_path / "x.npz", x=x.numpy())
    about = subject(nescio.Classifier(network, output="dense"), None, x, guard, level=0.3)
    found = measure(
        about, open_data(tmp_path / "x.npz"), range(4), [Entropy()], batch=4, labels=None, what="", progress=False
    )
    checked = guard.check(x)
    assert torch.equal(found.verdict.share, checked.overall(0.3).share)
    assert not torch.equal(found.verdict.share, checked.overall().share)
