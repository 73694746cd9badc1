import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nescio
from nescio.data import prefetch
from nescio.data.sources import Rows, open_data
from nescio.guard.input_blocks import block_size, blocks, count, form
from nescio.models import Classifier
from nescio.types import InputError

X, Y = torch.arange(20.0).view(10, 2), torch.arange(10) % 3


def read(data, most=4):
    found = list(blocks(data, most))
    assert all(len(x) <= most for x, _ in found)
    labels = [y for _, y in found]
    return torch.cat([x for x, _ in found]), None if labels[0] is None else torch.cat(labels)


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("form", ["pair", "arrays", "list", "batches", "loader", "generator"])
def test_every_kind_of_data_with_and_without_labels(labelled, form):
    batches = list(zip(X.split(3), Y.split(3), strict=True)) if labelled else list(X.split(3))
    data = {
        "pair": (X, Y) if labelled else X,
        "arrays": (X.numpy(), Y.numpy()) if labelled else X.numpy(),
        "list": (X, Y.tolist()) if labelled else [X],
        "batches": batches,
        "loader": DataLoader(TensorDataset(X, Y) if labelled else TensorDataset(X), batch_size=3),
        "generator": (one for one in batches),
    }[form]
    x, y = read(data)
    assert torch.equal(x, X)
    assert (y is None) != labelled
    if labelled:
        assert torch.equal(y, Y)


def test_two_batches_are_not_a_batch_with_labels():
    x, y = read((X[:5], X[5:]))
    assert torch.equal(x, X)
    assert y is None
    tokens = torch.arange(12).view(2, 6)
    assert [y for _, y in blocks((tokens, tokens), 4)] == [None, None]


@pytest.mark.parametrize("labels", [torch.rand(10), Y[:7], [0.5] * 10, np.zeros(10), [0, 1]])
def test_labels_that_do_not_fit_are_said_to_be_labels(labels):
    with pytest.raises(InputError, match="labels of batch 0"):
        read((X, labels))


def test_counts():
    assert count(X) == 10
    assert count((X, Y)) == 10
    assert count(DataLoader(TensorDataset(X, Y), batch_size=3)) == 10
    assert count(one for one in X.split(3)) is None


def test_forms():
    assert form(torch.zeros(2, 3, 4)) == (3, 4)
    assert form(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)) == (3, 8, 8)
    assert form(torch.zeros(2, 7, dtype=torch.long)) is None
    assert form({"x": X}) is None
    assert block_size(Classifier(lambda x: x)) == 64


def test_pictures_of_a_folder_are_read_side_by_side_and_judged_in_their_order(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    for number in range(70):
        picture = Image.fromarray(draw.integers(0, 256, (12, 10, 3), dtype=np.uint8))
        picture.save(tmp_path / f"{number:03d}.png")
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    rows = open_data(tmp_path)
    x = torch.cat([batch.inputs for batch in rows.batches(64)])
    known = torch.rand(310, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    guard = nescio.Guard(model).fit(known, nuisances=None)
    guard.check(x[:2])
    readers, real = set(), Rows.attempt

    def attempt(self, index):
        readers.add(threading.current_thread().name)
        time.sleep(0.002 if index % 2 else 0)  # so that rows do not come in their order
        return real(self, index)

    monkeypatch.setattr(Rows, "attempt", attempt)
    monkeypatch.setattr(prefetch, "_usual", lambda rows, forks: 3)
    verdict, truth = guard.check(rows), guard.check(x)
    assert len(readers) > 1 and threading.current_thread().name not in readers
    assert verdict.predicted.tolist() == truth.predicted.tolist()
    assert verdict.score.tolist() == pytest.approx(truth.score.tolist(), rel=1e-4, abs=1e-5)
