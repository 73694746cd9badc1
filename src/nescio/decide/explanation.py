"""Doubt in plain words, from where an input ranks among known ones.

For each part of the doubt (epistemic, aleatoric) and the values u_1 … u_n of that part for known, held-out inputs:

    rank(v) = #{i: u_i < v} / n                       the share of known inputs that are less doubtful
    flagged when (1 + #{i: u_i ≥ v}) / (n + 1) ≤ alarm

A new input of the known kind is flagged for one part with a probability of at most `alarm` (its rank among n + 1 is
uniform, and ties only help). So nothing here is a bound on raw values: one share is stated by the caller, the rest is
counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nescio._common.argument_checks import probability
from nescio._common.arrays import Values
from nescio._common.formatting import number, percent
from nescio.decide.checks import Floats, probabilities_of, scores_of
from nescio.decide.policy import Policy
from nescio.types import Decomposition, InputError

DoubtKind = Literal["sure", "unfamiliar", "ambiguous", "both", "doubtful"]
Advice = Literal["accept", "ask a person"]


@dataclass(frozen=True)
class Explanation:
    """Hold what to tell a person about one input.

    Attributes:
        text: The explanation in plain words.
        kind: "unfamiliar" when the epistemic part is flagged, "ambiguous" when the aleatoric part is, "both", or
            "sure". "doubtful" when doubt is flagged but has no parts to tell apart, as in a single network, whose
            epistemic part is 0 for every input.
        rank_epistemic: The share of known inputs whose epistemic part is smaller.
        rank_aleatoric: The share of known inputs whose aleatoric part is smaller.
        advice: "accept" or "ask a person", by the policy or, without one, by the flags.

    Examples:
        >>> print(nescio.decide.Explanation("It is sure.", "sure", 0.1, 0.2, "accept"))
        It is sure.
    """

    text: str
    kind: DoubtKind
    rank_epistemic: float
    rank_aleatoric: float
    advice: Advice

    def __str__(self) -> str:
        return self.text


def explain(
    decomposition: Decomposition,
    reference: Decomposition,
    policy: Policy | None = None,
    *,
    scores: Values | None = None,
    alarm: float = 0.05,
    probabilities: Values | None = None,
    class_names: Sequence[str] | None = None,
) -> list[Explanation]:
    """Say in plain words how doubtful each input is, beside known inputs.

    Args:
        decomposition: What `nescio.decompose` gives for the inputs.
        reference: What it gives for held-out inputs of the known kind.
        policy: A rule that decides whether an answer is accepted. Without one an input is accepted unless a part of its
            doubt is flagged.
        scores: The scores ``[N]`` that the policy judges; with a policy alone.
        alarm: The probability, for each part of the doubt, that a known input is flagged, at most.
        probabilities: Probabilities ``[N, C]``, to name the two likeliest answers of an ambiguous input.
        class_names: Names for these answers.

    Returns:
        One explanation for each input.

    Raises:
        InputError: If the reference is too small for `alarm`.

    Examples:
        >>> known = nescio.decompose(torch.rand(5, 100, 3, generator=torch.manual_seed(0)).softmax(-1))
        >>> new = nescio.decompose(torch.tensor([[[0.9, 0.05, 0.05]], [[0.05, 0.9, 0.05]]]))
        >>> nescio.decide.explain(new, known)[0].kind
        'unfamiliar'
    """
    alarm = probability("alarm", alarm)
    epistemic, aleatoric = _parts(decomposition, "decomposition")
    known_e, known_a = _parts(reference, "reference")
    least = math.ceil(1 / alarm - 1e-9) - 1
    if len(known_e) < least:
        raise InputError(
            f"reference: expected at least {least} known inputs to flag one in {number(1 / alarm)}, but got "
            f"{len(known_e)}; give more of them, or a larger alarm"
        )
    rank_e, flag_e = _ranked(epistemic, known_e, alarm)
    rank_a, flag_a = _ranked(aleatoric, known_a, alarm)
    whole = not epistemic.any() and not known_e.any()
    accepted = _accepted(policy, scores, ~(flag_e | flag_a))
    rivals = _rivals(probabilities, class_names, len(epistemic))
    result = []
    for i in range(len(epistemic)):
        kind = _KINDS[bool(flag_e[i]), bool(flag_a[i])]
        kind = "doubtful" if whole and kind == "ambiguous" else kind
        advice: Advice = "accept" if accepted[i] else "ask a person"
        what = _undivided_doubt(kind, rank_a[i], len(known_e), rivals[i])
        if not whole:
            what = _parted(kind, rank_e[i], rank_a[i], len(known_e), rivals[i])
        text = f"{what} {_end(kind, advice, policy, alarm)}"
        result.append(Explanation(text, kind, float(rank_e[i]), float(rank_a[i]), advice))
    return result


_KINDS: dict[tuple[bool, bool], DoubtKind] = {
    (False, False): "sure",
    (True, False): "unfamiliar",
    (False, True): "ambiguous",
    (True, True): "both",
}


def _parts(values: Decomposition, name: str) -> tuple[Floats, Floats]:
    if not isinstance(values, Decomposition):
        raise InputError(
            f"{name}: expected a Decomposition, as nescio.decompose gives it, but got {type(values).__name__}"
        )
    epistemic = scores_of(values.epistemic, f"{name}.epistemic")
    aleatoric = scores_of(values.aleatoric, f"{name}.aleatoric")
    if len(epistemic) != len(aleatoric):
        raise InputError(f"{name}: expected parts of one length, but got {len(epistemic)} and {len(aleatoric)}")
    return epistemic, aleatoric


def _ranked(values: Floats, known: Floats, alarm: float) -> tuple[Floats, np.ndarray[Any, np.dtype[np.bool_]]]:
    """The share of known values below each, and which are flagged."""
    below = np.searchsorted(np.sort(known), values, side="left")
    return below / len(known), (1 + len(known) - below) <= alarm * (len(known) + 1) * (1 + 1e-12)


def _accepted(policy: Policy | None, scores: Values | None, unflagged: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if policy is None:
        if scores is not None:
            raise InputError("scores: expected a policy to judge them by, but policy is None; leave the scores out")
        return unflagged
    if scores is None:
        raise InputError("scores: expected the scores that the policy judges, one for each input, but got none")
    accepted = policy.accept(scores).numpy()
    if len(accepted) != len(unflagged):
        raise InputError(f"scores: expected one for each of the {len(unflagged)} inputs, but got {len(accepted)}")
    return accepted


def _rivals(probabilities: Values | None, names: Sequence[str] | None, count: int) -> list[str]:
    """The two likeliest answers of each input in words; nothing where no probabilities are given."""
    if probabilities is None:
        if names is not None:
            raise InputError("class_names: expected probabilities to go with them, but got none")
        return [""] * count
    p = probabilities_of(probabilities)
    if len(p) != count:
        raise InputError(f"probabilities: expected one row for each of the {count} inputs, but got {len(p)}")
    if names is not None and len(names) != p.shape[1]:
        raise InputError(f"class_names: expected {p.shape[1]}, one for each class, but got {len(names)}")
    words = [f"“{name}”" for name in names] if names is not None else [f"class {c}" for c in range(p.shape[1])]
    two = np.argsort(-p, axis=1, kind="stable")[:, :2]
    return [
        f" The likeliest are {words[a]} ({percent(round(row[a], 2))}) and {words[b]} ({percent(round(row[b], 2))})."
        for row, (a, b) in zip(p, two, strict=True)
    ]


def _than(rank: float, known: int) -> str:
    """“more doubtful than …” as a count that never says more than is so."""
    if rank == 1.0:
        return f"all of {known} known inputs"
    return f"{round(rank * known)} of {known} known inputs"


def _undivided_doubt(kind: DoubtKind, rank: float, known: int, rivals: str) -> str:
    """Where nothing tells the parts of the doubt apart."""
    if kind == "sure":
        return f"The model is about as sure as of known inputs: {_than(rank, known)} are less doubtful."
    return f"The model is unsure: this is more doubtful than {_than(rank, known)}.{rivals}"


def _parted(kind: DoubtKind, rank_e: float, rank_a: float, known: int, rivals: str) -> str:
    """Where doubt of the model and doubt of the data are told apart."""
    unfamiliar = f"The model has seen little like this: it is more unfamiliar than {_than(rank_e, known)}."
    ambiguous = f"More than one answer fits this input: it is more ambiguous than {_than(rank_a, known)}.{rivals}"
    if kind == "sure":
        less = f"{_than(rank_e, known)} are less unfamiliar, and {_than(rank_a, known)} are less ambiguous"
        return f"This looks like known inputs: {less}."
    if kind == "unfamiliar":
        return f"{unfamiliar} More examples of this kind would help the model."
    if kind == "ambiguous":
        return f"{ambiguous} More data of this kind would not help."
    return f"{unfamiliar} {ambiguous}"


def _end(kind: DoubtKind, advice: Advice, policy: Policy | None, alarm: float) -> str:
    """What to do."""
    if policy is not None:
        usual = kind == "sure" or advice != "accept"
        how = "by the rule that was set" if usual else "all the same by the rule that was set"
        said = "is accepted" if advice == "accept" else "should be checked by a person"
        return f"Its answer {said}, {how}."
    if advice == "accept":
        return "Its answer can be used."
    flagged = f"at most {percent(alarm)} of known inputs are flagged for such a reason"
    return f"Its answer should be checked by a person; {flagged}."
