"""Pictures with a patch of noise."""

from dataclasses import replace

import pytest
import torch

from nescio.types import InputError
from nescio_papers.runner.parts import Pictures
from nescio_papers.ua_backprop.case import Case
from nescio_papers.ua_backprop.ensemble import Ensemble
from nescio_papers.ua_backprop.judging import noise_patches, patched


def test_patches_are_squares_and_nothing_else_is_changed(job):
    x = torch.full((50, 3, 12, 16), 2.0)
    corrupted, masks = noise_patches(x, seed=1)
    assert (masks.sum((1, 2)) == 9).all() and len(masks.unique(dim=0)) > 20
    rows, columns = masks.any(2).sum(1), masks.any(1).sum(1)
    assert (rows == 3).all() and (columns == 3).all()
    inside = masks[:, None].expand_as(x)
    assert (corrupted[~inside] == 2.0).all() and ((corrupted[inside] >= 0) & (corrupted[inside] < 1)).all()
    again, _ = noise_patches(x, seed=1)
    assert torch.equal(corrupted, again)
    case = Case.of(job, "mnist")
    found, where = patched(case, job.parts.known("mnist"), 3)
    assert 1 <= len(found) == len(where) <= 3 and found.shape[1:] == (1, 8, 8) and where.shape[1:] == (8, 8)


def test_patches_go_to_pictures_that_were_right_and_stay_where_doubt_rose_most():
    class Made(Ensemble):
        def epistemic(self, x):
            return x.double().mean((1, 2, 3))  # noise is brighter than a dark picture

        def right(self, x, y):
            return y == 1

    x = torch.tensor([250, 10, 240, 20, 0, 5], dtype=torch.uint8).view(6, 1, 1, 1).expand(6, 1, 8, 8)
    pictures = Pictures(x, torch.tensor([1, 1, 1, 1, 0, 0]), "some", "", "some")
    case = Case(None, "mnist", Made((), "", "cpu"))
    found, masks = patched(case, pictures, 2)
    clean = [one[0][~mask].unique().item() * 255 for one, mask in zip(found, masks, strict=True)]
    assert sorted(clean) == pytest.approx([10, 20])
    rise = case.ensemble.epistemic(found) - torch.tensor(clean) / 255
    assert rise[0] > rise[1] > 0
    with pytest.raises(InputError, match="gets no picture right"):
        patched(case, replace(pictures, y=torch.zeros(6, dtype=torch.int64)), 2)
