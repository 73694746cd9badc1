import numpy as np
import pytest
import torch

from nescio import decide
from nescio.decide import explain
from nescio.types import Decomposition, InputError


def parts(epistemic, aleatoric):
    e, a = torch.as_tensor(epistemic, dtype=torch.float64), torch.as_tensor(aleatoric, dtype=torch.float64)
    return Decomposition(total=e + a, aleatoric=a, epistemic=e, variance=e, max_probability=a, bregman=e)


KNOWN = parts(np.arange(100) / 100, np.arange(100) / 10)


def test_the_four_kinds():
    found = explain(parts([0.5, 5.0, 0.5, 5.0], [5.0, 5.0, 50.0, 50.0]), KNOWN)
    assert [e.kind for e in found] == ["sure", "unfamiliar", "ambiguous", "both"]
    assert [e.advice for e in found] == ["accept", "ask a person", "ask a person", "ask a person"]
    assert [e.rank_epistemic for e in found] == [0.5, 1.0, 0.5, 1.0]
    assert [e.rank_aleatoric for e in found] == [0.5, 0.5, 1.0, 1.0]
    assert "50 of 100 known inputs are less unfamiliar" in found[0].text and found[0].text.endswith("can be used.")
    assert "has seen little like this" in found[1].text and "all of 100 known inputs" in found[1].text
    assert "checked by a person" in found[1].text and "at most 5 % of known inputs" in found[1].text
    assert "More data of this kind would not help" in found[2].text and "seen little" not in found[2].text
    assert "seen little" in str(found[3]) and "More than one answer" in str(found[3])


def test_the_flag_follows_the_stated_share_and_the_rank_alone():
    # (1 + #{u ≥ v})/(101) ≤ 0.05: at most four known inputs at or above
    flags = [e.kind for e in explain(parts([0.95, 0.951, 0.96], [0.0, 0.0, 0.0]), KNOWN)]
    assert flags == ["sure", "unfamiliar", "unfamiliar"]
    scaled = parts(KNOWN.epistemic.exp(), KNOWN.aleatoric)
    assert [e.kind for e in explain(parts(np.exp([0.95, 0.951, 0.96]), [0.0] * 3), scaled)] == flags
    assert explain(parts([0.9], [0.0]), KNOWN, alarm=0.2)[0].kind == "unfamiliar"


def test_known_inputs_are_seldom_flagged():
    rng = np.random.default_rng(0)
    flagged = []
    for _ in range(300):
        u = rng.integers(0, 40, 60)  # with ties
        flagged.append(explain(parts(u[:1], [0.0]), parts(u[1:], rng.random(59)), alarm=0.1)[0].kind == "unfamiliar")
    assert 0 < np.mean(flagged) <= 0.1 + 3 * np.sqrt(0.09 / 300)


def test_a_policy_decides():
    policy = decide.quantile(np.arange(100), 0.9)
    found = explain(parts([0.5, 5.0], [5.0, 5.0]), KNOWN, policy, scores=[1000.0, 0.0])
    assert [(e.kind, e.advice) for e in found] == [("sure", "ask a person"), ("unfamiliar", "accept")]
    assert "checked by a person, by the rule that was set" in found[0].text
    assert "accepted, all the same by the rule" in found[1].text


def test_rivals_are_named():
    p = [[0.1, 0.44, 0.46]]
    text = explain(parts([0.0], [50.0]), KNOWN, probabilities=p, class_names=["cat", "dog", "fox"])[0].text
    assert "The likeliest are “fox” (46 %) and “dog” (44 %)." in text
    assert "class 2 (46 %) and class 1" in explain(parts([0.0], [50.0]), KNOWN, probabilities=p)[0].text


def test_a_rank_is_never_rounded_up():
    text = explain(parts([0.989], [0.0]), parts(np.arange(1000) / 1000, np.zeros(1000)))[0].text
    assert "than 989 of 1000 known" in text
    few = explain(parts([0.5], [0.0]), parts(np.arange(25) / 25, np.zeros(25)))[0].text
    assert "13 of 25 known inputs are less unfamiliar" in few  # and not so many of 100


def test_doubt_that_nothing_tells_apart_is_called_neither_unfamiliar_nor_ambiguous():
    known = parts(np.zeros(100), np.arange(100) / 10)
    sure, doubtful = explain(parts([0.0, 0.0], [5.0, 50.0]), known, probabilities=[[0.9, 0.1], [0.6, 0.4]])
    assert (sure.kind, doubtful.kind) == ("sure", "doubtful")
    assert (sure.advice, doubtful.advice) == ("accept", "ask a person")
    assert sure.text.startswith(
        "The model is about as sure as of known inputs: 50 of 100 known inputs are less doubtful."
    )
    assert doubtful.text.startswith(
        "The model is unsure: this is more doubtful than all of 100 known inputs. The likel"
    )
    for one in (sure, doubtful):
        assert "unfamiliar" not in one.text and "ambiguous" not in one.text and "More" not in one.text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: explain(parts([1.0], [1.0]), parts(np.ones(18), np.ones(18))),
            "at least 19 known inputs to flag one in 20",
        ),
        (lambda: explain(parts([np.nan], [1.0]), KNOWN), "decomposition.epistemic: expected numbers"),
        (lambda: explain(parts([], []), KNOWN), "at least one score"),
        (lambda: explain([1.0], KNOWN), "expected a Decomposition"),
        (lambda: explain(KNOWN, None), "reference: expected a Decomposition"),
        (lambda: explain(KNOWN, KNOWN, scores=[1.0]), "expected a policy"),
        (lambda: explain(KNOWN, KNOWN, decide.quantile([1.0])), "expected the scores that the policy judges"),
        (lambda: explain(KNOWN, KNOWN, decide.quantile([1.0]), scores=[1.0]), "each of the 100 inputs, but got 1"),
        (lambda: explain(KNOWN, KNOWN, probabilities=[[0.5, 0.5]]), "each of the 100 inputs, but got 1"),
        (lambda: explain(KNOWN, KNOWN, class_names=["a"]), "expected probabilities"),
        (
            lambda: explain(parts([1.0], [1.0]), KNOWN, probabilities=[[0.5, 0.5]], class_names=["a"]),
            "expected 2, one for each class",
        ),
        (lambda: explain(KNOWN, KNOWN, alarm=0), "expected alarm to be a share above 0"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_nineteen_known_inputs_are_enough_for_one_in_twenty():
    assert explain(parts([2.0], [1.0]), parts(np.ones(19), np.ones(19)))[0].kind == "unfamiliar"
