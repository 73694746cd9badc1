"""From what the engine knows of inputs to what callers get: classes by name, verdicts, decisions of a policy, words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nescio._common.formatting import percent
from nescio.decide import ConformalPolicy, Policy
from nescio.guard import Verdict
from nescio.serve.engine import Assessed, Engine
from nescio.serve.schemas import CheckedInput, Class, Decision, Doubt, GuardVerdict, Predicted, Scored, Wrong

SINGLE = (
    "The model is a single network: its doubt is one total. To tell apart what more training data could remove, serve "
    "it with a distribution (--posterior)."
)
UNGUARDED = (
    "expected a service with a guard, got one without: whether an input is foreign can only be told beside known ones. "
    "Start it with some hundred of the kind that the model is meant for (--reference FOLDER), or with a guard that "
    "`nescio guard` made of them (--guard FOLDER)"
)


def predicted(engine: Engine, assessed: Sequence[Assessed], top: int) -> list[Predicted]:
    """Return answers with their doubt.

    Args:
        engine: The model.
        assessed: What is known of each input.
        top: How many of the likeliest classes are named.
    """
    results = []
    for one in assessed:
        decided, verdict = decision(engine, one), verdict_at_usual_level(engine, one)
        order = one.probabilities.argsort(descending=True, stable=True)[:top].tolist()
        likeliest = [_class(engine, one, place) for place in order]
        several = one.samples > 1
        results.append(
            Predicted(
                answer=answer(engine, one),
                decision=decided,
                likeliest=likeliest,
                doubt=Doubt(
                    total=one.total,
                    aleatoric=one.aleatoric if several else None,
                    epistemic=one.epistemic if several else None,
                    most=math.log(len(one.probabilities)),
                    samples=one.samples,
                ),
                verdict=verdict,
                words=_words(engine, one, decided, verdict),
            )
        )
    return results


def verdicts(engine: Engine, assessed: Sequence[Assessed], level: float, maps: bool = False) -> list[CheckedInput]:
    """Return verdicts at this level, with the answers that they are about; maps: with those of regions too."""
    results = []
    for one in assessed:
        assert one.verdict is not None
        place, parts = int(one.verdict.predicted[0]), one.parts if maps else None
        results.append(
            CheckedInput(
                predicted=place,
                predicted_class=engine.name(place),
                confidence=float(one.verdict.confidence[0]),
                foreignness=None if parts is None else (-parts.p_value[0].log10()).tolist(),
                **dict(_verdict_answer(one.verdict, level)),
            )
        )
    return results


def verdict_at_usual_level(engine: Engine, one: Assessed) -> GuardVerdict | None:
    """Return the verdict at the usual level; None without a guard."""
    if one.verdict is None or engine.level is None:
        return None
    return _verdict_answer(one.verdict, engine.level)


def _verdict_answer(one: Verdict, level: float) -> GuardVerdict:
    """Return a verdict on one input as callers get it."""
    wrong = None
    if one.wrong is not None:
        parts = (one.wrong.probability, one.wrong.low, one.wrong.high)
        wrong = Wrong(**dict(zip(("probability", "low", "high"), (float(part[0]) for part in parts), strict=True)))
    return GuardVerdict(
        p_value=float(one.p_value[0]),
        level=level,
        foreign=bool(one.foreign(level)[0]),
        state=one.states(level)[0],
        witnesses={name: float(z[0]) for name, z in one.witnesses.items()},
        words=one.words(level)[0],
        wrong=wrong,
    )


def scored(engine: Engine, assessed: Sequence[Assessed], methods: Sequence[str]) -> list[Scored]:
    """Return the scores of these methods."""
    return [
        Scored(
            answer=answer(engine, one),
            decision=decision(engine, one),
            scores={name: one.scores[name] for name in methods},
        )
        for one in assessed
    ]


def answer(engine: Engine, one: Assessed) -> Class:
    """Return the most probable class."""
    return _class(engine, one, int(one.probabilities.argmax()))


def decision(engine: Engine, one: Assessed) -> Decision | None:
    """Return what the policy says; None without one, or where its score was not computed.

    The policy's promise is for inputs like the known ones, so a foreign input is not accepted.
    """
    policy, verdict = engine.policy, verdict_at_usual_level(engine, one)
    foreign = verdict is not None and verdict.foreign
    if isinstance(policy, Policy) and engine.decider is not None and engine.decider in one.scores:
        score = one.scores[engine.decider]
        accepted = bool(policy.accept([score])[0])
        return Decision(
            advice="accept" if accepted and not foreign else "ask a person",
            method=engine.decider,
            score=score,
            threshold=policy.threshold,
            answers=None,
        )
    if isinstance(policy, ConformalPolicy):
        members = policy.sets(one.probabilities.unsqueeze(0))[0].nonzero().flatten().tolist()
        answers = sorted(
            (_class(engine, one, place) for place in members), key=lambda one_class: -one_class.probability
        )
        return Decision(
            advice="accept" if len(answers) == 1 and not foreign else "ask a person",
            method=None,
            score=None,
            threshold=policy.threshold,
            answers=answers,
        )
    return None


def _class(engine: Engine, one: Assessed, place: int) -> Class:
    return Class(index=place, name=engine.name(place), probability=float(one.probabilities[place]))


def _words(engine: Engine, one: Assessed, decided: Decision | None, verdict: GuardVerdict | None) -> str:
    likeliest = answer(engine, one)
    name = f"“{likeliest.name}”" if likeliest.name is not None else f"class {likeliest.index}"
    first = f"The answer is {name}, with a probability of {percent(round(likeliest.probability, 4))}."
    if verdict is not None:
        warning = " The input is foreign: do not trust the answer." if verdict.foreign else ""
        first = f"{first}{warning} {verdict.words}"
    total = f" Doubt: {one.total:.3g} of at most {math.log(len(one.probabilities)):.3g} nats"
    if one.samples > 1:
        total += f", of which {one.epistemic:.3g} could be removed by more training data (epistemic)"
    if decided is None:
        return f"{first}{total}."
    if verdict is not None and verdict.foreign:
        return f"{first}{total}. The policy's promise is for known inputs: ask a person."
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
