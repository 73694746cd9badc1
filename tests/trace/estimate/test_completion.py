"""Entries that are completed: exactly where classes have layers in proportion, and otherwise near what is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nescio import trace
from nescio.models import Classifier
from nescio.trace.estimate import completion
from nescio.trace.estimate.cut import HEAVY, Cut, Level, plan_cut
from nescio.trace.estimate.table import TableBuilder
from nescio.trace.probe.layers import Layers
from nescio.types import NormSettings
from tests.trace.estimate.helpers import DECAY, deep, pictures, tables, total


def test_classes_are_drawn_in_proportion() -> None:
    weights = torch.tensor([[0.0, 1.0], [6.0, 1.0], [2.0, 1.0], [0.0, 1.0], [4.0, 0.0]], dtype=torch.float64)
    drawn = completion._draw(weights, 12)
    assert drawn.shape == (12, 2)
    assert drawn[:, 0].bincount(minlength=5).tolist() == [0, 6, 2, 0, 4]
    assert drawn[:, 1].bincount(minlength=5).tolist() == [3, 3, 3, 3, 0]
    assert completion._draw(torch.zeros(5, 1, dtype=torch.float64), 3).max() <= 4


def completed(
    table: Tensor, p: Tensor, cut: Cut, above: Tensor | None = None, lying: Tensor | None = None
) -> tuple[Tensor, Tensor, list[tuple[int, Tensor]]]:
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
        last = table[:, :, cut.top :]
        values, spread = completion.complete(z, 1, "log", p, layers, cut, last, True, rows, above, lying)
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
def test_lines_are_those_of_least_squares(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    at = torch.rand(2, 12, 3, generator=generator, dtype=torch.float64)
    every = 3 * torch.rand(2, 30, 3, generator=generator, dtype=torch.float64) - 1
    known = 2 + at[0, :, :, None] - 0.5 * at[1, :, :, None] + 0.3 * torch.rand(12, 3, 4, generator=generator)
    found, left = completion._line(known, at, every, torch.ones(3, dtype=torch.bool))
    for i in range(3):
        a = torch.cat([torch.ones(12, 1), at[:, :, i].T], 1)
        slopes = torch.linalg.lstsq(a, known[:, i]).solution
        torch.testing.assert_close(left[:, i], known[:, i] - a @ slopes, rtol=1e-6, atol=1e-6)
        least, most = at[:, :, i].aminmax(dim=1, keepdim=True)
        beyond = completion.BEYOND * (most - least)
        near = every[:, :, i].clamp(least - beyond, most + beyond)
        wanted = torch.cat([torch.ones(30, 1), near.T], 1) @ slopes
        wanted = wanted.clamp(known[:, i].amin(0) / 2, 2 * known[:, i].amax(0))
        torch.testing.assert_close(found[:, i], wanted, rtol=1e-6, atol=1e-6)


def test_what_classes_do_not_differ_in_bends_no_line() -> None:
    known = torch.rand(9, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    same = torch.full((2, 9, 2), 0.1, dtype=torch.float64) * (1 + 1e-15 * torch.arange(9).double()[:, None])
    enough = torch.ones(2, dtype=torch.bool)
    found, left = completion._line(known, same, same[:, :4], enough)
    torch.testing.assert_close(found, known.mean(0).expand(4, 2, 3))
    torch.testing.assert_close(left, known - known.mean(0))
    assert not completion._line(0 * known, 0 * same, 0 * same, enough)[0].any()


def test_no_line_is_fitted_to_a_few_classes_that_are_drawn_again_and_again() -> None:
    generator = torch.Generator().manual_seed(0)
    above, lying = torch.rand(60, 2, generator=generator).double() + 0.5, torch.rand(2, 60, 2, generator=generator)
    above[:3, 0] = 1e4  # three classes of the first input have nearly all of its weight
    table = torch.rand(60, 2, 11, generator=generator, dtype=torch.float64) + 0.5
    p, cut = torch.full((2, 60), 1 / 60, dtype=torch.float64), Cut(10, (Level(0, 1, 20),), 0.0, closed=True)
    (values, _, taken), (plain, _, _) = (completed(table, p, cut, above, one) for one in (lying.double(), None))
    rows = taken[0][1][1:]
    assert len(rows[:, 0].unique()) < completion.FITTED <= len(rows[:, 1].unique())
    torch.testing.assert_close(values[:, 0], plain[:, 0])
    assert not torch.allclose(values[:, 1], plain[:, 1])


@given(seed=st.integers(0, 10_000))
def test_below_a_head_what_lies_on_a_line_is_completed_exactly(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64) + 0.5

    above, lying, p = drawn(60, 2), drawn(2, 60, 2), torch.full((2, 60), 1 / 60, dtype=torch.float64)
    slopes = drawn(3, 2, 10)
    squares = above.unsqueeze(2) * (slopes[0] + lying[0].unsqueeze(2) * slopes[1] + lying[1].unsqueeze(2) * slopes[2])
    squares[:, :, :5] = squares[:, :, 5:].sum(2, keepdim=True) * drawn(1, 2, 5)  # in proportion to those behind
    table = torch.cat([squares.sqrt(), drawn(60, 2, 1)], 2)
    cut = Cut(10, (Level(5, 4, 20), Level(0, 1, 4)), 0.0, closed=True)
    values, spread, _ = completed(table, p, cut, above, lying)
    torch.testing.assert_close(values, table, rtol=1e-6, atol=0)
    assert float(spread.max()) < 1e-5
    plain = completed(table, p, cut, above)
    assert (plain[0] / table - 1).abs().max() > 0.02 and float(plain[1].max()) > 1e-2


@pytest.mark.parametrize("seed", [0, 1])
def test_a_line_comes_closer_on_a_network_that_pools_what_relus_let_through(seed: int) -> None:
    torch.manual_seed(seed)
    body = [part for i in range(4) for part in (nn.Conv2d(48 if i else 3, 48, 3, 1 + (i == 0), 1), nn.ReLU())]
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 200)).double().eval()
    x, apart = pictures(16, 3 * 256).unflatten(1, (3, 16, 16)), []
    exact = tables(model, x)
    for fitted in (8, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(completion, "FITTED", fitted)
            found = tables(model, x, classes=60, decay=DECAY)
        assert found.spread is not None
        error = (total(found, DECAY) / total(exact, DECAY) - 1).abs()
        reported = total(replace(found, norms=found.norms + found.spread), DECAY) / total(found, DECAY) - 1
        assert (error <= 3 * reported).double().mean() > 0.9
        each = found.norms[:, :, -2].square() / exact.norms[:, :, -2].square()  # of every class, below the head
        apart.append((each - 1).square().mean().sqrt())
    assert apart[0] < 0.8 * apart[1]


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


@pytest.mark.parametrize("smoothing", ["log", "mean"])
@pytest.mark.parametrize("copies", [{"samples": 3}, {"samples": 2, "pairs": True}])
def test_and_so_it_is_of_noisy_copies_below_a_head(
    copies: dict[str, Any], smoothing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = deep(classes=7, layers=6), pictures(3)
    exact = tables(model, x, sigma=0.1, smoothing=smoothing, **copies)
    if "pairs" not in copies:
        wanted = trace.reference.class_gradients(model, x, sigma=0.1, smoothing=smoothing, **copies)
        torch.testing.assert_close(exact.norms, wanted.norms, rtol=1e-9, atol=0)
    whole = Cut(5, (Level(2, 7, 0), Level(0, 7, 0)), 0.0, closed=True)
    monkeypatch.setattr("nescio.trace.estimate.table.plan_cut", lambda *_: whole)
    found = tables(model, x, sigma=0.1, smoothing=smoothing, classes=6, tolerance=0.02, **copies)
    torch.testing.assert_close(found.norms, exact.norms, rtol=1e-9, atol=0)
    assert found.spread is not None and not found.spread.any()


def test_rows_are_dealt_to_groups_of_copies_and_the_likeliest_class_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Tensor] = []
    monkeypatch.setattr(completion.cotangents, "build", lambda *a: a[4])
    generator = torch.Generator().manual_seed(0)
    table = (torch.rand(30, 3, 1, generator=generator) + 0.5) * (torch.rand(1, 3, 11, generator=generator) + 0.5)
    table, above = table.double(), table[:, :, -1].double().square() * 2
    p = torch.randn(3, 30, generator=generator).double().softmax(1)
    names = tuple(str(i) for i in range(11))
    cut = Cut(10, (Level(5, 3, 9), Level(0, 1, 5)), 0.0, closed=True, groups=2)
    for apart in (1.0, 1.1):  # how much further the second group's gradients go than what it sends down
        sent = torch.tensor([1.0, 3.0]).double().repeat(3)  # groups differ in how much they send down
        further = torch.tensor([1.0, apart]).double().repeat(3)

        def rows(start: int, stop: int | None, chosen: Any, scale: Tensor = sent * further) -> Tensor:
            taken.append(chosen)
            each = table.repeat_interleave(2, 1) * scale[:, None] if chosen.shape[1] == 6 else table  # of all copies
            return each.gather(0, chosen.unsqueeze(2).expand(-1, -1, 11))[:, :, start:stop]

        parts = above.repeat_interleave(2, 1) * sent.square()
        layers = Layers(names, tuple((name,) for name in names))
        arguments: Any = (None, 4, "log", p, layers, cut, table[:, :, 10:], True, rows, above, None, parts)
        values, spread = completion.complete(*arguments)
        likeliest = p.argmax(1)
        near, whole, deep = taken[-3:]
        assert near.shape == (6, 6) and deep.shape == (3, 6)
        assert torch.equal(whole, likeliest.unsqueeze(0))
        assert torch.equal(near[0], likeliest.repeat_interleave(2)) and torch.equal(deep[0, ::2], likeliest)
        assert not torch.equal(deep[0], deep[0].roll(1))
        if apart == 1.0:
            torch.testing.assert_close(values, table)
            assert float(spread.max()) < 1e-6
        else:
            torch.testing.assert_close(values, table, rtol=0.11, atol=0.0)
            at = likeliest, torch.arange(3)
            torch.testing.assert_close(values[at][:, 5:], table[at][:, 5:])
            assert not spread[at][:, 5:].any() and spread[at][:, :5].all()
            # by how much groups lie too high is known from the class that both have: others are right on the mean
            squares = (values / table).square()[:, :, :10]
            mean = (1 + apart**2) / 2
            for group in range(2):
                rows = near[2:, group::2]
                found = squares.gather(0, rows.unsqueeze(2).expand(-1, -1, 10))[:, :, 5:]
                torch.testing.assert_close(found, torch.full_like(found, apart ** (2 * group) / mean))
            assert (squares.mean((0, 1)) - 1).abs().max() < 0.02
            assert ((values / table - 1).abs() <= 2 * spread / table + 1e-9).all()


def test_rows_that_were_computed_are_exact() -> None:
    model, x = deep(), pictures(9)
    exact, found = tables(model, x), tables(model, x, decay=DECAY, tolerance=0.02)
    assert found.spread is not None
    cut = plan_cut(12, [1.0] * 24, "exact", DECAY, 0.02)
    assert cut is not None
    known = found.spread[:, :, cut.floor : cut.top].eq(0).all(2)
    assert (known.sum(1) == HEAVY).all()
    torch.testing.assert_close(found.norms[known][:, cut.floor :], exact.norms[known][:, cut.floor :])


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


@pytest.mark.parametrize(
    "settings",
    [
        {"decay": DECAY, "tolerance": 0.02},
        {"classes": 20},
        {"classes": 28},
        {"classes": 20, "decay": 1.0, "tolerance": 0.02},  # so that rows end before the first layer
        {"sigma": 0.05, "samples": 4, "pairs": True, "decay": DECAY, "tolerance": 0.02, "classes": 20},
    ],
)
def test_estimates_do_not_depend_on_the_batch(settings: dict[str, Any]) -> None:
    wide = settings.get("classes") == 28
    model, x = (deep(140, 24, 140), pictures(6, 140)) if wide else (deep(60), pictures(6))
    cut = TableBuilder(Classifier.of(model), x[:2], ("classes",), NormSettings("classes", **settings)).cut()
    closed = "classes" in settings
    assert cut is not None and cut.closed == closed and len(cut.levels) == 1 + closed
    assert cut.groups == (2 if "pairs" in settings else 1)
    whole = tables(model, x, **settings).norms
    least = 1 + ("tolerance" in settings and not closed)  # one alone is computed exactly then
    alone = torch.cat([tables(model, x[i : i + least], **settings).norms for i in range(0, len(x), least)])
    torch.testing.assert_close(alone, whole, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(tables(model, x.flip(0), **settings).norms.flip(0), whole, rtol=1e-9, atol=1e-12)
    request = NormSettings("classes", **settings)
    some = trace.gradient_norms(Classifier.of(model), x, request, chunk=4)["classes"].norms
    torch.testing.assert_close(some, whole, rtol=1e-9, atol=1e-12)
