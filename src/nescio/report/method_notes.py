"""What the columns of a comparison mean, and what is to be known about some methods, in plain words."""

from __future__ import annotations

from collections.abc import Mapping

COLUMNS: Mapping[str, str] = {
    "AUROC": (
        "Take one not-digit and one digit at random: how often is the not-digit the more uncertain of the two? "
        "100 is perfect and 50 is guessing. Below 50 the score points the wrong way; it is shown as it is."
    ),
    "AUPR": (
        "Average precision: when pictures are flagged from the most uncertain down, the share of not-digits among "
        "those flagged, averaged over all not-digits. With sets of equal size guessing gives 50."
    ),
    "FPR95": (
        "False alarms: the share of digits that are flagged as well when the threshold is set low enough to catch "
        "95 % of the not-digits. Lower is better."
    ),
    "AUROC of a kind": "The same as AUROC, with the not-digits of that kind only.",
    "time per input": (
        "Seconds of scoring divided by the number of pictures, each method run alone, on one thread. Gradient "
        "methods that use noisy copies, and those that draw many predictions, pay for each copy or draw."
    ),
}

NOTES: Mapping[str, str] = {
    "ungrad": (
        "The mean over all classes alike. Classes that the network has ruled out weigh as much as those it considers, "
        "and their gradients stay large when it is sure, so this score may well point the wrong way."
    ),
    "negrad": (
        "The norm of the expected gradient. That gradient is zero for every input, exactly, so what is shown is the "
        "round-off of the machine's arithmetic. It may seem to separate the sets, since round-off grows with "
        "the size of the numbers, but nothing should be built on it. It is here because the papers list it."
    ),
    "gradnorm": (
        "The norm of the gradient towards the uniform prediction. It is large when the network is confident, so its "
        "sign is turned round here: higher = more uncertain, as for all others. The papers' tables have it unturned, "
        "and there it comes out far below 50."
    ),
}
