import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from nescio import inputs
from nescio.types import InputError


def both(count: int) -> list[inputs.Inputs]:
    x = torch.arange(count * 6, dtype=torch.float32).reshape(count, 2, 3)
    return [x, {"ids": torch.arange(count * 2).reshape(count, 2), "values": x}]


def same(a: inputs.Inputs, b: inputs.Inputs) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)


@pytest.mark.parametrize("kind", [0, 1])
@given(count=st.integers(0, 9), cuts=st.lists(st.integers(0, 9), max_size=4))
@settings(max_examples=30, deadline=None)
def test_taking_parts_and_joining_them_gives_the_batch_back(kind, count, cuts):
    x = both(count)[kind]
    edges = [0, *sorted(min(cut, count) for cut in cuts), count]
    parts = [inputs.take(x, slice(a, b)) for a, b in itertools.pairwise(edges)]
    assert sum(inputs.size(part) for part in parts) == count == inputs.size(x)
    assert same(inputs.concatenate(parts), x)


@pytest.mark.parametrize("kind", [0, 1])
@given(count=st.integers(0, 5), copies=st.integers(0, 4))
@settings(max_examples=30, deadline=None)
def test_copies_of_an_input_are_adjacent(kind, count, copies):
    x = both(count)[kind]
    repeated = inputs.repeat(x, copies)
    assert inputs.size(repeated) == count * copies
    for i in range(count):
        for j in range(copies):
            assert same(inputs.take(repeated, [i * copies + j]), inputs.take(x, [i]))


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(
    "index", [[2, 0], torch.tensor([2, 0]), torch.tensor([True, False, True]), slice(None, None, 2)]
)
def test_take_accepts_slices_positions_and_masks(kind, index):
    x = both(3)[kind]
    order = (
        [2, 0] if isinstance(index, list) or (isinstance(index, torch.Tensor) and index.dtype != torch.bool) else [0, 2]
    )
    assert same(inputs.take(x, index), inputs.concatenate([inputs.take(x, slice(i, i + 1)) for i in order]))


def test_take_refuses_an_index_that_is_no_list():
    with pytest.raises(InputError, match=r"expected a slice or a list of positions, got an index of shape \[\]"):
        inputs.take(torch.zeros(3), torch.tensor(1))


def test_to_changes_the_type_of_floating_tensors_only():
    moved = inputs.to({"ids": torch.arange(3), "values": torch.zeros(3, 2)}, "cpu", torch.float64)
    assert moved["ids"].dtype == torch.int64 and moved["values"].dtype == torch.float64
    x = torch.zeros(2)
    assert inputs.to(x, None) is x
    assert inputs.to(x, "meta").is_meta


def test_floating_is_true_if_any_tensor_is():
    assert inputs.is_floating(torch.zeros(1)) and not inputs.is_floating(torch.zeros(1, dtype=torch.uint8))
    assert inputs.is_floating({"a": torch.arange(1), "b": torch.zeros(1)})
    assert not inputs.is_floating({"a": torch.arange(1)})


def test_size_is_that_of_every_entry():
    assert inputs.size(torch.zeros(0, 3)) == 0
    with pytest.raises(InputError, match=r"got first dimensions 'a': 2, 'b': 3; give every entry one row"):
        inputs.size({"a": torch.zeros(2), "b": torch.zeros(3)})
    with pytest.raises(InputError, match=r"a tensor without dimensions; add one with x.unsqueeze\(0\)"):
        inputs.size(torch.tensor(1.0))
    with pytest.raises(InputError, match=r"expected a tensor \[N, ...\] or a mapping.*got a mapping \{\}"):
        inputs.size({})


def test_concatenate_says_what_does_not_fit():
    x = torch.zeros(1, 2)
    with pytest.raises(InputError, match="at least one batch to concatenate, got none"):
        inputs.concatenate([])
    with pytest.raises(InputError, match=r"one shape and type, got .*shape \[1, 2\].*shape \[1, 3\]; bring the inputs"):
        inputs.concatenate([x, torch.zeros(1, 3)])
    with pytest.raises(InputError, match=r"one shape and type, got .*float32.*float64"):
        inputs.concatenate([x, x.double()])
    with pytest.raises(InputError, match=r"in entry 'ids'"):
        inputs.concatenate([{"ids": x}, {"ids": torch.zeros(1, 5)}])
    with pytest.raises(InputError, match="tensors and mappings together"):
        inputs.concatenate([x, {"ids": x}])
    with pytest.raises(InputError, match=r"the same entries \['ids'\], got a mapping \{'tokens'"):
        inputs.concatenate([{"ids": x}, {"tokens": x}])
    with pytest.raises(InputError, match=r"the same entries \['ids'\], got a tensor"):
        inputs.concatenate([{"ids": x}, x])


def test_repeat_refuses_a_negative_number():
    with pytest.raises(InputError, match="copies >= 0, got -1"):
        inputs.repeat(torch.zeros(1), -1)


def test_one_batch_is_given_once():
    x = torch.zeros(3, 2)
    assert [b is x for b in inputs.batches(x)] == [True]
    (only,) = inputs.batches({"x": x})
    assert only["x"] is x


