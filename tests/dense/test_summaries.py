"""What does not count is left out, and one number for each input remains."""

import numpy as np
import pytest
import torch

import nescio
from nescio.dense import DenseScores, flatten
from nescio.types import InputError


@pytest.fixture
def maps():
    return torch.rand(4, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_summaries_are_those_of_the_positions_that_count(maps):
    labels = torch.zeros(4, 5, 6, dtype=torch.long)
    labels[:, 1] = 255
    mask = torch.ones(4, 5, 6, dtype=torch.bool)
    mask[2, :, 3:] = False
    mask[3] = False
    scores = DenseScores(maps, mask=mask, labels=labels, ignore_index=255)
    for how, function in (("mean", np.mean), ("max", np.max), ("quantile", lambda v: np.quantile(v, 0.9))):
        wanted = [function(maps[i][mask[i] & (labels[i] == 0)].numpy()) for i in range(3)]
        found = scores.summary(how, 0.9)
        np.testing.assert_allclose(found[:3], wanted, rtol=1e-12)
        assert found[3].isnan()
    assert torch.equal(scores.mask, mask & (labels == 0)) and len(scores) == 4


def test_metrics_over_positions(maps):
    generator = torch.Generator().manual_seed(1)
    p = torch.rand(4, 5, 6, 3, generator=generator, dtype=torch.float64).softmax(-1)
    labels = torch.randint(3, (4, 5, 6), generator=generator)
    labels[0, 0] = -100
    keep = labels.flatten() >= 0
    y, u, q, right = flatten(labels, maps, p, p.argmax(-1) == labels, ignore_index=-100)
    assert len(y) == int(keep.sum()) == 4 * 5 * 6 - 6
    flat = p.reshape(-1, 3)[keep]
    assert nescio.evaluate.ece(q, y) == nescio.evaluate.ece(flat, labels.flatten()[keep])
    hit = flat.argmax(1) == labels.flatten()[keep]
    assert nescio.evaluate.raulc(u, right) == nescio.evaluate.raulc(maps.flatten()[keep], hit)
    assert nescio.evaluate.risk_coverage(u, right).aurc == nescio.evaluate.risk_coverage(maps.flatten()[keep], hit).aurc


def test_masked_positions_count_as_in_torchmetrics(maps):
    from torchmetrics.functional.classification import (  # takes seconds: not for every worker
        binary_auroc,
        multiclass_calibration_error,
    )

    generator = torch.Generator().manual_seed(2)
    p = (3 * torch.randn(4, 5, 6, 3, generator=generator, dtype=torch.float64)).softmax(-1)
    labels = torch.randint(3, (4, 5, 6), generator=generator)
    labels[1:3, :, 2] = 255
    y, q = flatten(labels, p, ignore_index=255)
    theirs = multiclass_calibration_error(p.movedim(-1, 1), labels, num_classes=3, n_bins=15, ignore_index=255)
    assert nescio.evaluate.ece(q, y) == pytest.approx(float(theirs), rel=1e-6)
    foreign = torch.where(labels == 255, 255, (labels == 2).long())
    y, u = flatten(foreign, maps, ignore_index=255)
    auroc = nescio.evaluate.ood(u[y == 0], u[y == 1]).auroc
    assert auroc == pytest.approx(float(binary_auroc(maps, foreign, ignore_index=255)), rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask": torch.ones(4, 5)}, r"mask of shape \[4, 5, 6\], one for each position, got .*\[4, 5\]"),
        ({"ignore_index": 255}, "labels and ignore_index together, got one of them"),
    ],
)
def test_bad_masks_are_refused(maps, arguments, message):
    with pytest.raises(InputError, match=message):
        DenseScores(maps, **arguments)


def test_scores_of_whole_inputs_are_no_maps():
    with pytest.raises(InputError, match="these are scores already"):
        DenseScores(torch.rand(4))
    with pytest.raises(InputError, match=r"values of shape \[2, 3\], or with the classes after"):
        flatten(torch.zeros(2, 3), torch.zeros(2, 4))
