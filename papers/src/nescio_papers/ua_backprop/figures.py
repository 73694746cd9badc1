"""Maps to look at: kinds of uncertainty and methods side by side, as in the UA-Backprop paper's Figures 3 and 4."""

from __future__ import annotations

from nescio_papers.runner.program import Figure, Job, Made, why_not
from nescio_papers.runner.study import NAMES, Study
from nescio_papers.ua_backprop import drawing
from nescio_papers.ua_backprop.case import Case, picked
from nescio_papers.ua_backprop.columns import Told
from nescio_papers.ua_backprop.ensemble import doubtful
from nescio_papers.ua_backprop.judging import blurred
from nescio_papers.ua_backprop.rows import FLOOR, OURS, PATHS, RIVALS
from nescio_papers.ua_backprop.sizes import words

SETS = ("mnist", "cifar10", "svhn")
KINDS = ("epistemic", "aleatoric", "total")
METHODS = (OURS, *PATHS, *RIVALS)
NOTES = (
    "The pictures and the ensembles are those of ua-table1: what that study made in the same work folder is drawn "
    "here, and the rest is made.",
)


def program(job: Job) -> Made:
    """Figures of each set."""
    figures: list[Figure] = []
    notes = [words(job.parts.scale)]
    told = Told()
    for known in SETS:
        name = NAMES[known]
        try:
            case = Case.of(job, known)
            test = job.parts.known(known)
            told.add(case, test)
            x = picked(test, doubtful(case.ensemble, test, case.sizes.pool, case.sizes.pictures))
            few = x[: case.sizes.drawn]
            kinds = {kind: case.maps(OURS, few, kind).values for kind in KINDS}
            figures.append(drawing.kinds(name, known, few.double().numpy(), kinds))
            maps = {row.label: case.maps(row, x).values[: len(few)] for row in METHODS}
            figures.append(drawing.methods(name, known, few.double().numpy(), maps))
            curves = {row.label: blurred(case, row, x)["curve"] for row in (*METHODS, FLOOR)}
            lines = {label: (curve["pixels"], curve["urr"]) for label, curve in curves.items()}
            figures.append(drawing.curves(name, known, lines))
        except Exception as error:  # the other sets are drawn
            notes.append(f"{name} is not drawn, or not all of it: {why_not(error)}")
            job.say(notes[-1])
    return Made([], figures, {"seeds": told.seeds}, told.models, told.sets, notes)


STUDY = Study("ua-figures", "Maps of uncertainty to look at", (), NOTES, program)
