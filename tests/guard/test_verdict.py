from dataclasses import replace

import pytest
import torch

from nescio.guard.verdict import Verdict, joined
from nescio.guard.wrong import Wrong
from nescio.types import InputError


def column(*values):
    return torch.tensor(values, dtype=torch.float64)


def verdict(ranks=200, wrong=None, p=(0.01, 0.04, 0.3, 0.9)):
    n = len(p)
    return Verdict(
        p_value=column(*p),
        score=column(*range(n)),
        witnesses={"doubt": column(0, 5, 3, -1)[:n], "appearance": column(4, 1, 0, 0)[:n]},
        votes={"doubt": column(0, 5, 3, -1)[:n], "appearance": column(4, 1, 0, 0)[:n]},
        beyond={"doubt": torch.tensor([90, 200, 195, 20])[:n], "appearance": torch.tensor([190, 150, 80, 10])[:n]},
        ranks=ranks,
        predicted=torch.arange(n),
        confidence=column(0.9, 0.5, 0.6, 0.99)[:n],
        wrong=wrong,
        reasons={"doubt": "The model's doubt is", "appearance": "Its edges are"},
    )


def test_foreign_at_a_level_and_by_the_share_of_mistakes_among_the_flagged():
    own = verdict()
    assert own.foreign(0.05).tolist() == [True, True, False, False]
    assert own.foreign(0.04).tolist() == [True, True, False, False]
    assert own.foreign(0.03).tolist() == [True, False, False, False]
    assert own.foreign(fdr=0.1).tolist() == [True, True, False, False]
    assert own.foreign(fdr=0.05).tolist() == [True, False, False, False]


def test_a_level_that_the_reference_is_too_small_for_is_refused_with_the_number():
    with pytest.raises(InputError, match=r"expected at least 500 ranks for a level of 0.01, got 200"):
        verdict().foreign(0.01)


def test_states_without_labels_take_the_witness_of_doubt():
    assert verdict().states() == ["foreign", "foreign", "unsure", "fine"]


def test_an_answer_that_the_model_itself_calls_more_likely_wrong_than_right_is_never_fine():
    own = replace(verdict(), confidence=column(0.9, 0.5, 0.6, 0.083))
    assert own.states() == ["foreign", "foreign", "unsure", "unsure"]
    only = "It looks like the reference, but the model itself gives its answer a chance of only 8.3 %."
    assert own.words()[3] == only
    without_doubt = replace(own, beyond={"appearance": own.beyond["appearance"]})
    assert without_doubt.unsure().tolist() == [False, False, False, True]
    with_labels = replace(own, wrong=Wrong(*[column(0.1, 0.1, 0.1, 0.1)] * 3))
    assert with_labels.states()[3] == "fine"  # labels know better


def test_states_with_labels_take_the_share_of_wrong_answers():
    p = column(0.1, 0.1, 0.2, 0.21)
    own = verdict(wrong=Wrong(p, p, p))
    assert own.states() == ["foreign", "foreign", "fine", "unsure"]
    assert own.words()[2:] == [
        "It looks like the reference.",
        "It looks like the reference, but 21 % of answers as doubtful as this one were wrong there.",
    ]


def test_the_witness_that_objects_most_gives_the_reason():
    assert verdict().words() == [
        "Its edges are unusual beside the reference (further out than 190 of 200).",
        "The model's doubt is unlike anything in the reference (further out than 200 of 200).",
        "It looks like the reference, but the model is unsure of its answer (further out than 195 of 200).",
        "It looks like the reference.",
    ]


def test_parts_join_to_the_whole():
    p = column(0.1, 0.1, 0.2, 0.6)
    whole = verdict(wrong=Wrong(p, p / 2, 2 * p))
    again = joined([whole[:1], whole[1:3], whole[3:]])
    assert len(again) == 4
    for name in ("p_value", "score", "predicted", "confidence"):
        assert torch.equal(getattr(again, name), getattr(whole, name))
    for name in ("doubt", "appearance"):
        assert torch.equal(again.witnesses[name], whole.witnesses[name])
        assert torch.equal(again.beyond[name], whole.beyond[name])
    assert torch.equal(again.wrong.high, whole.wrong.high)
    assert torch.equal(again.wrong.low, whole.wrong.low)
    assert again.words() == whole.words()
    assert joined([verdict()]).wrong is None
