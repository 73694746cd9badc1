"""Uncertainty maps as attention in a training with few pictures, as in section 5.2.2 of the UA-Backprop paper.

    1. an ensemble is trained on the few pictures alone, and its maps of them are made: epistemic uncertainty
    2. a network is trained on the same pictures with A = (1 − M) ⊙ M as attention in its last convolution's features
    3. accuracy and negative log-likelihood on test pictures as they are; and, beside it, with maps of theirs

Flat attention is the control for what 1 + αA does by its size alone: A is everywhere the mean over pixels and pictures
of the attention that our maps give.

The paper's schedule is in a supplement that is not at hand: here it is SGD 0.01 with momentum 0.9 and weight decay
5e-4, batches of 128, 30 epochs, without augmentation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from nescio import mitigate
from nescio.training import Recipe
from nescio.types import InputError
from nescio_papers import zoo
from nescio_papers.runner import metrics
from nescio_papers.runner.cells import digest
from nescio_papers.runner.parts import Pictures
from nescio_papers.runner.program import Job
from nescio_papers.runner.study import NAMES, Row
from nescio_papers.ua_backprop.case import Case
from nescio_papers.ua_backprop.ensemble import BATCH, trained_on
from nescio_papers.ua_backprop.rows import FLAT, OURS
from nescio_papers.ua_backprop.sizes import sizes_of
from nescio_papers.zoo.plans import SGD, to_floats

NONE = "none"
"""The method of the row without attention."""
APART = 100
"""Seeds of retrained networks start here: they are none of the ensemble's."""


@dataclass(frozen=True)
class Few:
    """Few training pictures of a data set, what they are trained by, and an ensemble of networks that were."""

    case: Case
    plan: zoo.TrainingPlan
    recipe: Recipe
    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, job: Job, known: str, pictures: Pictures, tests: Pictures) -> Few:
        """Take the first of these pictures and train an ensemble on them; `tests` say how good its networks are."""
        sizes = sizes_of(job.parts.scale)
        plan = zoo.RECIPES[job.parts.plan(known)]
        count = sizes.few.get(known, sizes.few.get("", 0))
        if not count:
            raise InputError(f"the scale {job.parts.scale.name} trains nothing on few pictures of this data set")
        x, y = pictures.x[:count], pictures.y[:count]
        recipe = replace(SGD, epochs=sizes.epochs)
        folder = f"few-{plan.name}-{digest(bytes(x.numpy().data), repr(recipe.epochs))}"
        began = time.perf_counter()
        ensemble, models = trained_on(job, plan, (x, y), recipe, sizes.members, folder, tests)
        took = time.perf_counter() - began
        job.say(f"{NAMES[known]}: {sizes.members} networks trained on {len(x)} pictures ({took:.0f} s)")
        return cls(Case(job, known, ensemble, models), plan, recipe, x, y)

    def maps(self, row: Row, x: Tensor) -> Any:
        """Return maps of pictures of bytes by a row's method; None for the row without attention."""
        return None if row.method == NONE else self.case.maps(row, to_floats(x)).values

    def _mean_attention(self, flat: Any) -> float:
        """Return the mean attention of our maps, in units of that of flat maps by their softmax."""
        ours = mitigate.attention(self.maps(OURS, self.x)).mean()
        return float(ours / mitigate.attention(flat[:1], "softmax").mean())

    def retrained(self, row: Row, seed: int, tests: Pictures, tested: int, attended: int, alpha: float) -> Any:
        """Train a network with a row's maps; return its accuracy and NLL without and with maps of test pictures."""

        def made() -> dict[str, Any]:
            device = self.case.ensemble.device
            maps, flat = self.maps(row, self.x), row.method == FLAT
            network = mitigate.retrain(
                lambda: self.plan.model(APART + seed).to(device),
                (self.x, self.y),
                maps,
                recipe=self.recipe,
                alpha=alpha * self._mean_attention(maps) if flat else alpha,
                normalise="softmax" if flat else "range",
                seed=APART + seed,
                progress=False,
            )
            plain = network.predict(list(tests.x[:tested].split(BATCH)), None, progress=False)[0]
            answers = {"plain": metrics.answers(plain, tests.y[:tested])}
            if attended:
                x = tests.x[:attended]
                with_maps = network.predict(x, self.maps(row, x), progress=False)[0]
                answers["attended"] = metrics.answers(with_maps, tests.y[:attended])
            return answers

        about = {"alpha": alpha, "seed": seed, "epochs": self.recipe.epochs, "tests": tests.id}
        about |= {"tested": tested, "attended": attended}
        return self.case.numbers("retraining", row, to_floats(self.x), made, about)
