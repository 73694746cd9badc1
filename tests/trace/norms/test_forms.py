"""The normal forms of a gradient against the gradient written down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nescio.trace.norms import Local, Outer, Rows, join
from nescio.trace.norms import outer as forms

sizes = st.integers(1, 5)


def outer(n: int, k: int, g: int, t: int, i: int, o: int, seed: int = 0) -> Outer:
    r = torch.Generator().manual_seed(seed)
    a = torch.randn((n, g, t, i), generator=r, dtype=torch.float64)
    return Outer(a, torch.randn((k, n, g, t, o), generator=r, dtype=torch.float64))


def rows(n: int, k: int, t: int, o: int, seed: int = 0) -> Rows:
    r = torch.Generator().manual_seed(seed)
    at = torch.randint(0, 6, (n, t), generator=r)
    return Rows(at, torch.randn((k, n, t, o), generator=r, dtype=torch.float64))


def written(form: Outer | Rows | Local) -> Tensor:
    """The gradient [K, N, ...] itself, by the definition."""
    if isinstance(form, Local):
        return form.g
    if isinstance(form, Outer):
        return torch.einsum("kngto,ngti->kngoi", form.d, form.a)
    hot = torch.nn.functional.one_hot(form.at, 6).double()
    return torch.einsum("knto,ntr->knro", form.d, hot)


def power(g: Tensor, p: int) -> Tensor:
    return (g.abs() ** p).flatten(2).sum(2)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Which of the ways `Outer.power` went."""
    taken: list[str] = []
    explicit = Outer._explicit

    def noted(self: Outer, p: int) -> Tensor:
        taken.append("explicit")
        return explicit(self, p)

    monkeypatch.setattr(Outer, "_explicit", noted)
    yield taken


@given(sizes, sizes, sizes, sizes, sizes, sizes, st.sampled_from([1, 2]))
def test_outer_is_the_written_gradient(n: int, k: int, g: int, t: int, i: int, o: int, p: int) -> None:
    form = outer(n, k, g, t, i, o)
    torch.testing.assert_close(form.power(p), power(written(form), p), rtol=1e-11, atol=0)
    torch.testing.assert_close(form._explicit(p), power(written(form), p), rtol=1e-11, atol=0)


@pytest.mark.parametrize(
    "shape, way",
    [((2, 3, 2, 3, 20, 20), []), ((2, 3, 2, 30, 4, 4), ["explicit"]), ((2, 3, 2, 1, 4, 4), [])],
    ids=["few positions", "many positions", "one position"],
)
def test_the_cheaper_way_is_taken_and_both_agree(shape: tuple[int, ...], way: list[str], ways: list[str]) -> None:
    form = outer(*shape)
    found = form.power(2)
    assert ways == way
    torch.testing.assert_close(found, power(written(form), 2), rtol=1e-12, atol=0)
    torch.testing.assert_close(found, form._explicit(2), rtol=1e-12, atol=0)
    ways.clear()
    form.power(1)
    assert ways == ([] if shape[3] == 1 else ["explicit"])  # Gram matrices know nothing of absolute values


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 1, 2, 4, 3), (1, 2, 3, 0, 4), (3, 1, 4, 2, 0)], ids=str)
@pytest.mark.parametrize("p", [1, 2])
def test_wherever_the_numbers_lie_in_memory(order: tuple[int, ...], p: int) -> None:
    """Output gradients come with channels last, with cotangents innermost, and so on."""
    for t in (3, 30):
        form = outer(2, 3, 2, t, 8, 9)
        lying = form.d.permute(order).contiguous().permute(*(order.index(i) for i in range(5)))
        assert lying.stride() != form.d.stride() or order == tuple(range(5))
        a = form.a.movedim(2, 0).contiguous().movedim(0, 2)
        torch.testing.assert_close(Outer(a, lying).power(p), power(written(form), p), rtol=1e-11, atol=0)


