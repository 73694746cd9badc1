"""Norms that are estimated: against exact ones, in what must stay exact, and in what is said of their error."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import nescio
from nescio import trace
from nescio.models import Classifier
from nescio.trace.backward import cotangents
from nescio.trace.estimate import completion, entries
from nescio.trace.estimate.cut import HEAVY, Cut, Level, plan_cut
from nescio.trace.estimate.error_check import error_factor, inputs_to_check
from nescio.trace.estimate.table import TableBuilder
from nescio.trace.probe.costs import MOVED
from nescio.trace.probe.layers import Layers
from nescio.trace.runtime import noise
from nescio.types import InputError, NormSettings, NormTable

DECAY = 0.3


def deep(classes: int = 12, layers: int = 24, width: int = 12) -> nn.Module:
    torch.manual_seed(1)
    body = [part for _ in range(layers - 1) for part in (nn.Linear(width, width), nn.Tanh())]
    model = nn.Sequential(*body, nn.Linear(width, classes)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2.0)
    return model


def pictures(count: int = 40, width: int = 12) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def total(table: Any, decay: float) -> Tensor:
    """Σ_c √p_c Σ_l a_l n², the score that estimates are made for."""
    weights = (decay * torch.arange(1 - table.norms.shape[2], 1, dtype=torch.float64)).exp()
    return (table.probabilities.sqrt().unsqueeze(2) * table.norms.square() * weights).sum((1, 2))


def tables(model: nn.Module, x: Tensor, **settings: Any) -> NormTable:
    return trace.gradient_norms(Classifier.of(model), x, NormSettings("classes", **settings))["classes"]


def ranks(a: Tensor, b: Tensor) -> float:
    places = torch.stack([a.argsort().argsort().double(), b.argsort().argsort().double()])
    return float(torch.corrcoef(places)[0, 1])


# what is cut


def test_nothing_is_cut_unless_asked() -> None:
    assert plan_cut(10, [1.0] * 40, "exact", 0.3, 0.0) is None
    assert plan_cut(10, [1.0] * 40, "exact", 0.0, 0.02) is None
    assert plan_cut(10, [1.0] * 4, "exact", 0.3, 0.02) is None
    assert plan_cut(40, [1.0] * 40, "auto", 0.0, 0.0) is None
    assert plan_cut(10, [1.0] * 40, 10, 0.0, 0.0) is None


@given(layers=st.integers(2, 300), decay=st.floats(0.01, 2.0), tolerance=st.floats(1e-6, 0.5))
def test_layers_that_are_cut_have_little_weight(layers: int, decay: float, tolerance: float) -> None:
    cut = plan_cut(10, [1.0] * layers, "exact", decay, tolerance)
    if cut is None:
        return
    weights = [math.exp(decay * (i - layers)) for i in range(layers)]
    assert 0 <= cut.floor <= cut.top < layers
    assert sum(weights[: cut.top]) <= 2 * tolerance * sum(weights) * (1 + 1e-9)
    assert sum(weights[: cut.floor]) <= 1e-4 * tolerance * sum(weights) * (1 + 1e-9)


def test_layers_are_estimated_where_it_saves_work() -> None:
    """Of 40 layers 11 count, so 10 classes cost 3 rows, and 3 rows go further down; of 3 classes that is all."""
    assert plan_cut(10, [1.0] * 40, "exact", DECAY, 0.02) is not None
    assert plan_cut(3, [1.0] * 40, "exact", DECAY, 0.02) is None
    assert plan_cut(3, [1.0] * 40, "exact", DECAY, 0.02, part=0.25) is not None  # on a pair of eight copies


@given(classes=st.integers(4, 2000), budget=st.integers(3, 500), layers=st.integers(1, 60))
def test_many_classes_cost_what_is_paid_for(classes: int, budget: int, layers: int) -> None:
    costs = [float(1 + i % 7) for i in range(layers)]
    cut = plan_cut(classes, costs, budget, 0.0, 0.0)
    if budget >= classes:
        assert cut is None
        return
    assert cut is not None and cut.floor == 0 and cut.drawn
    assert all(level.heavy >= 1 and level.drawn >= 2 and level.rows < classes for level in cut.levels)
    floors, rows = [level.floor for level in cut.levels], [level.rows for level in cut.levels]
    assert sorted({cut.top, *floors}, reverse=True) == [cut.top, *floors] or cut.top == 0
    assert rows == sorted(rows, reverse=True) and len(rows) == len(set(rows))

    def price(first: int) -> float:
        return sum(costs[first:]) / sum(costs)

    last = price(cut.top) * classes
    assert cut.top >= layers - 2 or last <= budget / 2
    if cut.top < layers - 2 and rows[-1] > 3:
        assert last + sum(level.rows * price(level.floor) for level in cut.levels) <= budget + 2


def test_of_many_layers_rows_come_in_two_levels() -> None:
    levels = Level(87, 25, 51), Level(0, 6, 13)  # 20 + 76 · 12/99 + 19 = 48
    assert plan_cut(1000, [1.0] * 99, 48, 0.0, 0.0) == Cut(97, levels, 0.0)
    assert plan_cut(1000, [1.0] * 99, 48, DECAY, 0.02) == Cut(97, levels, DECAY)  # none is left out


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


# classes of its own for every input


def test_classes_are_drawn_in_proportion() -> None:
    weights = torch.tensor([[0.0, 1.0], [6.0, 1.0], [2.0, 1.0], [0.0, 1.0], [4.0, 0.0]], dtype=torch.float64)
    drawn = completion._draw(weights, 12)
    assert drawn.shape == (12, 2)
    assert drawn[:, 0].bincount(minlength=5).tolist() == [0, 6, 2, 0, 4]
    assert drawn[:, 1].bincount(minlength=5).tolist() == [3, 3, 3, 3, 0]
    assert completion._draw(torch.zeros(5, 1, dtype=torch.float64), 3).max() <= 4


def test_every_input_can_have_its_own_classes() -> None:
    z = torch.randn(3 * 2, 5, dtype=torch.float64)
    own = torch.tensor([[0, 4, 2], [3, 3, 1]])
    for smoothing in ("log", "mean"):
        found = cotangents.build("classes", z, 2, smoothing, own)
        every = cotangents.build("classes", z, 2, smoothing)
        for k in range(2):
            for i in range(3):
                torch.testing.assert_close(found.scale[k, i], every.scale[own[k, i], i])
                torch.testing.assert_close(
                    found.vectors[k, 2 * i : 2 * i + 2], every.vectors[own[k, i], 2 * i : 2 * i + 2]
                )


# a table that is completed


def completed(table: Tensor, p: Tensor, cut: Cut) -> tuple[Tensor, Tensor, list[tuple[int, Tensor]]]:
    """What comes of a table of norms [C, N, L] that is known only where the cut computes it, and the rows it took."""
    names = tuple(str(i) for i in range(table.shape[2]))
    taken: list[tuple[int, Tensor]] = []

    def rows(start: int, stop: int | None, chosen: Any) -> Tensor:
        taken.append((start, chosen))
        return table.gather(0, chosen.unsqueeze(2).expand(-1, -1, table.shape[2]))[:, :, start:stop]

    z: Any = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completion.cotangents, "build", lambda *a: a[4])
        layers = Layers(names, tuple((name,) for name in names))
        values, spread = completion.complete(z, 1, "log", p, layers, cut, table[:, :, cut.top :], True, rows)
    return values, spread, taken


TWO = Cut(9, (Level(5, 3, 8), Level(0, 2, 4)), 0.0)


@given(seed=st.integers(0, 10_000))
def test_layers_in_the_same_proportion_for_every_class_are_completed_exactly(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    table = torch.rand(30, 2, 1, generator=generator, dtype=torch.float64) + 0.1
    table = table * (torch.rand(1, 2, 11, generator=generator, dtype=torch.float64) + 0.1)
    p = torch.randn(2, 30, generator=generator, dtype=torch.float64).softmax(1)
    values, spread, _ = completed(table, p, TWO)
    torch.testing.assert_close(values, table, rtol=1e-10, atol=0)
    assert float(spread.max()) < 1e-6


@given(seed=st.integers(0, 10_000))
def test_what_a_level_computes_stays_and_the_rest_follows_the_level_before(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    table = torch.rand(30, 2, 11, generator=generator, dtype=torch.float64) + 0.1
    p = torch.randn(2, 30, generator=generator, dtype=torch.float64).softmax(1)
    values, spread, taken = completed(table, p, TWO)
    torch.testing.assert_close(values[:, :, 9:], table[:, :, 9:])
    assert [start for start, _ in taken] == [5, 0] and [len(chosen) for _, chosen in taken] == [11, 6]
    for start, chosen in taken:
        at = chosen.unsqueeze(2).expand(-1, -1, 11)
        own, errors = values.gather(0, at), spread.gather(0, at)
        torch.testing.assert_close(own[:, :, start:], table.gather(0, at)[:, :, start:])
        assert not errors[:, :, start:].any()
        likely = len(chosen) // 3
        assert torch.equal(chosen[:likely].T, p.topk(likely, 1).indices)
    for i in range(2):
        drawn = taken[1][1][2:, i]
        relative = table[drawn, i, 9].square()
        means = (table[drawn, i, :5].square() / relative[:, None]).mean(0)
        means = means / (table[drawn, i, 5:9].square().sum(1) / relative).mean()
        others = [c for c in range(30) if c not in taken[1][1][:, i]]
        wanted = values[others, i, 5:9].square().sum(1, keepdim=True) * means
        torch.testing.assert_close(values[others, i, :5].square(), wanted)
        assert (spread[others, i, :5] > 0).all()


def test_with_every_class_computed_the_estimate_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = deep(classes=7, layers=6), pictures(3)
    whole = Cut(4, (Level(2, 7, 0), Level(0, 7, 0)), 0.0)
    monkeypatch.setattr("nescio.trace.estimate.table.plan_cut", lambda *_: whole)
    found, wanted = tables(model, x, tolerance=0.02), trace.reference.class_gradients(model, x)
    torch.testing.assert_close(found.norms, wanted.norms, rtol=1e-9, atol=0)
    assert found.spread is not None and not found.spread.any()


def test_as_many_cotangents_at_once_as_take_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    wide = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 4, 3, padding=1), nn.ReLU()]
    narrow = [part for _ in range(12) for part in (nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 300)]
    model = nn.Sequential(*wide, *narrow, *head).double().eval()
    x = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    exact = trace.class_gradients(model, x).norms
    blocks: list[tuple[int, int]] = []
    plain = entries.visit

    def visit(logits: Tensor, nodes: Any, lowest: Any, vectors: Tensor, read: Any) -> None:
        blocks.append((len(nodes), len(vectors)))
        plain(logits, nodes, lowest, vectors, read)

    monkeypatch.setattr(entries, "visit", visit)
    found = trace.class_gradients(model, x, classes=40, memory_gb=4e-3)
    deep = max(blocks)[1]  # of the rows through all layers
    assert max(rows for _, rows in blocks) == 8 * deep  # the first layer's output is eight times as large as the others
    assert (found.norms[:, :, -1] / exact[:, :, -1] - 1).abs().max() < 1e-9
    plenty = trace.class_gradients(model, x, classes=40)
    torch.testing.assert_close(found.norms, plenty.norms, rtol=1e-9, atol=1e-12)


# layers


@pytest.mark.parametrize("settings", [{}, {"sigma": 0.05, "samples": 3}, {"sigma": 0.05, "samples": 4, "pairs": True}])
def test_layers_of_little_weight_are_estimated_within_the_tolerance(settings: dict[str, Any]) -> None:
    model, x = deep(layers=50), pictures()
    exact = tables(model, x, **settings)
    found = tables(model, x, decay=DECAY, tolerance=0.02, **settings)
    cut = plan_cut(12, [1.0] * 50, "exact", DECAY, 0.02)
    assert cut is not None and 0 < cut.floor < cut.top
    torch.testing.assert_close(found.norms[:, :, cut.top :], exact.norms[:, :, cut.top :])
    assert not found.norms[:, :, : cut.floor].any() and found.norms[:, :, cut.floor : cut.top].all()
    wanted = total(exact, DECAY)
    assert ((total(found, DECAY) - wanted).abs() <= 0.02 * wanted).all()
    assert ((total(found, DECAY) - wanted).abs() > 1e-7 * wanted).any()  # it is an estimate
    assert found.check is not None and found.check.worst <= 0.02 and found.check.inputs == 1 and exact.check is None
    assert found.check.exact == 0
    assert found.spread is not None and (found.spread >= 0).all() and exact.spread is None


def test_rows_that_were_computed_are_exact() -> None:
    model, x = deep(), pictures(9)
    exact, found = tables(model, x), tables(model, x, decay=DECAY, tolerance=0.02)
    assert found.spread is not None
    cut = plan_cut(12, [1.0] * 24, "exact", DECAY, 0.02)
    assert cut is not None
    known = found.spread[:, :, cut.floor : cut.top].eq(0).all(2)
    assert (known.sum(1) == HEAVY).all()
    torch.testing.assert_close(found.norms[known][:, cut.floor :], exact.norms[known][:, cut.floor :])


def tricky(seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A perceptron in which the first layers have most of some inputs' norms, though they have little weight."""
    torch.manual_seed(seed)
    body = [part for _ in range(14) for part in (nn.Linear(40, 40), nn.Tanh())]
    model = nn.Sequential(*body, nn.Linear(40, 10)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2.0)
    return model, 100 * torch.randn(8, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_handful_of_inputs_is_within_the_tolerance(seed: int) -> None:
    model, x = tricky(seed)
    exact = nescio.score(model, x, tolerance=0.0)
    found = nescio.score(model, x, report=True)
    assert found.check is not None and found.check.exact > 0 and found.check.inputs == 1
    assert ((found.scores / exact - 1).abs() <= 0.02).all()
    assert found.error is not None and (found.error <= 0.021).all()
    assert int((found.error == 0).sum()) == found.check.exact  # what was computed exactly has no error
    torch.testing.assert_close(found.scores[found.error == 0], exact[found.error == 0], rtol=1e-9, atol=0)
    if seed == 0:
        assert found.check.exact < len(x) and ((found.scores / exact - 1).abs()[found.error > 0] > 1e-7).any()


def test_one_input_alone_is_computed_exactly() -> None:
    model, x = tricky()
    found = nescio.score(model, x[:1], report=True)
    assert found.error is None and found.check is None
    torch.testing.assert_close(found.scores, nescio.score(model, x[:1], tolerance=0.0), rtol=1e-12, atol=0)


def test_layers_that_are_left_out_and_would_count_are_found() -> None:
    """Gradients that grow from layer to layer faster than weights fall: the first layers have it all."""

    class Waves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin()

    torch.manual_seed(0)
    body = [part for _ in range(54) for part in (nn.Linear(12, 12), Waves())]
    model = nn.Sequential(*body, nn.Linear(12, 12)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3.0)
    x = pictures(6)
    cut = TableBuilder(
        Classifier.of(model), x, ("classes",), NormSettings("classes", decay=DECAY, tolerance=0.02)
    ).cut()
    assert cut is not None and cut.floor > 0
    exact = nescio.score(model, x, samples=0)
    found = nescio.score(model, x, samples=0, tolerance=0.02, report=True)
    assert found.check is not None and (found.check.inputs, found.check.exact) == (0, len(x))
    torch.testing.assert_close(found.scores, exact, rtol=1e-9, atol=0)


def test_what_the_check_finds_counts_for_every_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates that are off by more than they say: the check sees it, and all that may be wrong is computed."""
    model, x = deep(), pictures()
    exact = tables(model, x)
    honest = tables(model, x, decay=DECAY, tolerance=0.02)
    assert honest.check is not None and honest.check.exact == 0
    plain = completion.complete
    monkeypatch.setattr("nescio.trace.estimate.table.complete", lambda *a: (1.5 * (found := plain(*a))[0], found[1]))
    found = tables(model, x, decay=DECAY, tolerance=0.02)
    assert found.check is not None and found.check.worst == pytest.approx(1.25, abs=0.1)
    assert found.check.exact == len(x) and found.spread is not None and not found.spread.any()
    torch.testing.assert_close(found.norms, exact.norms)


def test_who_is_checked() -> None:
    error = torch.linspace(0.0, 0.03, 31, dtype=torch.float64)
    assert inputs_to_check(error, 0.02, 0).tolist() == [20]  # the largest that is within the tolerance
    assert not len(inputs_to_check(error + 1, 0.02, 0))
    many = torch.rand(6400, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.04
    chosen = inputs_to_check(many, 0.02, 0)
    assert len(chosen) == len(set(chosen.tolist())) == 100 and (many[chosen] <= 0.02).all()
    assert chosen[0] == torch.where(many <= 0.02, many, 0).argmax()
    assert torch.equal(chosen, inputs_to_check(many, 0.02, 0)) and not torch.equal(
        chosen, inputs_to_check(many, 0.02, 1)
    )


def test_how_many_times_larger_errors_are() -> None:
    made, error = torch.tensor([0.001, 0.004]), torch.tensor([0.01, 0.001])
    assert error_factor(made, error, 0.02) == pytest.approx(2.0)  # what is far within the tolerance does not matter
    assert error_factor(made, error, 0.002) == pytest.approx(4.0)
    assert error_factor(made[:1], error[:1], 0.02) == 1.0 and error_factor(made[:0], error[:0], 0.02) == 1.0


# classes


def test_many_classes_from_few_rows() -> None:
    model, x = deep(classes=200, layers=8, width=64), pictures(30, 64)
    exact = trace.class_gradients(model, x)
    few = trace.class_gradients(model, x, classes=40)
    assert few.norms.shape == exact.norms.shape and few.spread is not None and few.error is not None
    torch.testing.assert_close(few.norms[:, :, -1], exact.norms[:, :, -1])  # the last layer is computed for every class
    apart = (total(few, 0.0) / total(exact, 0.0) - 1).abs()
    assert apart.median() < 0.06 and apart.max() < 0.25
    more = (total(trace.class_gradients(model, x, classes=160), 0.0) / total(exact, 0.0) - 1).abs()
    assert more.median() < apart.median()
    whole = trace.class_gradients(model, x, classes=200)
    assert whole.spread is None and torch.equal(whole.norms, exact.norms)


def test_auto_is_exact_for_few_classes() -> None:
    x = pictures(4)
    for classes, estimated in ((40, False), (41, True)):
        found = trace.class_gradients(deep(classes, 6), x, classes="auto")
        assert (found.spread is not None) == estimated and (found.error is not None) == estimated


# the same in any batch


@pytest.mark.parametrize(
    "settings",
    [
        {"decay": DECAY, "tolerance": 0.02},
        {"classes": 20},
        {"classes": 28},
        {"sigma": 0.05, "samples": 4, "pairs": True, "decay": DECAY, "tolerance": 0.02, "classes": 20},
    ],
)
def test_estimates_do_not_depend_on_the_batch(settings: dict[str, Any]) -> None:
    wide = settings.get("classes") == 28  # for two levels of rows
    model, x = (deep(140, 24, 140), pictures(6, 140)) if wide else (deep(60), pictures(6))
    cut = TableBuilder(Classifier.of(model), x[:2], ("classes",), NormSettings("classes", **settings)).cut()
    assert cut is not None and len(cut.levels) == 1 + wide
    whole = tables(model, x, **settings).norms
    least = 1 + ("tolerance" in settings)  # one alone is computed exactly then
    alone = torch.cat([tables(model, x[i : i + least], **settings).norms for i in range(0, len(x), least)])
    torch.testing.assert_close(alone, whole, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(tables(model, x.flip(0), **settings).norms.flip(0), whole, rtol=1e-9, atol=1e-12)
    request = NormSettings("classes", **settings)
    some = trace.gradient_norms(Classifier.of(model), x, request, chunk=4)["classes"].norms
    torch.testing.assert_close(some, whole, rtol=1e-9, atol=1e-12)


# pairs


def test_pairs_are_copies_on_both_sides_without_the_input() -> None:
    x = pictures(3)
    both = noise.copies(x, 0.1, 4, 5, pairs=True).unflatten(0, (3, 4))
    torch.testing.assert_close(both.mean(1), x)
    torch.testing.assert_close(both[:, 0] - x, x - both[:, 1])
    torch.testing.assert_close(both[:, ::2] - x.unsqueeze(1), 0.1 * noise.draws(x, 2, 5).expand(3, -1, -1))


@pytest.mark.parametrize("smoothing", ["log", "mean"])
def test_gradients_of_pairs_are_averaged_over_them_alone(smoothing: Any) -> None:
    model, x = deep(4, 3), pictures(3)
    found = tables(model, x, sigma=0.3, samples=4, seed=5, pairs=True, smoothing=smoothing)
    torch.testing.assert_close(found.probabilities, model(x).softmax(1).detach())
    layers = [m for m in model if isinstance(m, nn.Linear)]
    for i in range(3):
        log_p = model(noise.copies(x[i : i + 1], 0.3, 4, 5, pairs=True)).log_softmax(1)
        ell = log_p.mean(0) if smoothing == "log" else log_p.logsumexp(0) - math.log(4)
        for c in range(4):
            for number, layer in enumerate(layers):
                grads = torch.autograd.grad(ell[c], list(layer.parameters()), retain_graph=True)
                wanted = torch.cat([g.flatten() for g in grads]).norm()
                torch.testing.assert_close(found.norms[i, c, number], wanted, rtol=1e-9, atol=0)


# bfloat16


def test_gradients_in_bfloat16_keep_the_model_and_the_probabilities() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).eval()
    x = torch.randn(24, 3, 8, 8)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    exact, found = trace.class_gradients(model, x), trace.class_gradients(model, x, precision="bfloat16")
    assert torch.equal(found.probabilities, exact.probabilities)
    assert not torch.equal(found.norms, exact.norms)
    torch.testing.assert_close(found.norms, exact.norms, rtol=0.05, atol=0.05)
    assert ranks(total(found, DECAY), total(exact, DECAY)) > 0.99
    assert all(torch.equal(t, before[name]) and t.dtype == before[name].dtype for name, t in model.state_dict().items())
    handle = model[3].register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("stop")))
    with pytest.raises(RuntimeError, match="stop"):
        trace.class_gradients(model, x, precision="bfloat16")
    handle.remove()
    assert all(t.dtype == before[name].dtype for name, t in model.state_dict().items())


# what is said of it


def test_a_report_has_the_error_and_the_check() -> None:
    model, x = deep(), pictures()
    plain = nescio.score(model, x, "regrad", sigma=0.05)
    report = nescio.score(model, x, "regrad", sigma=0.05, report=True)
    assert isinstance(report, nescio.Scored) and torch.equal(report.scores, plain)
    assert report.error is not None and report.error.shape == plain.shape and (report.error > 0).all()
    assert report.check is not None and report.check.inputs == 1 and report.check.exact == 0
    exact = nescio.score(model, x, "regrad", samples=0, report=True)
    assert exact.error is None and exact.check is None
    both = nescio.score(model, x, ["regrad", "entropy"], report=True)
    assert torch.equal(both["regrad"].scores, nescio.score(model, x)) and both["entropy"].error is None


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("classes, layers, width, levels", [(200, 8, 64, 1), (200, 24, 200, 2)])
def test_the_reported_error_is_of_the_size_of_the_error_made(
    classes: int, layers: int, width: int, levels: int, power: int
) -> None:
    model, x = deep(classes, layers, width), pictures(24, width)
    plain = {"samples": 0, "layer_decay": 0.05, "power": power}
    exact = nescio.score(model, x, "regrad", classes="exact", **plain)
    found = nescio.score(model, x, "regrad", classes=40, report=True, **plain)
    cut = TableBuilder(Classifier.of(model), x[:2], ("classes",), NormSettings("classes", classes=40)).cut()
    assert cut is not None and len(cut.levels) == levels
    assert found.error is not None
    made = (found.scores / exact - 1).abs()
    assert made.mean() / 3 < found.error.mean() < made.mean() * 3
    assert ((found.scores / exact - 1).abs() < 3 * found.error).double().mean() > 0.9


# what cannot be


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"classes": 2}, "classes='exact', 'auto' or a whole number of 3 or more; got 2"),
        ({"classes": "few"}, "got 'few'"),
        ({"precision": "int8"}, "precision=None or precision='bfloat16'; got 'int8'"),
    ],
)
def test_what_cannot_be_is_said(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        trace.class_gradients(deep(4, 2), pictures(2), **settings)
    assert words in str(error.value)


def test_pairs_are_even() -> None:
    with pytest.raises(InputError, match="an even number of copies, which come in pairs; got samples=3"):
        tables(deep(4, 2), pictures(2), sigma=0.1, samples=3, pairs=True)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"tolerance": -1}, "expected tolerance to be a finite number of at least 0 and below 1"),
        ({"tolerance": 1.0}, "expected tolerance to be"),
        ({"classes": 1}, "expected classes to be a whole number of at least 3"),
        ({"samples": "many"}, "expected samples to be a whole number of at least 0"),
        ({"precision": "float16"}, "expected precision to be None or 'bfloat16'"),
    ],
)
def test_settings_of_scores_are_checked(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        nescio.scores.REGrad(**settings)
    assert words in str(error.value)
