"""Claims of our own on answers at every pixel."""

from __future__ import annotations

import json
import re
from statistics import fmean

from claims import DOES_NOT, HOLDS, OWN, PARTLY, Claim
from results import cell, files

from nescio_papers.dense.samples import OBJECTS

NEAR = 3.0
"""Points of AUROC within which two scores were expected to lie."""


def pixels() -> list[Claim]:
    """Whether gradients tell more of a pixel than probabilities do, and whether a guard of regions does."""
    name = "segmentation"
    kinds = [name, *(["segmentation-fcn"] if files("segmentation-fcn") else [])]

    def mean(row: str, metric: str = "auroc", study: str = name) -> float:
        return fmean(cell(study, row, column, metric, 0).mean for column in OBJECTS)

    def wrong(row: str, column: str) -> float:
        return float(cell(name, row, column, "raulc", 1).mean)

    def both(row: str) -> str:
        return " / ".join(f"{mean(row, study=study):.1f}" for study in kinds)

    ex, h = mean("exgrad"), mean("entropy")
    quality = " and ".join(_quality(study) for study in kinds)
    other = (
        f" On the FCN, whose logits are resized: ExGrad {mean('exgrad', study=kinds[1]):.1f}, entropy {mean('entropy', study=kinds[1]):.1f}, "
        f"energy {mean('energy', study=kinds[1]):.1f}, RegionGuard {mean('RegionGuard', study=kinds[1]):.1f}."
        if len(kinds) > 1
        else ""
    )
    flagged, object_ = (
        fmean(cell(name, row, column, "found", 4).mean for column in OBJECTS)
        for row in ("RegionGuard: its most foreign region", "RegionGuard: regions")
    )
    alarms = cell(name, "RegionGuard: regions", "strips of the reference", "share", 3).mean
    above = [mean("RegionGuard", study=one) > mean("entropy", study=one) for one in kinds]
    better = [
        one
        for one in OBJECTS
        if cell(name, "RegionGuard", one, "auroc", 0).mean
        > cell(name, "entropy", one, "auroc", 0).mean
    ]
    about = f"Digits on photographs, four kinds of foreign objects pasted in; {quality}. Mean AUROC, foreign pixels against all others"
    return [
        Claim(
            OWN, "Gradients of pixels say what entropy says", "–", f"ExGrad {ex:.1f}, entropy {h:.1f}", HOLDS if abs(ex - h) <= NEAR else PARTLY, name,
            f"{about}; gradients of the last layer, in closed form. Expected was a difference of at most {NEAR:.0f} points. REGrad has {mean('regrad'):.1f}, EvenGrad {mean('evengrad'):.1f}, max_probability {mean('max_probability'):.1f}; "
            f"energy {mean('energy'):.1f} and max_logit {mean('max_logit'):.1f}, whose lead on street scenes is not found here. Of pixels of digits, wrong from right (rAULC): ExGrad {wrong('exgrad', 'pixels of digits'):.2f}, REGrad {wrong('regrad', 'pixels of digits'):.2f}, "
            f"entropy {wrong('entropy', 'pixels of digits'):.2f}, GEN {wrong('gen', 'pixels of digits'):.2f}.{other}",
        ),
        Claim(
            OWN, "A guard of regions beats entropy of pixels", "–", f"{both('RegionGuard')}, entropy {both('entropy')}", HOLDS if all(above) else DOES_NOT, name,
            f"{about}. Of the U-Nets the RegionGuard is above entropy for {_named(better)}, below for {_named([one for one in OBJECTS if one not in better])}; its area under the precision-recall curve is {mean('RegionGuard', 'aupr'):.0f}, that of entropy {mean('entropy', 'aupr'):.0f}. "
            f"Expected was that it is above on average, most for textures and least for letters. At a level of 5 % it flags {alarms:.1f} % of the regions of known pictures and {object_:.0f} % of the regions of foreign objects; by their most foreign region {flagged:.0f} % of the pictures that have one.",
        ),
    ]  # fmt: skip


def _named(some: list[str]) -> str:
    """Words as in "letters and clothes"."""
    return " and ".join([", ".join(some[:-1]), some[-1]] if len(some) > 1 else some) or "none"


def _quality(study: str) -> str:
    """How good the networks are."""
    models = json.loads(files(study)[-1].read_text())["models"]
    found = [float(re.findall(r"mean IoU ([\d.]+)", one["about"])[0]) for one in models]
    kind = models[0]["about"].partition(",")[0].replace("UNet", "U-Net")
    count = f"{len(found)} networks" if len(found) > 1 else "one network"
    low, high = f"{min(found):.3f}", f"{max(found):.3f}"
    return f"{count} ({kind}) with a mean IoU of {low if low == high else f'{low} to {high}'}"
