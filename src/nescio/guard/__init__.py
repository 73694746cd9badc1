"""The guard: one verdict on each input of a classifier, for the price of a forward pass.

    guard = nescio.Guard(model).fit(reference)     # some hundred inputs of the kind that the model is meant for
    verdict = guard.check(x)
    verdict.foreign(0.05)                          # which are unlike these; at most 5 % of known ones are flagged

No single score is good everywhere. Three witnesses look at an input from different sides (`nescio.guard.witnesses`).
The reference brings them to one scale, and the rank of their sum among inputs of the reference is a conformal p-value
(`nescio.guard.promise`). The reference needs no labels, but the model must not have been trained on it.
"""

from nescio.guard.guard import Guard
from nescio.guard.verdict import Verdict, joined
from nescio.guard.witnesses import Appearance, Doubt, Strangeness, Witness
from nescio.guard.wrong import Wrong

__all__ = ["Guard", "Verdict", "Wrong", "Witness", "Doubt", "Strangeness", "Appearance", "joined"]
