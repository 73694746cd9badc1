"""Policies to choose from: made from known inputs as `nescio.decide` makes them."""

from dataclasses import replace

import pytest

from nescio import decide
from nescio.app import Backend
from nescio.app.policies import NONE
from nescio.decide import ConformalPolicy, Policy
from nescio.serve.engine import Engine
from nescio.types import InputError


def test_names_follow_from_what_is_known(backend: Backend) -> None:
    assert backend.scale is not None
    assert backend.policies.names == [
        *(NONE, "at most 2 % wrong answers", "at most 5 % wrong answers"),
        *("a set of answers, right for 90 %", "a set of answers, right for 99 %"),
    ]
    assert replace(backend, scale=replace(backend.scale, labels=None)).policies.names == [NONE]
    assert replace(backend, scale=None).policies.names == [NONE]


def test_they_are_what_decide_makes(backend: Backend) -> None:
    scale = backend.scale
    assert scale is not None
    assert scale.labels is not None
    about = {"score": "energy"}
    risk, by = backend.policies.policy_named("at most 5 % wrong answers", "energy")
    assert (risk, by) == (decide.threshold(scale.values["energy"], scale.right, 0.05, about=about), "energy")
    sets, judge = backend.policies.policy_named("a set of answers, right for 90 %", "energy")
    assert sets == decide.conformal(scale.probabilities, scale.labels, 0.9)
    assert isinstance(sets, ConformalPolicy)
    assert judge is None
    assert backend.policies.policy_named(NONE, "energy") == (None, None)
    assert backend.policies.policy_named("at most 5 % wrong answers")[1] == "regrad"  # the first method


def test_a_given_policy_comes_first_and_judges_by_its_own_score(backend: Backend) -> None:
    given = Policy("quantile", 0.5, 100, 95, 19, keep=0.95, about={"score": "entropy"})
    engine = Engine(backend.engine.source, ["regrad"], posterior=backend.engine.posterior, policy=given)
    new = replace(backend, engine=engine, scale=None, policy=("the policy of policy.json", given))
    assert new.policies.names == ["the policy of policy.json", NONE]
    assert new.policies.policy_named("the policy of policy.json", "regrad") == (given, "entropy")
    found = next(iter(new.of_example(0)))
    ruling = new.ruling(found, None, "the policy of policy.json", None)
    assert ruling is not None and ruling.accepted


@pytest.mark.parametrize(("name", "by"), [("drop table", "regrad"), ("at most 5 % wrong answers", "evil")])
def test_what_the_page_does_not_offer_is_refused(backend: Backend, name: str, by: str) -> None:
    with pytest.raises(InputError, match="expected one of the policies and methods of the page, got"):
        backend.policies.policy_named(name, by)
