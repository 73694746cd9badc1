"""Where the batch lies in a tensor: taken apart, and found from evidence alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nescio.models.batch_axis import Layout, axes_from_shapes, axis_of_size, candidates, find_layout, grown

LAYOUTS = {
    "batch first": lambda each: torch.stack(each),  # [N, 4, 5]
    "sequence first": lambda each: torch.stack(each, 1),  # [4, N, 5]
    "features first": lambda each: torch.stack(each, 2),  # [4, 5, N]
    "merged, inputs outermost": lambda each: torch.cat(each),  # [N·4, 5]
    "merged, inputs innermost": lambda each: torch.stack(each, 1).flatten(0, 1),  # [4·N, 5]
    "second, inputs outermost": lambda each: torch.cat(each, 1),  # [4, N·5]
    "second, inputs innermost": lambda each: torch.stack(each, 2).flatten(1, 2),  # [4, 5·N]
}
FOUND = dict(zip(LAYOUTS, [(0, True), (1, True), (2, True), (0, True), (0, False), (1, True), (1, False)], strict=True))


def evidence(name: str, parts: list[Tensor]) -> Tensor:
    """For each input the tensor in which all other inputs are zero."""
    every = range(len(parts))
    return torch.stack([LAYOUTS[name]([p if i == n else 0 * p for i, p in enumerate(parts)]) for n in every])


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("inputs", [2, 3, 4])
def test_found_where_it_is(name: str, inputs: int) -> None:
    parts = list(torch.randn(inputs, 4, 5))
    layout = find_layout(evidence(name, parts), inputs, range(3))
    assert layout == Layout(*FOUND[name], inputs)


@pytest.mark.parametrize("name", LAYOUTS)
def test_taken_apart_input_by_input(name: str) -> None:
    """``front`` and ``split`` bring each input's own entries together, with leading dimensions left alone."""
    parts = list(torch.randn(3, 4, 5))
    whole = LAYOUTS[name](parts)
    layout = Layout(*FOUND[name], 3)
    lead = torch.stack([whole, 2 * whole])
    for n, part in enumerate(parts):
        kept = part.flatten().sort().values
        assert torch.equal(layout.front(whole)[n].flatten().sort().values, kept)
        assert torch.equal(layout.split(whole)[n].flatten().sort().values, kept)
        assert torch.equal(layout.front(lead, 1)[1, n], 2 * layout.front(whole)[n])
        assert torch.equal(layout.split(lead, 1)[1, n], 2 * layout.split(whole)[n])
    if name.startswith("merged"):
        assert torch.equal(layout.split(whole), torch.stack(parts))
        assert torch.equal(layout.front(whole), torch.stack(parts))
    if name.startswith("second"):
        assert torch.equal(layout.split(whole), torch.stack(parts))
        assert torch.equal(layout.front(whole), torch.stack(parts).movedim(2, 1))


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_not_an_inputs_own_is_refused(name: str) -> None:
    parts = list(torch.randn(3, 4, 5))
    seen = evidence(name, parts)
    seen[1] = seen[1] + 1e-30 * seen[0]  # a trace of another input
    assert find_layout(seen, 3, range(3)) is None


def test_no_evidence_no_guess() -> None:
    zeros = torch.zeros(3, 3, 4)
    assert find_layout(zeros, 3, range(2)) is None
    one = torch.stack([torch.eye(3, 4)[n : n + 1] * torch.eye(3)[n].unsqueeze(1) for n in range(3)])
    assert find_layout(one, 3, (0,)) == Layout(0, True, 3)
    for silent in range(3):  # one input without a gradient could lie anywhere
        seen = one * (torch.arange(3) != silent).view(3, 1, 1)
        assert find_layout(seen, 3, (0,)) is None


def test_two_dimensions_that_both_explain_are_refused() -> None:
    """Features of which each input uses its own third, by chance: [3, 3] with a diagonal."""
    seen = torch.diag_embed(torch.eye(3))
    assert find_layout(seen, 3, (0,)) == Layout(0, True, 3)
    assert find_layout(seen, 3, (0, 1)) is None


