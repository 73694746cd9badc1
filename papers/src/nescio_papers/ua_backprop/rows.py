"""The methods that make maps, as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from nescio.attribution import METHODS
from nescio_papers.runner.study import Row
from nescio_papers.ua_backprop.sizes import Sizes

RANDOM = "random"
"""Maps of random numbers: what is to be beaten."""
SHUFFLED, FLAT = "shuffled", "flat"
"""Made from our method's maps: each picture gets another one's, or every pixel the same number."""
UNSIGNED = "unsigned_"
"""In front of a method: the magnitudes of its maps, which have signs."""

SIGNED = "signed_"
"""In front of a method: the magnitudes of its maps, with the sign of ∂U/∂x (x − blur x)."""

OURS = Row("UA-Backprop + FullGrad", "ua_backprop", {"path": "fullgrad"}, paper="Ours")
PATHS = (
    Row("UA-Backprop + gradient", "ua_backprop", {"path": "gradient"}),
    Row("UA-Backprop + SmoothGrad", "ua_backprop", {"path": "smoothgrad"}),
    Row("UA-Backprop + Grad-CAM", "ua_backprop", {"path": "gradcam"}),
)
RIVALS = (
    Row("Grad", "gradient", paper="Grad"),
    Row("SmoothGrad", "smoothgrad", paper="SmoothGrad"),
    Row("FullGrad", "fullgrad", paper="FullGrad"),
    Row("IG", "integrated_gradients", paper="IG"),
    Row("Blur IG", "blur_ig", paper="Blur IG"),
    Row("CLUE", "clue", paper="CLUE"),
    Row("δ-CLUE", "delta_clue", paper="δ-CLUE"),
)
MAGNITUDES = (
    Row("IG, magnitudes", UNSIGNED + "integrated_gradients", note="without the sign of a pixel's influence"),
    Row("Blur IG, magnitudes", UNSIGNED + "blur_ig", note="without the sign of a pixel's influence"),
)
FLOOR = Row("Random order", RANDOM)
CONTROLS = (
    Row("Random attention", RANDOM, note="maps of random numbers"),
    Row("Flat attention", FLAT, note="the mean attention of our maps at every pixel"),
    Row("Shuffled maps", SHUFFLED, note="our maps, each of another picture"),
)


def settings(row: Row, sizes: Sizes) -> dict[str, Any]:
    """Return the settings of a row at a scale; UA-Backprop over noisy copies has as many of them as SmoothGrad.

    It takes every class by itself, however many, as the paper has it.
    """
    own: Mapping[str, Any] = sizes.settings.get(str(row.settings.get("path", row.method)), {})
    exact = {"classes": "exact"} if row.method == "ua_backprop" else {}
    return {**exact, **own, **row.settings}


def described(row: Row, sizes: Sizes, **more: Any) -> dict[str, Any]:
    """Return all that a row's maps depend on besides networks and pictures, with today's defaults."""
    if row.method in (SHUFFLED, FLAT):
        return described(OURS, sizes, **more) | {"method": row.method}
    if row.method.startswith((UNSIGNED, SIGNED)):
        return described(bare(row), sizes, **more) | {"method": row.method}
    given = settings(row, sizes) | more
    method = METHODS.get(row.method)
    known = {} if method is None else {one.name: one.default for one in fields(method) if one.name != "vae"}
    return {"method": row.method, **known, **given}


def bare(row: Row) -> Row:
    """Return the row whose maps are as the method makes them, of one that takes or gives signs."""
    return replace(row, method=row.method.removeprefix(UNSIGNED).removeprefix(SIGNED))


def needs_vae(row: Row) -> bool:
    """Return whether the method looks for less doubtful pictures in an auto-encoder."""
    return row.method in ("clue", "delta_clue")
