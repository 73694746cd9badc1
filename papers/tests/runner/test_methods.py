import pytest
import torch
from torch import nn

import nescio
from nescio import scores
from nescio.types import InputError
from nescio_papers.runner.methods import Closed, PairedREGrad, described, made
from nescio_papers.runner.scale import SCALES
from nescio_papers.runner.study import Row


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double()


@pytest.fixture
def x():
    return torch.randn(5, 6, dtype=torch.float64)


@pytest.mark.parametrize(
    ("form", "method"),
    [
        ("h_exgrad", scores.ExGrad(select="2")),
        ("h_regrad1", scores.REGrad(select="2", layer_decay=None, samples=0, power=1)),
        ("h_regrad2", scores.REGrad(select="2", layer_decay=None, samples=0, power=2)),
    ],
)
def test_closed_forms_are_the_gradient_scores_of_the_last_layer(model, x, form, method):
    found = nescio.score(model, x, Closed(form=form))
    assert torch.allclose(found, nescio.score(model, x, method), rtol=1e-9, atol=0)


def test_closed_forms_of_p_and_of_h(model, x):
    p, h = model(x).softmax(1).detach(), model[:2](x).detach()
    assert nescio.score(model, x, Closed(form="minus_h")).tolist() == pytest.approx((-h.norm(dim=1)).tolist())
    gap = torch.stack([(torch.eye(4)[c] - p).norm(dim=1) for c in range(4)], 1)
    expected = (p.sqrt() * gap**2).sum(1)
    assert nescio.score(model, x, Closed(form="p_regrad2")).tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    over = -(p * p.log()).sum(1) / h.norm(dim=1)
    assert nescio.score(model, x, Closed(form="entropy_over_h")).tolist() == pytest.approx(over.tolist(), rel=1e-9)
    with pytest.raises(InputError, match="expected a form such as h_regrad2"):
        nescio.score(model, x, Closed(form="h_nothing"))


def test_eight_paired_copies_are_what_auto_takes(model, x):
    auto = scores.REGrad(samples="auto", tolerance=0.0, sigma=0.1)
    paired = PairedREGrad(copies=8, tolerance=0.0, sigma=0.1)
    assert torch.equal(nescio.score(model, x, paired), nescio.score(model, x, auto))
    assert not torch.equal(nescio.score(model, x, PairedREGrad(copies=2, sigma=0.1)), nescio.score(model, x, auto))


def test_rows_become_methods():
    row = Row("r", "regrad", {"samples": "N", "last": 2, "seed": 1}, {"mnist": {"layer_decay": 0.7}})
    method = made(row, "mnist", SCALES["paper"], seed=3, layers=("a", "b", "c"))
    assert method.select == ("b", "c") and method.samples == 100 and method.layer_decay == 0.7
    assert (method.classes, method.tolerance, method.seed) == ("exact", 0.0, 1003)
    quick = made(row, "svhn", SCALES["quick"], 0, ("a",))
    assert (quick.layer_decay, quick.classes) == (0.3, 16)
    assert made(Row("r", "exgrad", {"classes": 4}), "svhn", SCALES["quick"], 0).classes == 4  # a row's own comes first
    assert described(method)["select"] == ["b", "c"]
    assert described(made(Row("e", "entropy"), "svhn", SCALES["quick"], 0)) == {"method": "entropy"}
