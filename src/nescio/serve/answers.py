"""From what the engine knows of inputs to what callers get: classes by name, the policy's decision, words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from nescio import decide
from nescio.decide import ConformalPolicy, Explanation, Policy
from nescio.decide.policy import percent
from nescio.serve.engine import Assessed, Engine
from nescio.serve.schemas import Class, Decision, Doubt, Predicted, Scored
from nescio.types import Decomposition

SINGLE = (
    "The model is a single network: its doubt is one total. To tell apart what more training data could remove, serve "
    "it with a distribution (--posterior)."
)


def predicted(engine: Engine, found: Sequence[Assessed], top: int) -> list[Predicted]:
    """Answers with their doubt."""
    decisions = [decision(engine, one) for one in found]
    judged = _judged(engine, found)
    results = []
    for at, one in enumerate(found):
        order = one.probabilities.argsort(descending=True, stable=True)[:top].tolist()
        likeliest = [_class(engine, one, place) for place in order]
        several = one.samples > 1
        results.append(
            Predicted(
                answer=answer(engine, one),
                decision=decisions[at],
                likeliest=likeliest,
                doubt=Doubt(
                    total=one.total,
                    aleatoric=one.aleatoric if several else None,
                    epistemic=one.epistemic if several else None,
                    most=math.log(len(one.probabilities)),
                    samples=one.samples,
                ),
                kind=None if judged is None else judged[at].kind,
                words=_words(engine, one, decisions[at], None if judged is None else judged[at]),
            )
        )
    return results


def scored(engine: Engine, found: Sequence[Assessed], methods: Sequence[str]) -> list[Scored]:
    """Scores of these methods."""
    return [
        Scored(
            answer=answer(engine, one),
            decision=decision(engine, one),
            scores={name: one.scores[name] for name in methods},
        )
        for one in found
    ]


def answer(engine: Engine, one: Assessed) -> Class:
    """The most probable class."""
    return _class(engine, one, int(one.probabilities.argmax()))


def decision(engine: Engine, one: Assessed) -> Decision | None:
    """What the policy says; None without one, or where its score was not computed."""
    policy = engine.policy
    if isinstance(policy, Policy) and engine.decider is not None and engine.decider in one.scores:
        score = one.scores[engine.decider]
        accepted = bool(policy.accept([score])[0])
        return Decision(
            advice="accept" if accepted else "ask a person",
            method=engine.decider,
            score=score,
            threshold=policy.threshold,
            answers=None,
        )
    if isinstance(policy, ConformalPolicy):
        places = policy.sets(one.probabilities.unsqueeze(0))[0].nonzero().flatten().tolist()
        answers = sorted((_class(engine, one, place) for place in places), key=lambda found: -found.probability)
        return Decision(
            advice="accept" if len(answers) == 1 else "ask a person",
            method=None,
            score=None,
            threshold=policy.threshold,
            answers=answers,
        )
    return None


def _class(engine: Engine, one: Assessed, place: int) -> Class:
    return Class(index=place, name=engine.name(place), probability=float(one.probabilities[place]))


def _judged(engine: Engine, found: Sequence[Assessed]) -> list[Explanation] | None:
    """Words by the ranks among known inputs; None where none are known."""
    if engine.reference is None:
        return None
    p = torch.stack([one.probabilities for one in found])
    parts = {name: torch.tensor([getattr(one, name) for one in found]) for name in ("total", "aleatoric", "epistemic")}
    rest = {name: parts["total"] for name in ("variance", "max_probability", "bregman")}  # not looked at
    policy = engine.policy if isinstance(engine.policy, Policy) else None
    return decide.explain(
        Decomposition(**parts, **rest),
        engine.reference,
        policy,
        scores=None if policy is None else [one.scores[str(engine.decider)] for one in found],
        probabilities=p,
        class_names=engine.source.classes,
    )


def _words(engine: Engine, one: Assessed, decided: Decision | None, judged: Explanation | None) -> str:
    found = answer(engine, one)
    name = f"“{found.name}”" if found.name is not None else f"class {found.index}"
    first = f"The answer is {name}, with a probability of {percent(round(found.probability, 4))}."
    if judged is not None:
        return f"{first} {judged.text}"
    total = f" Doubt: {one.total:.3g} of at most {math.log(len(one.probabilities)):.3g} nats"
    if one.samples > 1:
        total += f", of which {one.epistemic:.3g} could be removed by more training data (epistemic)"
    if decided is None:
        return f"{first}{total}."
    if decided.answers is not None:
        return f"{first}{total}. The set of answers that the policy promises has {len(decided.answers)}: " + (
            "it may be used." if decided.advice == "accept" else "ask a person."
        )
    if decided.threshold is None:
        return f"{first}{total}. The policy accepts nothing: ask a person."
    compared = "within" if decided.advice == "accept" else "above"
    end = "the answer may be used" if decided.advice == "accept" else "ask a person"
    return (
        f"{first}{total}. Its score of {decided.score:.4g} ({decided.method}) is {compared} the policy's "
        f"{decided.threshold:.4g}: {end}."
    )
