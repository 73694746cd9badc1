"""The watch over p-values: a fair bet, a promise that one reference cannot break, and a state that survives."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nescio import decide
from nescio.decide import drift, drift_test
from nescio.types import InputError


def p_values(reference, x):
    """As a conformal rule gives them; ties count against the input."""
    known = np.sort(reference)
    return (1 + len(known) - np.searchsorted(known, x)) / (len(known) + 1)


@pytest.fixture(scope="module")
def watch():
    return drift(50, false_alarm=0.1)


def test_the_bounds_are_those_of_order_statistics(watch):
    from nescio.decide.drift import _bounds

    bounds = _bounds(50, 0.05)
    assert len(bounds) == 51 and bounds[-1] == 1.0 and (np.diff(bounds) >= 0).all()
    steps = len(np.unique(bounds)) - 1
    assert bounds[0] == pytest.approx(stats.beta.ppf(1 - 0.05 / steps, 1, 50), rel=1e-6)
    rng = np.random.default_rng(0)
    top = 1 - np.sort(rng.random((4000, 50)))[:, ::-1]  # P(p ≤ k/51) given the reference
    assert ((top > bounds[:50]).any(1)).mean() <= 0.05


def test_the_evidence_is_a_fair_bet_at_the_bounds(watch):
    """The mean over the next input is the evidence now when every bound is met, and no more when none is."""
    for seen in ([], [0.02, 0.5, 1.0], [0.3] * 63, [0.3] * 64):
        own = drift(50, false_alarm=0.1)
        now = own.update(seen).evidence
        chances = np.diff(np.concatenate([[0.0], own._bounds]))
        state = own._kept.state
        after = []
        for bound in own._bounds:
            loss = np.array([state.total, state.total - math.log(bound)])
            after.append(math.exp(own._evidence(state, loss)[-1]))
        assert float(np.dot(chances, after)) == pytest.approx(now, rel=1e-9)
        assert np.mean(after) <= now  # p uniform: less than the bounds allow


def test_one_reference_cannot_break_the_promise_as_it_does_for_a_bet_on_uniform_p_values():
    rng, ours, naive = np.random.default_rng(0), 0, 0
    bets = np.arange(1, 10) / 10
    for _ in range(40):
        p = p_values(rng.random(50), rng.random(8000))
        ours += drift(50, false_alarm=0.1).update(p).alarm
        losses, n = np.cumsum(-np.log(p)), np.arange(1, len(p) + 1)
        evidence = np.logaddexp.reduce(np.outer(n, np.log(bets)) + np.outer(losses, 1 - bets), axis=1) - math.log(9)
        naive += bool((evidence >= math.log(10)).any())
    assert ours <= 4 < 8 <= naive


def test_a_change_is_found_soon_and_the_alarm_stays():
    rng = np.random.default_rng(0)
    reference, own = rng.normal(size=500), drift(500)
    assert not own.update(p_values(reference, rng.normal(size=1000))).alarm
    verdict = own.update(p_values(reference, rng.normal(2, 1, size=300)))
    assert verdict.alarm and 1000 < verdict.at < 1150
    assert own.update(p_values(reference, rng.normal(size=2000))).at == verdict.at
    assert str(verdict).startswith(f"Alarm: after input {verdict.at} of 1300 ")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 51), max_size=200), st.data())
def test_how_the_stream_is_cut_does_not_matter(places, data):
    p = np.array(places) / 51
    cut = data.draw(st.integers(0, len(p)))
    whole, parts = drift(50, false_alarm=0.1), drift(50, false_alarm=0.1)
    parts.update(p[:cut])
    assert parts.update(p[cut:]) == whole.update(p)
    assert parts._kept.state == whole._kept.state


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1 / 51, 1.0), min_size=1, max_size=60), st.floats(0, 1))
def test_larger_p_values_are_less_evidence(p, share):
    p = np.array(p)
    larger = p + share * (1 - p)
    assert drift(50, false_alarm=0.1).update(larger).evidence <= drift(50, false_alarm=0.1).update(p).evidence + 1e-12
    assert drift_test(larger, 50, draws=19).p_value >= drift_test(p, 50, draws=19).p_value


@pytest.mark.parametrize(
    ("p", "words"),
    [
        ([0.5, math.nan], "1 of 2 are NaN or infinite"),
        ([0.0], "expected numbers above 0 and up to 1"),
        ([1.5], "expected numbers above 0 and up to 1"),
        ([0.001], "expected at least 1/51, as a reference of 50 inputs gives"),
        ([[0.5]], "shape"),
        (["a"], "expected real numbers"),
    ],
)
def test_what_is_no_p_value_counts_nothing(watch, p, words):
    before = watch._kept.state
    with pytest.raises(InputError, match=words):
        watch.update(p)
    assert watch._kept.state == before
    with pytest.raises(InputError, match=words):
        drift_test(p, 50)


def test_state_goes_on_from_the_file_and_belongs_to_one_stream(tmp_path):
    file, rng = tmp_path / "drift.json", np.random.default_rng(0)
    p = rng.integers(1, 52, 200) / 51
    whole = drift(50, false_alarm=0.1).update(p)
    first = drift(50, file, 0.1)
    first.update(p[:70])
    assert drift(50, file, 0.1).update(p[70:]) == whole
    with pytest.raises(InputError, match="was changed by another monitor"):
        first.update(p)
    with pytest.raises(InputError, match="another size"):
        drift(60, file, 0.1)
    with pytest.raises(InputError, match="another rate"):
        drift(50, file, 0.05)


@pytest.mark.parametrize(
    "change", [{"n": -1}, {"total": math.inf}, {"starts": []}, {"at": 900}, {"starts": [[0, 1.0]]}]
)
def test_damaged_state_is_refused(tmp_path, change):
    file = tmp_path / "drift.json"
    drift(50, file, 0.1).update([0.5] * 70)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(InputError, match="damaged"):
        drift(50, file, 0.1)


def test_the_test_of_a_batch_holds_its_level_also_with_ties_and_finds_a_shift():
    rng, found = np.random.default_rng(0), []
    for _ in range(120):
        reference, batch = np.round(rng.normal(size=(2, 40)), 1)
        found.append(drift_test(p_values(reference, batch), 40, draws=99).p_value)
    assert np.mean(np.array(found) <= 0.1) <= 0.1 + 3 * math.sqrt(0.09 / 120)
    reference = rng.normal(size=200)
    one = drift_test(p_values(reference, rng.normal(1, 1, size=50)), 200)
    assert one.p_value == 0.001 and one.n == 50 and "50 inputs" in str(one)
    assert drift_test(p_values(reference, rng.normal(1, 1, size=50)), 200, seed=1).p_value <= 0.002


@pytest.mark.parametrize("reference", [0, -1, True, 2.5, "500"])
def test_a_reference_is_a_number_of_inputs(reference):
    with pytest.raises(InputError, match="give the number of its inputs"):
        drift(reference)


def test_nothing_seen_is_said():
    assert str(drift(50, false_alarm=0.1).verdict()) == "No input was seen yet."
    assert decide.drift(50, false_alarm=0.1).update([]).n == 0