@given(st.integers(3, 5), st.integers(2, 12), st.data())
def test_innermost_is_never_taken_for_outermost(inputs: int, length: int, data: st.DataObject) -> None:
    """A sequence-first model that reads some of its positions only, [T·N, F]."""
    read = data.draw(st.sets(st.integers(0, length - 1), min_size=1))
    seen = [torch.zeros(length, inputs, 2) for _ in range(inputs)]
    for n, e in enumerate(seen):
        e[sorted(read), n] = 1.0
    assert find_layout(torch.stack(seen).flatten(1, 2), inputs, (0,)) == Layout(0, False, inputs)
    batch_first = [e.transpose(0, 1).flatten(0, 1) for e in seen]
    assert find_layout(torch.stack(batch_first), inputs, (0,)) == Layout(0, True, inputs)


def test_two_inputs_are_too_few_to_tell() -> None:
    """Why a plan is found from three: position 1 of 3 of two inputs is rows 2 and 3, one in each half."""
    seen = [torch.zeros(3, 2, 1) for _ in range(2)]
    for n, e in enumerate(seen):
        e[1, n] = 1.0
    assert find_layout(torch.stack(seen).flatten(1, 2), 2, (0,)) == Layout(0, True, 2)


def test_one_input_owns_everything() -> None:
    assert find_layout(torch.zeros(1, 4, 3), 1, range(2)) == Layout(0, True, 1)
    assert find_layout(torch.ones(1), 1, ()) is None
    whole = torch.randn(2, 4, 3)
    assert torch.equal(Layout(0, True, 1).front(whole, 1), whole.unsqueeze(1))


def test_only_named_dimensions_are_looked_at() -> None:
    parts = list(torch.randn(3, 4, 5))
    assert find_layout(evidence("sequence first", parts), 3, (0,)) is None
    assert [(c.dim, c.major) for c in candidates((6, 3, 4), 3, range(3))] == [(0, True), (1, True), (0, False)]
    assert not Layout(0, True, 3).fits((4, 3))
    assert not Layout(2, True, 3).fits((3, 3))
    assert not Layout(0, True, 3).fits((0, 3))


def test_the_dimension_that_grows_with_the_batch() -> None:
    one = [torch.Size([1, 4]), torch.Size([4, 1, 5]), torch.Size([3, 3]), torch.Size([6, 2])]
    axes = (0, 1, None, 0)  # the third is shared by all inputs, the last has six rows an input
    many = [grown(shape, axis, 3) for shape, axis in zip(one, axes, strict=True)]
    assert many == [torch.Size([3, 4]), torch.Size([4, 3, 5]), torch.Size([3, 3]), torch.Size([18, 2])]
    assert axes_from_shapes(one, many, 3) == list(zip(one, axes, strict=True))


@pytest.mark.parametrize(
    "one, many",
    [
        ([(1, 4)], [(3, 4), (3, 4)]),  # another number of tensors
        ([(1, 4)], [(2, 4)]),  # not as many as there are inputs
        ([(1, 4)], [(3, 12)]),  # along two dimensions
        ([(1, 4)], [(3, 4, 1)]),  # another number of dimensions
        ([(0, 4)], [(0, 4)]),  # nothing
    ],
)
def test_shapes_that_do_not_tell(one: list[tuple[int, ...]], many: list[tuple[int, ...]]) -> None:
    assert axes_from_shapes([torch.Size(s) for s in one], [torch.Size(s) for s in many], 3) is None


def test_the_dimension_that_has_the_size_of_the_batch() -> None:
    assert axis_of_size((3, 7), 3) == axis_of_size((3, 3, 5), 3) == 0
    assert axis_of_size((7, 3, 5), 3) == 1
    assert axis_of_size((7, 3), 3) is None and axis_of_size((7, 5, 3), 3) is None and axis_of_size((), 3) is None