def test_a_loader_gives_the_first_item_of_each_batch():
    x, y = torch.arange(10.0).reshape(5, 2), torch.arange(5)
    for loader in (
        DataLoader(TensorDataset(x, y), batch_size=2),
        DataLoader(TensorDataset(x), batch_size=2),
        [x[:2], x[2:]],
        (part for part in (x[:3], x[3:])),
        [(x, y)],
        [[x, y]],
    ):
        assert torch.equal(inputs.concatenate(list(inputs.batches(loader))), x)


def test_a_loader_of_mappings_keeps_the_names():
    parts = list(inputs.batches([{"ids": torch.arange(2)}, ({"ids": torch.arange(3)}, torch.zeros(3))]))
    assert [inputs.size(part) for part in parts] == [2, 3]
    assert all(set(part) == {"ids"} for part in parts)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(3, 2),
        np.arange(6.0).reshape(3, 2)[::-1],
        np.arange(6, dtype=">i4").reshape(3, 2),
        np.arange(6, dtype=np.uint8).reshape(3, 2),
        np.broadcast_to(np.arange(2.0), (3, 2)),
        np.frombuffer(np.arange(6.0).tobytes()).reshape(3, 2),
    ],
)
def test_arrays_become_tensors_of_the_same_numbers(array):
    (x,) = inputs.batches(array)
    assert x.tolist() == array.tolist()
    assert x.is_floating_point() == (array.dtype.kind == "f")
    x += 1  # the tensor can be written to without a warning, even where the array is read-only


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("images/", r"got the text 'images/'; load the file first"),
        (b"bytes", r"got the text .*; load the file first"),
        (3, "an iterable of batches, got an object of type int"),
        (None, "an iterable of batches, got None"),
        (torch.nn.Linear(1, 1), r"got a model \(Linear\); the model comes first"),
        (
            TensorDataset(torch.zeros(2, 3)),
            r"the dataset TensorDataset, which gives single examples; wrap it: .*DataLoader",
        ),
        (
            (torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)),
            r"looks like inputs with their labels.*\[\(inputs, labels\)\]",
        ),
        ((np.zeros((2, 3)), np.zeros(2, dtype=int)), "looks like inputs with their labels"),
        ([], "expected at least one batch, got none from a list of 0 items"),
        (iter(()), "got none from an object of type tuple_iterator; an iterator can be read only once"),
        (["a", "b"], "got an object of type str as batch 0"),
        ([torch.zeros(1, 2), None], "got None as batch 1"),
        ([()], r"got a tuple of 0 items as batch 0"),
        ([0.5, 0.5], "got a list of 2 numbers, which is one input at most"),
        ([((torch.zeros(1), torch.zeros(1)), 0)], "several inputs a mapping of argument names to tensors"),
        ({"ids": [[1, 2], [3, 4]]}, r"as the input\['ids'\]; make it a tensor first: .*return_tensors='pt'"),
        ({}, "without any entry; put the model's keyword arguments in it"),
        (np.array(["a", "b"]), "give an array of numbers"),
        (torch.tensor(3.0), "a tensor without dimensions"),
    ],
)
def test_what_is_no_data_is_refused_in_words(data, words):
    with pytest.raises(InputError, match=words):
        list(inputs.batches(data))


def test_a_pair_of_batches_is_not_taken_for_inputs_and_labels():
    x = torch.zeros(2, 3)
    assert len(list(inputs.batches((x, x)))) == 2
    assert len(list(inputs.batches((x, torch.zeros(2))))) == 2


def test_a_source_is_read_one_batch_at_a_time():
    read = []

    def source():
        for i in range(3):
            read.append(i)
            yield torch.zeros(1, 1)

    first = next(iter(inputs.batches(source())))
    assert read == [0] and inputs.size(first) == 1


def test_descriptions_are_short():
    assert inputs.describe(torch.zeros(2, 3)) == "a tensor of float32 and shape [2, 3]"
    assert inputs.describe({str(i): 1 for i in range(9)}).endswith(", ...}")
    assert (
        inputs.describe(((1, 2), 3))
        == "a tuple of 2 items, the first a tuple of 2 items, the first an object of type int"
    )


def test_labelled_data_is_a_pair_or_pairs() -> None:
    x, y = torch.randn(3, 2), torch.tensor([0, 2, 1], dtype=torch.int32)
    for data in ((x, y), [(x, y)], [[x, y.numpy()]], [(x, [0, 2, 1])], DataLoader(TensorDataset(x, y), 3)):
        ((inputs_, labels),) = inputs.labelled(data)
        assert torch.equal(inputs_, x) and labels.dtype == torch.int64 and labels.tolist() == [0, 2, 1]
    ((given, _),) = inputs.labelled(({"x": x}, y))
    assert torch.equal(given["x"], x)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (torch.zeros(3, 2), "labels are needed"),
        ([], "got none"),
        ([(torch.zeros(3, 2), torch.zeros(3))], "whole numbers"),
        ([(torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64))], "3 whole numbers"),
        ([(torch.zeros(2, 2), torch.tensor([0, -1]))], "from 0, got -1"),
        ((torch.zeros(3, 2),), "labels are needed"),
    ],
)
def test_labelled_data_that_is_not(data: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        list(inputs.labelled(data))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_is_refused_with_the_remedy(layout):
    x = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=layout)
    for batch in (x, {"x": x}):
        with pytest.raises(InputError, match=r"got a nested tensor as .*to_padded_tensor"):
            inputs.as_inputs(batch)