@given(st.integers(1, 7), st.integers(1, 4), st.integers(1, 3), st.integers(1, 400))
def test_slices_smaller_than_a_batch(n: int, k: int, g: int, budget: int) -> None:
    form = outer(n, k, g, 4, 3, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(forms.SLICE_BYTES, "cpu", budget)
        for p in (1, 2):
            torch.testing.assert_close(form._explicit(p), power(written(form), p), rtol=1e-11, atol=0)


@given(st.integers(1, 4), st.integers(1, 4), sizes, sizes, st.sampled_from([1, 2]))
def test_merge_sums_adjacent_inputs(inputs: int, copies: int, k: int, t: int, p: int) -> None:
    n = inputs * copies
    local = Local(torch.randn(k, n, 5, dtype=torch.float64))
    for form in (outer(n, k, 2, t, 3, 4), rows(n, k, t, 3), local):
        g = written(form)
        summed = torch.stack([g[:, s : s + copies].sum(1) for s in range(0, n, copies)], 1)
        merged = form.merge(copies)
        torch.testing.assert_close(merged.power(p), power(summed, p), rtol=1e-10, atol=1e-14)
        assert copies > 1 or merged is form


@given(st.lists(sizes, min_size=1, max_size=4), st.sampled_from([1, 2]))
def test_join_sums_gradients_of_one_parameter(positions: list[int], p: int) -> None:
    several: list[list[Outer] | list[Rows] | list[Local]] = [
        [outer(2, 3, 2, t, 3, 4, seed) for seed, t in enumerate(positions)],
        [rows(2, 3, t, 4, seed) for seed, t in enumerate(positions)],
        [Local(torch.randn(3, 2, 5, dtype=torch.float64)) for _ in positions],
    ]
    for parts in several:
        total = torch.stack([written(part) for part in parts]).sum(0)
        torch.testing.assert_close(join(parts).power(p), power(total, p), rtol=1e-10, atol=1e-14)


@given(sizes, sizes, st.integers(1, 12), sizes, st.sampled_from([1, 2]))
def test_rows_that_repeat_add_up(n: int, k: int, t: int, o: int, p: int) -> None:
    form = rows(n, k, t, o, seed=t)
    torch.testing.assert_close(form.power(p), power(written(form), p), rtol=1e-11, atol=0)


def test_absolute_values_and_squares_of_known_numbers() -> None:
    g = torch.tensor([[[3.0, -4.0], [0.0, 2.0]]])
    assert Local(g).power(1).tolist() == [[7.0, 2.0]]
    assert Local(g).power(2).tolist() == [[25.0, 4.0]]
    assert Local(g.bfloat16()).power(2).dtype == torch.float32
    two = Outer(torch.tensor([[[[1.0, 2.0], [1.0, 0.0]]]]), torch.tensor([[[[[3.0], [-1.0]]]]]))  # 3·(1, 2) − (1, 0)
    assert two.power(2).tolist() == [[40.0]]
    assert two.power(1).tolist() == [[8.0]]


def test_positions_that_cancel_give_no_negative_square() -> None:
    """A blank picture before a norm that takes the mean away: every position has the same input, and Σ δ = 0."""
    for seed in range(20):
        form = outer(1, 4, 1, 8, 64, 64, seed)
        a = form.a[:, :, :1].expand(1, 1, 8, 64).float()
        d = (form.d - form.d.mean(3, keepdim=True)).float()
        found = Outer(a, d).power(2)
        assert (found >= 0).all()
        assert found.sqrt().max() < 1e-2 * (d.norm() * a.norm())


@pytest.mark.parametrize("t", [3, 40])
def test_float32_keeps_its_digits(t: int) -> None:
    form = outer(2, 3, 2, t, 30, 30)
    found = Outer(form.a.float(), form.d.float()).power(2)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), power(written(form), 2), rtol=2e-6, atol=0)


@given(sizes, sizes, sizes, sizes, sizes, sizes, st.sampled_from([1, 2]), st.booleans())
def test_outer_in_every_way_of_a_gpu(n: int, k: int, g: int, t: int, i: int, o: int, p: int, last: bool) -> None:
    """Many cotangents in one product, or one product for each; with features or positions adjacent in memory."""
    form = outer(n, k, g, t, i, o)
    form = form if last else Outer(form.a, form.d.mT.contiguous().mT)
    wanted = power(written(form), p)
    for found in (form._in_slices(p, max(1, n - 1), k), form._in_slices(p, n, 1), form._with_a_repeated(p)):
        torch.testing.assert_close(found, wanted)
