import json
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from nescio import decide
from nescio.decide import monitor
from nescio.types import InputError

POLICY = decide.quantile(np.arange(1000) / 1000, 0.9)


def stream(n, rate, seed=0):
    return np.where(np.random.default_rng(seed).random(n) < rate, 2.0, 0.0)


def test_evidence_by_hand():
    """One start, three inputs: the mean over 16 θ of the likelihood ratios, and what has not started counts 1."""
    watch = monitor(POLICY)
    verdict = watch.update([2.0, 0.0, 2.0])
    rho = stats.beta.ppf(1 - 0.005, 100, 901)  # 99 of 1000 above the 901st
    assert verdict.promised == pytest.approx(rho, abs=1e-9)
    theta = [rho + (1 - rho) * 2 ** (-i / 2) for i in range(1, 17)]
    mean = np.mean([(t / rho) ** 2 * (1 - t) / (1 - rho) for t in theta])
    assert verdict.evidence == pytest.approx(0.5 * mean + 0.5, rel=1e-9)
    assert (verdict.n, verdict.abstained, verdict.alarm, verdict.limit) == (3, 2, False, 200.0)


def test_the_evidence_is_a_fair_bet_at_the_bound():
    """The mean over all streams of ten inputs is 1 when the rate is the bound, so Ville's inequality applies."""
    watch = monitor(POLICY)
    rho, total = watch.verdict().promised, 0.0
    for bits in range(2**10):
        x = np.array([bits >> i & 1 for i in range(10)])
        chance = rho ** x.sum() * (1 - rho) ** (10 - x.sum())
        total += chance * math.exp(watch._evidence(watch._kept.state, x, "more")[-1])
    assert total == pytest.approx(1.0, abs=1e-12)


def test_the_evidence_stays_a_fair_bet_when_new_starts_are_added():
    watch = monitor(POLICY)
    watch.update(stream(127, 0.1))
    state = watch._kept.state
    rho = watch.verdict().promised
    now = math.exp(watch._evidence(state, np.zeros(0, dtype=int), "more")[-1])
    after = [watch._part(state, np.array([x])) for x in (0, 1)]
    assert after[0].starts[-1] == (128, state.abstained) and len(after[0].starts) == 3
    no, yes = (math.exp(watch._evidence(s, np.zeros(0, dtype=int), "more")[-1]) for s in after)
    assert (1 - rho) * no + rho * yes == pytest.approx(now, rel=1e-12)


def test_a_change_is_found_and_the_alarm_stays():
    watch = monitor(POLICY)
    assert not watch.update(stream(1000, 0.1)).alarm
    verdict = watch.update(stream(500, 0.4))
    assert verdict.alarm and verdict.direction == "more" and 1000 < verdict.at < 1200
    assert "calibrate anew" in str(verdict) and "more inputs are refused than promised (at most 12." in str(verdict)
    assert watch.update(stream(5000, 0.0)).at == verdict.at


def test_two_sided_finds_too_few_abstentions():
    policy = decide.quantile(np.arange(1000) / 1000, 0.5)
    assert not monitor(policy).update(stream(3000, 0.3)).alarm
    verdict = monitor(policy, two_sided=True).update(stream(3000, 0.3))
    assert verdict.alarm and verdict.direction == "fewer" and "(at least 4" in str(verdict)
    assert not monitor(policy, two_sided=True).update(stream(3000, 0.5)).alarm
    assert monitor(policy, two_sided=True).update(stream(3000, 0.8)).direction == "more"


def test_how_the_stream_is_cut_does_not_matter():
    scores = np.r_[stream(700, 0.1), stream(300, 0.5)]
    whole = monitor(POLICY, two_sided=True).update(scores)
    assert whole.alarm
    for size in (7, 64, 333):
        watch = monitor(POLICY, two_sided=True)
        for begin in range(0, 1000, size):
            verdict = watch.update(scores[begin : begin + size])
        assert verdict == whole


def test_without_drift_alarms_are_as_rare_as_promised():
    """Calibration and stream from one distribution, looked at after every input; also with the policy from labels."""
    rng, alarms = np.random.default_rng(0), []
    for trial in range(100):
        scores = rng.random(200)
        policy = decide.quantile(scores, 0.8)
        if trial % 2:
            policy = decide.threshold(scores, rng.random(200) > 0.02 * scores, 0.2)
        alarms.append(monitor(policy, false_alarm=0.1).update(rng.random(300)).alarm)
    assert np.mean(alarms) <= 0.1 + 3 * math.sqrt(0.09 / 100)


def test_the_bound_of_a_threshold_allows_for_its_choice():
    policy = decide.threshold(np.arange(1000), np.arange(1000) < 700)
    expected = 1 - policy.coverage + math.sqrt(math.log(1 / 0.005) / 2000)
    assert monitor(policy).verdict().promised == pytest.approx(expected)


