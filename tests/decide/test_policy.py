import json
import math

import numpy as np
import pytest
import torch

from nescio import decide
from nescio.decide import ConformalPolicy, Policy
from nescio.types import InputError


@pytest.fixture
def policy():
    rng = np.random.default_rng(0)
    scores = rng.random(500)
    return decide.threshold(scores, rng.random(500) > 0.3 * scores**4, about={"score": "regrad", "model": "Größe 18"})


def policies(policy):
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    return [
        policy,
        decide.threshold([0.0], [True]),
        decide.quantile(np.arange(100)),
        decide.quantile([1.0]),
        decide.conformal(probabilities, np.zeros(40, dtype=int)),
        decide.conformal(probabilities[:3], [0, 1, 2], kind="adaptive"),
    ]


def test_a_policy_comes_back_from_its_file(policy, tmp_path):
    for number, given in enumerate(policies(policy)):
        path = tmp_path / f"{number}.json"
        given.save(path)
        assert decide.load(path) == given
        assert type(given).load(path) == given
        assert json.loads(path.read_text(encoding="utf-8"))["says"] == str(given)


def test_it_accepts_what_is_at_most_the_threshold(policy):
    t = policy.threshold
    accepted = policy.accept(torch.tensor([t, math.nextafter(t, math.inf), -math.inf, math.inf], dtype=torch.float64))
    assert accepted.dtype == torch.bool and accepted.tolist() == [True, False, True, False]
    assert policy.accept([]).shape == (0,)
    with pytest.raises(InputError, match="1 of 2 are NaN"):
        policy.accept([0.1, math.nan])
    with pytest.raises(InputError, match="shape"):
        policy.accept([[0.1]])


def test_it_says_itself_in_a_sentence(policy):
    text = str(policy)
    assert f"at most {policy.threshold:.6g}" in text and "at most 5 % of the accepted answers are wrong" in text
    assert "90 % confidence" in text and "(score: regrad; model: Größe 18)" in text
    assert "at least 95 % of new inputs" in str(decide.quantile(np.arange(100)))


def test_a_policy_cannot_be_changed(policy):
    with pytest.raises(AttributeError):
        policy.threshold = 1.0


def test_a_file_cut_anywhere_is_refused(policy, tmp_path):
    path = tmp_path / "p.json"
    policy.save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 2, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="no JSON, or was cut short"):
            decide.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "else"}, "holds 'else'"),
        ({"version": 2}, "has version 2, but up to 1 can be read here; update nescio"),
        ({"version": "1"}, "has version '1'"),
        ({"threshold": "0.5"}, "its threshold is '0.5'"),
        ({"kind": "magic"}, "its kind is 'magic'"),
        ({"accepted": 501}, "counts do not fit"),
        ({"n": 0}, "counts do not fit"),
        ({"risk": None}, "promise does not fit"),
        ({"errors": -1}, "promise does not fit"),
        ({"about": {"a": 1}}, "does not hold words by name"),
        ({"kind": "quantile"}, "the share to keep is None"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(policy, tmp_path, change, message):
    path = tmp_path / "p.json"
    policy.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        Policy.load(path)


def test_other_files_are_refused(policy, tmp_path):
    with pytest.raises(InputError, match="there is none"):
        decide.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot read"):
        decide.load(tmp_path)
    path = tmp_path / "p.json"
    path.write_text("[1, 2]")
    with pytest.raises(InputError, match="holds 'list'"):
        decide.load(path)
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match="no JSON"):
        decide.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="no JSON"):
        decide.load(path)
    policy.save(path)
    with pytest.raises(InputError, match="format 'nescio prediction sets'"):
        ConformalPolicy.load(path)
    record = json.loads(path.read_text(encoding="utf-8"))
    del record["threshold"]
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="threshold is missing"):
        decide.load(path)


@pytest.mark.parametrize(
    "change", [{"coverage": 2.0}, {"threshold": "x"}, {"kind": "other"}, {"n": None}, {"about": 3}]
)
def test_damaged_prediction_sets_are_refused(tmp_path, change):
    path = tmp_path / "p.json"
    decide.conformal(np.full((20, 2), 0.5), np.zeros(20)).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}))
    with pytest.raises(InputError, match="is damaged"):
        decide.load(path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(policy, tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        policy.save(tmp_path / "nowhere" / "p.json")


def test_a_share_below_one_is_never_said_to_be_all():
    assert decide.policy.percent(0.99999) == "99.999 %"
    assert [decide.policy.percent(share) for share in (0.05, 0.12345678, 1.0, 0.0)] == [
        "5 %",
        "12.35 %",
        "100 %",
        "0 %",
    ]
    assert "99.99999 % confidence" in str(decide.threshold([1.0], [True], confidence=0.9999999))
