"""The table of limits: what is proven, what is measured, and what gradient scores do."""

import numpy as np
import pytest
import torch
from torch import nn

from nescio import data, limits
from nescio.posteriors import DeepEnsemble, MCDropout
from nescio.types import InputError, ModelError
from tests.limits.networks import mlp

KINDS = ("features", "random", "data", "mean")


def trained(seed: int = 0, activation: type[nn.Module] = nn.ReLU) -> tuple[nn.Sequential, torch.Tensor]:
    """A small classifier of two clouds of points."""
    torch.manual_seed(seed)
    x = torch.cat([torch.randn(60, 2) - 1.5, torch.randn(60, 2) + 1.5]).double()
    y = torch.arange(120) // 60
    model = mlp(2, 12, 2, seed=seed, activation=activation)
    for _ in range(100):
        slopes = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), list(model.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(model.parameters(), slopes, strict=True):
                parameter -= 0.3 * slope
    return model.requires_grad_(False), x


def test_the_proven_table_agrees_with_rays_and_with_measurement() -> None:
    model, x = trained()
    proven = limits.audit(model, x, ("features",), starts=2, exact=True)
    measured = limits.audit(model, x, ("features",), starts=2, exact=False, radius=4096.0)
    assert len(proven.rows) == 2 * 2 * 2 and all(row.proven for row in proven.rows)
    assert not any(row.proven for row in measured.rows) and not any(row.rises for row in proven.rows)
    for exact, seen in zip(proven.rows, measured.rows, strict=True):
        assert (exact.direction, exact.score) == (seen.direction, seen.score)
        assert exact.limit == pytest.approx(seen.limit, abs=1e-5) and exact.start == pytest.approx(seen.start, abs=1e-5)
        assert exact.confidence == pytest.approx(seen.confidence, abs=1e-5)
        assert exact.reached <= seen.reached * 1.001 or seen.reached == 0.0  # the grid's next point
    d = torch.stack([x[:, 0].std(correction=0), torch.tensor(0.0).double()])
    ray = limits.ray(model, x[[0, 119]], d)
    assert proven.rows[0].direction == "feature 0 +"
    assert proven.rows[0].reached == pytest.approx(ray.settles("max_probability").max().item(), rel=1e-9)
    assert "measured, not proven" not in proven.text() and "measured, not proven" in measured.text()


def test_all_kinds_of_directions_and_the_table_on_disk(tmp_path: object) -> None:
    model, x = trained()
    found = limits.audit(model, x, starts=2, count=3, names=["width", "height"])
    names = list(dict.fromkeys(row.direction for row in found.rows))
    assert names[:4] == ["width +", "width -", "height +", "height -"] and names[-1] == "away from the mean"
    assert len(names) == 4 + 3 + 3 + 1
    data.write_table(f"{tmp_path}/audit.csv", found.columns())
    back = data.read_table(f"{tmp_path}/audit.csv")
    assert back["limit"].tolist() == [row.limit for row in found.rows]
    assert back["proven"].dtype == np.bool_
    assert str(found) == found.text() and "certain along 11 of 11 directions" in found.text()
    assert limits.audit(model, x, starts=2, count=3, names=["width", "height"]) == found


def test_gradient_scores_do_not_escape_a_one_hot_limit_but_rise_along_ties() -> None:
    """√p_c ‖g_c‖ grows like α but its probability falls like exp(−gap α): only where classes tie does it rise."""
    model, x = trained()
    found = limits.audit(model, x, {"out": x[100] - x[0]}, ("entropy", "regrad", "exgrad"), starts=2, radius=4096.0)
    assert [row.proven for row in found.rows] == [True, False, False]
    assert all(not row.rises and row.limit < 1e-6 for row in found.rows)
    tie = mlp(2, 12, 2)
    with torch.no_grad():
        tie[2].weight[1] = tie[2].weight[0]
    found = limits.audit(tie, x, {"out": torch.ones(2)}, ("entropy", "regrad"), starts=2)
    assert not found.rows[0].rises and found.rows[0].limit > 0.6
    assert found.rows[1].rises and found.rows[1].reached == float("inf") and "still rises (measured)" in found.text()


def test_several_networks() -> None:
    models, x = [trained(seed)[0] for seed in range(3)], trained()[1]
    found = limits.audit(models, x, ("mean",), starts=3)
    assert [row.score for row in found.rows] == ["max_probability", "entropy", "mutual_information", "variance"]
    same = limits.audit(DeepEnsemble(models), x, ("mean",), starts=3)
    assert same == found
    measured = limits.audit(models, x, ("mean",), starts=3, exact=False, radius=1e6)
    for exact, seen in zip(found.rows, measured.rows, strict=True):
        assert exact.limit == pytest.approx(seen.limit, abs=1e-6)


def test_what_is_not_piecewise_linear_is_measured() -> None:
    model, x = trained(activation=nn.GELU)
    found = limits.audit(model, x, ("mean",), starts=2)
    assert not any(row.proven for row in found.rows)
    assert "gelu in '1' (GELU)" in found.reason and "(measured)" in found.text()
    with pytest.raises(ModelError, match="gelu"):
        limits.audit(model, x, ("mean",), exact=True)
    dropped = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
    sampled = limits.audit(MCDropout(dropped, samples=5), x, ("mean",), starts=2)
    assert [row.score for row in sampled.rows][2:] == ["mutual_information", "variance"]
    assert "MCDropout" in sampled.reason


def test_errors() -> None:
    model, x = trained()
    for arguments, words in (
        ({"directions": ("sideways",)}, "expected directions among"),
        ({"directions": {"a": torch.zeros(2)}}, "not 0"),
        ({"scores": ("regradd",)}, "did you mean 'regrad'"),
        ({"scores": ("variance",), "exact": False}, "several models"),
        ({"names": ["one"]}, "expected 2 names"),
        ({"radius": 1.0}, "radius"),
        ({"within": 0.0}, "within"),
    ):
        with pytest.raises(InputError, match=words):
            limits.audit(model, x, **arguments)
    with pytest.raises(InputError, match="all the same"):
        limits.audit(model, x[:1].repeat(3, 1))
    with pytest.raises(InputError, match="at least two inputs"):
        limits.audit(model, x[:1])
    with pytest.raises(InputError, match="finite"):
        limits.audit(model, torch.full((3, 2), torch.nan))
