"""Risk–coverage curves: the share of wrong answers among the accepted ones against the share that is accepted.

With the risk r of all answers, the perfect order (every wrong answer last) has the risk max(0, 1 − (1 − r)/c) at the
coverage c, and an order by chance has r everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nescio._common.formatting import percent
from nescio.decide import Policy
from nescio.evaluate import RiskCoverage
from nescio.plots.style import COLOURS, FAINT, INK, STYLES, axes, legend_above, percents
from nescio.types import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOISY = 0.05
"""Below this coverage a few answers make the risk anything, so that it does not set the height of the plot."""


def risk_coverage(
    curves: RiskCoverage | Mapping[str, RiskCoverage],
    policy: Policy | None = None,
    width: float = 5.6,
    height: float = 3.8,
) -> Figure:
    """Draw the share of wrong answers among the accepted ones against the share that is accepted.

    The axis of the risk ends where the curves do from a coverage of 5 % on; the first few answers alone may lie above
    it.

    Args:
        curves: What `nescio.evaluate.risk_coverage` gives, or several by name.
        policy: A policy whose promise is drawn as well, with a point where it stands on the data it was made from.
        width: The width in inches.
        height: The height in inches.

    Returns:
        The figure.

    Raises:
        InputError: If curves or policy are something else, or there is no curve.

    Examples:
        >>> curve = nescio.evaluate.risk_coverage([0.1, 0.2, 0.9], [True, True, False])
        >>> nescio.plots.risk_coverage({"entropy": curve}).axes[0].get_xlabel()
        'coverage: share of inputs that are accepted'
    """
    named = {"": curves} if isinstance(curves, RiskCoverage) else dict(curves)
    if not named or not all(isinstance(curve, RiskCoverage) for curve in named.values()):
        raise InputError(
            "curves: expected what nescio.evaluate.risk_coverage gives, or some of those by name, but got "
            + (", ".join(type(curve).__name__ for curve in named.values()) or "none")
        )
    if policy is not None and not isinstance(policy, Policy):
        raise InputError(
            f"policy: expected one from decide.threshold or decide.quantile, but got {type(policy).__name__}"
        )
    figure, ax = axes(width, height)
    for place, risk in enumerate(dict.fromkeys(float(curve.risk[-1]) for curve in named.values())):
        _references(ax, risk, labelled=place == 0)
    for place, (name, curve) in enumerate(named.items()):
        colour, style = COLOURS[place % len(COLOURS)], STYLES[place // len(COLOURS) % len(STYLES)]
        label = ", ".join([*filter(None, [name]), f"AURC {percent(curve.aurc, 2)}"])
        marker = "o" if curve.coverage.size <= 12 else ""
        look: dict[str, Any] = {"color": colour, "linestyle": style, "marker": marker, "linewidth": 1.8}
        ax.plot(curve.coverage, curve.risk, label=label, zorder=4, **look)
    if policy is not None:
        _promise(ax, policy)
    top = _top(named, policy)
    ax.set(xlim=(0, 1.01), ylim=(-0.02 * top, 1.08 * top))
    ax.set_xlabel("coverage: share of inputs that are accepted")
    ax.set_ylabel("risk: share of them that is wrong")
    percents(ax.xaxis)
    percents(ax.yaxis)
    legend_above(ax)
    return figure


def _references(ax: Axes, risk: float, labelled: bool) -> None:
    coverage = np.linspace(max(1.0 - risk, 1e-3), 1.0, 200)
    perfect = np.maximum(0.0, 1.0 - (1.0 - risk) / coverage)
    labels = ("perfect order", "order by chance") if labelled else (None, None)
    x, y = np.append(0.0, coverage), np.append(perfect[0], perfect)
    ax.plot(x, y, color=INK, linewidth=1.0, linestyle="--", label=labels[0])
    ax.axhline(risk, color=FAINT, linewidth=1.0, label=labels[1])


def _promise(ax: Axes, policy: Policy) -> None:
    colour = COLOURS[1]
    if policy.risk is not None:
        ax.axhline(policy.risk, color=colour, linewidth=1.2, linestyle=":", label=_says(policy), zorder=3)
    if policy.threshold is None:
        return
    ax.axvline(policy.coverage, color=colour, linewidth=1.2, linestyle=":", zorder=3, label=_keeps(policy))
    if policy.errors is not None:
        label = f"the policy: {policy.accepted} accepted, {policy.errors} wrong"
        risk = policy.errors / policy.accepted
        ax.plot(policy.coverage, risk, "o", color=colour, markeredgecolor="white", markersize=8, zorder=6, label=label)


def _says(policy: Policy) -> str:
    promise = f"at most {100 * (policy.risk or 0):.4g} % wrong"
    return f"promised: {promise}" if policy.threshold is not None else f"cannot be promised: {promise}"


def _keeps(policy: Policy) -> str | None:
    return None if policy.keep is None else f"promised: at least {100 * policy.keep:.4g} % accepted"


def _top(named: Mapping[str, RiskCoverage], policy: Policy | None) -> float:
    shown = [float(curve.risk[curve.coverage >= NOISY].max()) for curve in named.values()]
    return max(*shown, policy.risk if policy is not None and policy.risk is not None else 0.0, 0.01)
