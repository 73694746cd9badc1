"""Conformal risk control: the rule by hand, the promise by simulation, files and words."""

import numpy as np
import pytest
import torch

from nescio.decide import RiskPolicy, risk_control
from nescio.types import InputError


def made(rng, n, size=40, classes=4, sharp=1.0):
    """Pictures of positions whose errors come together, and their labels."""
    hard = rng.exponential(size=(n, 1, 1))
    logits = 2 * rng.normal(size=(n, size, classes))
    true = softmax(sharp * logits / (0.5 + 2 * hard))
    labels = (true.cumsum(2) < rng.random((n, size, 1))).sum(2).clip(max=classes - 1)
    return softmax(logits), labels


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def losses(policy, p, y):
    if policy.kind == "misses":
        there = np.isin(y, policy.sought)
        return (there & ~policy.found(p).numpy()).sum(1) / there.sum(1).clip(min=1)
    return 1 - np.take_along_axis(policy.sets(p).numpy(), y[:, :, None], 2).mean((1, 2))


@pytest.mark.parametrize("kind", ["miscoverage", "misses"])
@pytest.mark.parametrize("risk", [0.05, 0.2])
def test_the_level_is_the_least_that_keeps_the_bound(kind, risk):
    p, y = made(np.random.default_rng(0), 60)
    policy = risk_control(p, y, risk, kind, sought=(1, 3) if kind == "misses" else ())
    own = losses(policy, p, y).sum()
    assert (own + 1) / 61 <= risk
    lower = np.nextafter(policy.threshold, 0.0)
    tighter = RiskPolicy(kind, float(lower), risk, 60, 4, policy.sought, 0.0)
    assert (losses(tighter, p, y).sum() + 1) / 61 > risk


def test_by_hand():
    # three pictures of two positions; the truth has 1 − p = 0.6 | 0.7, 0.9 | likeliest
    p = np.array([[[0.4, 0.6], [0.9, 0.1]], [[0.3, 0.7], [0.1, 0.9]], [[0.8, 0.2], [0.8, 0.2]]])
    y = np.zeros((3, 2), dtype=int)
    assert risk_control(p, y, 0.25).threshold == pytest.approx(0.9)  # (0 + 1)/4 ≤ 0.25
    assert risk_control(p, y, 0.40).threshold == pytest.approx(0.7)  # (0.5 + 1)/4 = 0.375
    assert risk_control(p, y, 0.50).threshold == pytest.approx(0.6)
    assert risk_control(p, y, 0.80).threshold == 0.0
    few = risk_control(p, y, 0.2)
    assert few.threshold is None and few.sets(p).all()
    assert "With 3 examples nothing can promise" in str(few) and "it takes 4 at least" in str(few)
    sets = risk_control(p, y, 0.40).sets(p)
    assert sets[1].tolist() == [[True, True], [False, True]]


@pytest.mark.parametrize(("kind", "n", "risk"), [("miscoverage", 30, 0.1), ("misses", 30, 0.1), ("misses", 15, 0.2)])
def test_the_promise_holds_in_simulation(kind, n, risk):
    rng = np.random.default_rng(1)
    found = []
    for _ in range(300):
        p, y = made(rng, n + 10)
        policy = risk_control(p[:n], y[:n], risk, kind, sought=2 if kind == "misses" else ())
        found.append(losses(policy, p[n:], y[n:]).mean())
    error = np.std(found) / len(found) ** 0.5
    assert np.mean(found) <= risk + 3 * error
    assert np.mean(found) >= risk - 2 / (n + 1) - 3 * error  # and is not far below: it is no idle promise


def test_sizes_may_differ_and_positions_may_not_count():
    rng = np.random.default_rng(2)
    p, y = made(rng, 30)
    blocks = [one.reshape(8, 5, 4) for one in p], [one.reshape(8, 5).copy() for one in y]
    same = risk_control(torch.from_numpy(p), torch.from_numpy(y))
    assert risk_control(*blocks) == same
    wider = [np.concatenate([one, np.full((2, 5, 4), 0.25)]) for one in blocks[0]]
    ignored = [np.concatenate([one, np.full((2, 5), 255)]) for one in blocks[1]]
    assert risk_control(wider, ignored, ignore_index=255) == same
    with pytest.raises(InputError, match="class numbers from 0 to 3"):
        risk_control(wider, ignored)


def test_pictures_without_the_class_count_as_kept():
    p, y = made(np.random.default_rng(3), 40)
    y[y == 3] = 0
    policy = risk_control(p, y, 0.1, "misses", sought=3)
    assert policy.threshold == 0.0 and losses(policy, p, y).max() == 0.0


def test_files_and_words(tmp_path):
    p, y = made(np.random.default_rng(4), 40)
    for kind, sought in (("miscoverage", ()), ("misses", (1, 2))):
        policy = risk_control(p, y, 0.1, kind, sought=sought, about={"model": "a U-Net"})
        policy.save(tmp_path / "policy.json")
        assert RiskPolicy.load(tmp_path / "policy.json") == policy
        assert "at most 10 %" in str(policy) and "(model: a U-Net)" in str(policy)
    text = (tmp_path / "policy.json").read_text()
    (tmp_path / "policy.json").write_text(text.replace('"risk": 0.1', '"risk": 7'))
    with pytest.raises(InputError, match="damaged: its numbers do not fit together"):
        RiskPolicy.load(tmp_path / "policy.json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "misses"}, "sought classes with kind='misses' alone"),
        ({"sought": 1}, "sought classes with kind='misses' alone"),
        ({"kind": "misses", "sought": 9}, "sought"),
        ({"risk": 1.5}, "risk"),
        ({"kind": "errors"}, "kind"),
        ({"labels": np.zeros((5, 7), dtype=int)}, r"expected shape \[40\] for input 0.*got \[7\]"),
        ({"labels": np.zeros((4, 40), dtype=int)}, "labels for each of 5 inputs"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    p, y = made(np.random.default_rng(5), 5)
    with pytest.raises(InputError, match=message):
        risk_control(**{"probabilities": p, "labels": y, **arguments})


def test_the_other_kind_of_answer_is_named():
    p, y = made(np.random.default_rng(6), 20)
    with pytest.raises(InputError, match=r"kind 'misses', got 'miscoverage'; call sets\(probabilities\)"):
        risk_control(p, y).found(p)
