"""The table of limits: what is proven, what is measured, and what gradient scores do."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nescio import data, limits
from nescio.limits.audits import _read
from nescio.limits.members import check_work, members
from nescio.posteriors import DeepEnsemble, MCDropout
from nescio.types import InputError, ModelError
from tests.limits.networks import mlp


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
    found = limits.audit(model, x, starts=2, count=1, names=["width", "height"])
    names = list(dict.fromkeys(row.direction for row in found.rows))
    assert names[:4] == ["width +", "width -", "height +", "height -"] and names[-1] == "away from the mean"
    assert len(names) == 4 + 1 + 1 + 1
    data.write_table(f"{tmp_path}/audit.csv", found.columns())
    back = data.read_table(f"{tmp_path}/audit.csv")
    assert back["limit"].tolist() == [row.limit for row in found.rows]
    assert back["proven"].dtype == np.bool_
    assert str(found) == found.text() and "certain along 7 of 7 directions" in found.text()
    assert limits.audit(model, x, starts=2, count=1, names=["width", "height"]) == found


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
    assert found.rows[1].rises and found.rows[1].reached == float("inf") and "regrad still rises, from" in found.text()


def test_several_networks() -> None:
    models, x = [trained(seed)[0] for seed in range(3)], trained()[1]
    found = limits.audit(models, x, ("away",), starts=3)
    assert [row.score for row in found.rows] == ["max_probability", "entropy", "mutual_information", "variance"]
    same = limits.audit(DeepEnsemble(models), x, ("away",), starts=3)
    assert same == found
    measured = limits.audit(models, x, ("away",), starts=3, exact=False, radius=1e6)
    for exact, seen in zip(found.rows, measured.rows, strict=True):
        assert exact.limit == pytest.approx(seen.limit, abs=1e-6)


def test_what_is_not_piecewise_linear_is_measured() -> None:
    model, x = trained(activation=nn.GELU)
    found = limits.audit(model, x, ("away",), starts=2)
    assert not any(row.proven for row in found.rows)
    assert "gelu in '1' (GELU)" in found.reason and "(measured)" in found.text()
    with pytest.raises(ModelError, match="gelu"):
        limits.audit(model, x, ("away",), exact=True)
    dropped = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
    sampled = limits.audit(MCDropout(dropped, samples=5), x, ("away",), starts=2)
    assert [row.score for row in sampled.rows][2:] == ["mutual_information", "variance"]
    assert "MCDropout" in sampled.reason


def test_measured_points_go_through_the_network_once() -> None:
    model, x = trained(activation=nn.Tanh)
    seen: list[int] = []
    handle = model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    table = limits.audit(model.float(), x.float(), ("features",), starts=2, exact=False, radius=8.0)
    handle.remove()
    points = len(table.distances) * 4 * 2  # two features, both ways, two starts
    assert points <= sum(seen) <= points + 8  # and a look at the model
    again = DeepEnsemble([model, model])
    several = limits.audit(again, x.float(), ("features",), scores=["entropy"], starts=2, exact=False, radius=8.0)
    own = [row for row in table.rows if row.score == "entropy"]
    for one, other in zip(own, several.rows, strict=True):
        assert one.confidence == pytest.approx(other.confidence, abs=1e-6)


def sides(names: tuple[str, ...] = ("entropy",), **more: object) -> limits.Audit:
    """Two logits ± x_0 and data around 0: certain of class 0 to the right, of class 1 to the left."""
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    x = torch.tensor([[-1.0, -3.0], [1.0, 3.0], [-1.0, 3.0], [1.0, -3.0]]).double()
    return limits.audit(
        model, x, scores=names, **{"directions": "features", "starts": 4, "names": ["width", "y"], **more}
    )


def test_words_say_of_what_it_is_certain_from_where_and_how_it_is_known() -> None:
    found = sides()
    rows = {row.direction: row for row in found.rows}
    # from x_0 = −1: the confidence 1/(1 + exp(−2(α − 1))) is 0.99 at α = 1 + log(99)/2
    assert rows["width +"].sure_from == pytest.approx(1 + np.log(99) / 2, rel=1e-6)
    assert (rows["width +"].answer, rows["width -"].answer, rows["y +"].answer) == (0, 1, -1)
    assert (rows["width +"].certain, rows["y +"].certain, rows["y +"].sure_from) == (1.0, 0.0, float("inf"))
    assert rows["y +"].confidence == pytest.approx(1 / (1 + np.exp(-2)))
    sentences = found.sentences()
    assert list(sentences)[:2] == ["width +", "width -"]  # the certain ones first
    assert sentences["width -"] == (
        "100 % sure of class 1 from 3.3 spreads on (proven); entropy falls from 0.365 to 0 (proven)."
    )
    assert sentences["y +"] == ("not certain: its confidence tends to 88 % (proven); entropy stays at 0.365 (proven).")
    assert found.text(1).splitlines()[-1] == "… and 3 more directions." and "y +" not in found.text(1)
    seen = sides(("entropy", "ungrad", "exgrad"), exact=False, radius=64.0)
    assert seen.distances == (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    assert seen.sentences()["width +"].startswith("100 % sure of class 0 from 4 spreads on (measured); entropy falls")
    assert "ungrad still rises, from" in seen.sentences()["width +"]
    assert "exgrad falls too, from" not in seen.sentences()["width +"]  # too is said of the clause before
    assert seen.rows[0].values[0] == seen.rows[0].start and seen.rows[0].values[-1] == seen.rows[0].limit


def test_starts_that_differ_and_what_is_certain_at_the_end_only() -> None:
    found = sides(directions={"out": torch.tensor([[-1.0, 0], [1, 0], [-1, 0], [0, 1]])})
    assert (found.rows[0].certain, found.rows[0].answer) == (0.75, -1)
    assert "from 3 of 4 starting points sure of a class that depends on the start" in found.text()
    late = sides(exact=False, radius=3.5)  # 0.99 is passed at 3.3: between the last two distances
    assert late.distances == (0.0, 1.0, 2.0, 3.5) and late.rows[0].sure_from == float("inf")
    assert "only at the end of what was measured" in late.sentences()["width +"]


def test_what_rose_and_settled_does_not_rise_any_more() -> None:
    distances = (0.0, 1.0, 2.0, 4.0)
    values = torch.tensor([[0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]]).double().T[:, :, None]
    found = _read(values, "regrad", 0.01, distances)
    assert found.rises.tolist() == [False, True, False]
    assert found.reached.tolist() == [1.0, float("inf"), float("inf")]


def test_units_of_features_do_not_matter() -> None:
    model, x = trained()
    scale = torch.tensor([1.0, 1000.0]).double()
    stretched = nn.Sequential(nn.Linear(2, 12), *list(model)[1:]).double()
    with torch.no_grad():
        stretched[0].weight.copy_(model[0].weight / scale)
        stretched[0].bias.copy_(model[0].bias)
    one, other = (limits.audit(m, data_, starts=2, count=2) for m, data_ in ((model, x), (stretched, x * scale)))
    for a, b in zip(one.rows, other.rows, strict=True):
        assert (a.direction, a.answer) == (b.direction, b.answer)
        assert a.sure_from == pytest.approx(b.sure_from, rel=1e-6, abs=1e-9)


def test_what_would_take_long_is_measured_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = trained()
    monkeypatch.setattr("nescio.limits.members._MOST_WORK", 2000.0)
    found = limits.audit(model, x, ("away",), starts=4)
    assert "got 4 through a network with too many pieces" in found.reason and "walk at most" in found.reason
    assert not found.rows[0].proven
    assert limits.audit(model, x, ("away",), starts=4, exact=True).rows[0].proven


def test_how_many_rays_are_too_many_is_told_from_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Seen(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    model = nn.Sequential(Seen(2, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    found, x = members(model), torch.rand(9, 2, dtype=torch.float64)
    work = found[0].work(x[:1], x[:1])
    assert work >= 5 * (5 + 3)  # a pass for each of five units
    monkeypatch.setattr("nescio.limits.members._MOST_WORK", 7 * work)
    seen.clear()
    check_work(found, x[:7], x[:7])
    assert set(seen) == {2}  # an input and its direction
    with pytest.raises(ModelError, match=r"got 8 through a network .* walk at most 7 rays"):
        check_work(found, x[:8], x[:8])
    with pytest.raises(ModelError, match=r"got 5 through a network .* walk at most 3 rays"):
        check_work(found * 2, x[:5], x[:5])


def test_scores_that_need_training_data() -> None:
    model, x = trained()
    found = limits.audit(model, x, ("away",), "mahalanobis", starts=2, fit=(x, torch.arange(120) // 60))
    assert found.rows[0].rises and not found.rows[0].proven
    with pytest.raises(InputError, match="training data"):
        limits.audit(model, x, ("away",), "mahalanobis", starts=2)


def test_errors() -> None:
    model, x = trained()
    for arguments, words in (
        ({"directions": ("sideways",)}, "expected directions among"),
        ({"directions": {"a": torch.zeros(2)}}, "not 0"),
        ({"scores": ("regradd",)}, "did you mean 'regrad'"),
        ({"scores": ("variance",), "exact": False}, "several models"),
        ({"names": ["one"]}, "expected 2 names"),
        ({"names": ["one", "one"]}, "got one twice"),
        ({"directions": ()}, "got none"),
        ({"scores": ()}, "at least one score"),
        ({"batch": 0}, "batch"),
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
