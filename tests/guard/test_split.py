import pytest
import torch

from nescio.guard import split
from nescio.types import InputError


def test_a_hash_follows_from_the_content_alone():
    x = torch.arange(12.0).view(6, 2)
    whole = split.digests(x, 0)
    assert len(set(whole)) == 6
    assert whole == [one for part in x.split(4) for one in split.digests(part, 0)]
    assert whole[::-1] == split.digests(x.flip(0), 0)
    assert not set(whole) & set(split.digests(x, 1))
    assert whole != split.digests(x.double(), 0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64])
def test_every_type_of_number_has_one(dtype):
    x = torch.tensor([[0, 1], [1, 0], [0, 1]]).to(dtype)
    one, two, again = split.digests(x, 0)
    assert one == again != two
    assert len(split.digests(x[:, 0], 0)) == 3


def test_padding_is_no_content():
    ids, mask = torch.tensor([[5, 6, 0], [5, 6, 7]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
    whole = split.digests({"input_ids": ids, "attention_mask": mask}, 0)
    assert len(set(whole)) == 2
    more = {"input_ids": torch.tensor([[5, 6, 9, 9, 9]]), "attention_mask": torch.tensor([[1, 1, 0, 0, 0]])}
    assert split.digests(more, 0) == whole[:1]
    left = {"input_ids": torch.tensor([[9, 5, 6]]), "attention_mask": torch.tensor([[0, 1, 1]])}
    assert split.digests(left, 0) == whole[:1]


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 1.0, True, None])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(InputError, match="expected seed to be a whole number from -9223372036854775808 to"):
        split.digests(torch.zeros(1, 1), seed)


def test_equal_inputs_count_once_in_an_order_of_their_own():
    found = [b"c", b"a", b"c", b"b", b"a"]
    assert split.distinct(found).tolist() == [1, 3, 0]


@pytest.mark.parametrize("count", [20, 23, 399])
def test_of_a_small_reference_each_gives_a_rank_once_against_a_fit_to_the_others(count):
    order = torch.randperm(count)
    folds = split.folds(order, split.group_numbers(order, count, None))
    assert len(folds) == split.FOLDS
    assert sorted(torch.cat([fold.rank for fold in folds]).tolist()) == list(range(count))
    for fold in folds:
        assert sorted(torch.cat([fold.fit, fold.rank]).tolist()) == list(range(count))
        assert abs(len(fold.rank) - count / split.FOLDS) < 1


@pytest.mark.parametrize("count", [400, 1001])
def test_a_large_one_is_cut_in_halves(count):
    order = torch.randperm(count)
    (fold,) = split.folds(order, split.group_numbers(order, count, None))
    assert (len(fold.fit), len(fold.rank)) == (count // 2, count - count // 2)
    assert sorted(torch.cat([fold.fit, fold.rank]).tolist()) == list(range(count))


def test_groups_are_numbered_as_they_come_and_stay_together():
    order = torch.tensor([4, 0, 5, 2, 1])  # 3 is a copy of another input
    groups = ["a", "b", "c", "a", "b", "b"]
    belongs = split.group_numbers(order, 6, groups)
    assert belongs.tolist() == [1, 0, 2, -1, 0, 0]
    folds = split.folds(order, belongs)
    assert [sorted(fold.rank.tolist()) for fold in folds] == [[1, 4, 5], [0], [2]]
    assert all(sorted([*fold.rank.tolist(), *fold.fit.tolist()]) == [0, 1, 2, 4, 5] for fold in folds)