def test_nothing_seen_is_said():
    assert str(monitor(POLICY).verdict()) == "No input was seen yet."
    assert monitor(POLICY).update([]).n == 0
    assert "1 of 2 inputs were not accepted, which fits" in str(monitor(POLICY).update([0.0, 2.0]))


def test_state_goes_on_from_the_file(tmp_path):
    path, scores = tmp_path / "m.json", stream(900, 0.15)
    for begin in range(0, 900, 90):
        verdict = monitor(POLICY, path).update(scores[begin : begin + 90])  # a new process each time
    assert verdict == monitor(POLICY).update(scores)
    assert monitor(POLICY, path).verdict() == verdict


CRASH = """
import os, sys
import numpy as np
from nescio import decide
from nescio.decide import decision_files

real, write = os.replace, decision_files.Path.write_text

def die(*_):
    os._exit(9)

def half(self, text, **more):
    write(self, text[: len(text) // 2], **more)
    die()

def run(when):
    watch = decide.monitor(decide.quantile(np.arange(1000) / 1000, 0.9), f"{sys.argv[1]}/{when}.json")
    watch.update([0.0, 2.0])
    print(when, flush=True)
    if when == "half written":
        decision_files.Path.write_text = half
    elif when == "before the exchange":
        os.replace = die
    elif when == "after the exchange":
        os.replace = lambda *names: (real(*names), die())
    watch.update([2.0])

for when in sys.argv[2:]:
    if os.fork() == 0:
        run(when)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def test_after_a_crash_what_was_acknowledged_is_there(tmp_path):
    seen = {"half written": 2, "before the exchange": 2, "after the exchange": 3}
    done = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path), *seen], capture_output=True, text=True)
    assert done.stdout.split("\n") == [*(line for when in seen for line in (when, "9")), ""], done.stderr
    for when, count in seen.items():
        watch = monitor(POLICY, tmp_path / f"{when}.json")
        assert watch.verdict().n == count
        assert watch.update([0.0]).n == count + 1


def test_a_failed_update_counts_nothing(tmp_path):
    path = tmp_path / "m.json"
    watch = monitor(POLICY, path)
    watch.update([0.0])
    with pytest.raises(InputError, match="NaN"):
        watch.update([0.0, math.nan])
    assert watch.verdict().n == 1 == monitor(POLICY, path).verdict().n


def test_the_file_belongs_to_one_policy_and_one_stream(tmp_path):
    path = tmp_path / "m.json"
    watch = monitor(POLICY, path)
    for other in (
        lambda: monitor(decide.quantile(np.arange(999) / 1000, 0.9), path),
        lambda: monitor(POLICY, path, 0.05),
        lambda: monitor(POLICY, path, two_sided=True),
    ):
        with pytest.raises(InputError, match="another policy or other settings"):
            other()
    monitor(POLICY, path).update([0.0])
    with pytest.raises(InputError, match="changed by another monitor"):
        watch.update([0.0])


@pytest.mark.parametrize(
    "change",
    [{"n": None}, {"n": 1.5}, {"starts": []}, {"starts": [[5, 5]]}, {"starts": 3}, {"abstained": 9}, {"at": 3}],
)
def test_damaged_state_is_refused(tmp_path, change):
    path = tmp_path / "m.json"
    monitor(POLICY, path).update([0.0, 2.0])
    record = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="is damaged"):
        monitor(POLICY, path)


def test_foreign_and_cut_state_is_refused(tmp_path):
    path = tmp_path / "m.json"
    POLICY.save(path)
    with pytest.raises(InputError, match="holds 'nescio policy'"):
        monitor(POLICY, path)
    path.write_text('{"format": "nescio mon')
    with pytest.raises(InputError, match="cut short"):
        monitor(POLICY, path)
    with pytest.raises(InputError, match="does not exist"):
        monitor(POLICY, tmp_path / "nowhere" / "m.json")


def test_policies_that_cannot_be_watched_are_refused():
    with pytest.raises(InputError, match="promises nothing"):
        monitor(decide.quantile([1.0]))
    with pytest.raises(InputError, match=r"expected one from decide.threshold or decide.quantile"):
        monitor(0.5)
    with pytest.raises(InputError, match="too few to bound"):
        monitor(decide.threshold([0.0, 1.0], [True, True], risk=0.5, confidence=0.5))
    with pytest.raises(InputError, match="expected false_alarm to be a share"):
        monitor(POLICY, false_alarm=0)


@pytest.mark.parametrize("change", [{"direction": "up"}, {"at": "x"}, {"at": -3}, {"at": 10**9}, {"at": None}])
def test_a_file_with_an_alarm_that_cannot_be_is_refused(change, tmp_path):
    policy = decide.quantile(np.arange(200.0), keep=0.9)
    file = tmp_path / "watch.json"
    assert decide.monitor(policy, file).update(np.full(300, 1e3)).alarm
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | change))
    with pytest.raises(InputError, match="is damaged"):
        decide.monitor(policy, file)
