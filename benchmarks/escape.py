"""Does a gradient score escape the limits that entropy and mutual information cannot?

    python benchmarks/escape.py                     # under a minute on one core

Small ReLU networks are trained on half-moons and on wine, and left along many rays. Along each, what the softmax tends
to is known exactly (`nescio.limits.ray`): one class, or a tie. *flagged*: the share of rays on which a score, so many
spreads away, is above the 95 % quantile of what it is on held-out data: whoever rejects 5 % of ordinary inputs would
reject these. *tie*: the wine network with one class written down twice, so that every ray which ends there ends in a
tie. *rate*: how fast REGrad falls behind the last breakpoint, over (gap)/2, which theory says.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, machine, save
from readme import fill
from torch import Tensor, nn

import nescio
from nescio import limits
from nescio.limits.directions import KINDS, directions
from nescio.plots import style

DISTANCES = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)
SCORES = (
    *("max_probability", "entropy", "gen", "energy", "exgrad", "regrad", "evengrad", "ungrad", "gradnorm"),
    *("perturb_x", "perturb_theta", "mc_aa", "inserted_dropout", "laplace", "mahalanobis", "knn"),
)
OF_ENSEMBLES = ("max_probability", "entropy", "mutual_information", "variance")
MEMBERS = 5
DOCS = RESULTS.parents[1] / "docs"
Part = tuple[Tensor, Tensor]


def moons() -> tuple[Part, Part]:
    """Half-moons: 500 points to learn from, 250 held out."""
    from sklearn.datasets import make_moons

    x, y = make_moons(750, noise=0.125, random_state=0)
    return _split(torch.from_numpy(x), torch.from_numpy(y), 500)


def wine() -> tuple[Part, Part]:
    """Wine in standard units: 110 to learn from, 68 held out."""
    from sklearn.datasets import load_wine

    found = load_wine()
    x, y = torch.from_numpy(found.data), torch.from_numpy(found.target)
    return _split((x - x.mean(0)) / x.std(0), y, 110)


def _split(x: Tensor, y: Tensor, count: int) -> tuple[Part, Part]:
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order].long()
    return (x[:count], y[:count]), (x[count:], y[count:])


def trained(x: Tensor, y: Tensor, sizes: Sequence[int], seed: int, steps: int = 300) -> nn.Sequential:
    """A perceptron in float64, trained on all data at once."""
    torch.manual_seed(seed)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1]).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


def doubled(model: nn.Sequential) -> nn.Sequential:
    """The network with its last class written down twice: two classes that tie wherever one of them wins."""
    head = model[-1]
    assert isinstance(head, nn.Linear)
    twin = nn.Linear(head.in_features, head.out_features + 1).double()
    twin.weight.data = torch.cat([head.weight, head.weight[-1:]])
    twin.bias.data = torch.cat([head.bias, head.bias[-1:]])
    return nn.Sequential(*list(model)[:-1], twin).eval().requires_grad_(False)


def shares(scores: dict[str, tuple[Tensor, Tensor]], which: Tensor, case: str) -> list[dict[str, Any]]:
    """For each score, from its values on held-out data and ``[A, rays]`` far away: the flagged share of those rays."""
    rows = []
    for name, (ordinary, far) in scores.items():
        high = ordinary.quantile(0.95)
        own = far[:, which]
        rows.append(
            {
                "case": case, "score": name, "rays": int(which.sum()), "ordinary": float(high),
                "flagged": [float((v > high).double().mean()) for v in own],
                "median": [float(v.median()) for v in own],
            }
        )  # fmt: skip
    return rows


def measured(model: Any, train: Part, x: Tensor, far: Tensor, names: Sequence[str]) -> dict[str, tuple[Tensor, Tensor]]:
    """Each score of the held-out data and of the points ``[A, rays, D]``."""
    together = torch.cat([x, far.flatten(0, 1)])
    fit = train if "knn" in names else None
    found = nescio.score(model, together, list(names), fit=fit, progress=False)
    return {name: (v[: len(x)], v[len(x) :].view(far.shape[:2])) for name, v in found.items()}


def rates(model: nn.Module, rays: limits.Ray, one_hot: Tensor) -> list[float]:
    """How fast REGrad falls behind the last breakpoint of one-hot rays, over half of the gap between the slopes."""
    top = rays.slopes[0].topk(2, -1).values
    gap = top[:, 0] - top[:, 1]
    last = torch.stack([b[-1] if len(b) else torch.zeros(()).double() for b in rays.breakpoints])
    begin = torch.maximum(last, rays.settles("max_probability", 1e-6))
    ends = [begin + extra / gap for extra in (40.0, 240.0)]
    logs = []
    for alpha in ends:
        score = nescio.score(model, rays.x + alpha[:, None] * rays.direction, "regrad", samples=0, tolerance=0.0)
        logs.append(score.log())
    # ‖g‖² grows like α² on the way, which is known and taken off
    fallen = logs[0] - logs[1] + 2 * (ends[1] / ends[0]).log()
    found = fallen / (ends[1] - ends[0]) / (gap / 2)
    return [v for v in found[one_hot].tolist() if math.isfinite(v)]


def case(name: str, parts: tuple[Part, Part], sizes: Sequence[int], starts: int, count: int) -> dict[str, Any]:
    """One data set: rows of one network, of an ensemble, and (for wine) of the network with a doubled class."""
    train, (x, y) = parts
    models = [trained(*train, sizes, seed) for seed in range(MEMBERS)]
    begin = x[torch.linspace(0, len(x) - 1, starts).long()]
    ways = torch.cat(list(directions(x, begin, KINDS, None, 32, count, 0).values()))
    every = begin.repeat(len(ways) // starts, 1)
    far = torch.stack([every + alpha * ways for alpha in DISTANCES])
    rays = limits.ray(models[0], every, ways)
    one_hot = rays.tied[0].sum(-1) == 1
    rows = shares(measured(models[0], train, x, far, SCORES), one_hot, name)
    ensemble = nescio.posteriors.DeepEnsemble(models)
    kinds = [nescio.decompose(ensemble.predict(points, progress=False)) for points in (x, far.flatten(0, 1))]
    fields = dict(zip(OF_ENSEMBLES, ("max_probability", "total", "epistemic", "variance"), strict=True))
    both = {
        f"{score}, {MEMBERS} networks": (getattr(kinds[0], field), getattr(kinds[1], field).view(far.shape[:2]))
        for score, field in fields.items()
    }
    rows += shares(both, one_hot, name)
    tied = limits.ray(doubled(models[0]), every, ways).tied[0].sum(-1) > 1
    if bool(tied.any()):
        rows += shares(measured(doubled(models[0]), train, x, far, SCORES[:9]), tied, f"{name}, tie")
    found = torch.tensor(rates(models[0], rays, one_hot))
    with torch.no_grad():
        accuracy = float((models[0](x).argmax(1) == y).double().mean())
    about = {
        "rays": len(every), "one_hot": int(one_hot.sum()), "tied_when_doubled": int(tied.sum()), "accuracy": accuracy,
        "rate_median": float(found.median()), "rate_least": float(found.min()), "rate_largest": float(found.max()),
    }  # fmt: skip
    return {"about": about, "rows": rows}


def draw(rows: list[dict[str, Any]]) -> Any:
    """The share of rays that would be flagged, against the distance: one panel a case."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    shown = ("entropy", f"mutual_information, {MEMBERS} networks", "regrad", "ungrad", "laplace", "knn")
    figure, panels = style.panels(9.6, 3.3, 1, len(cases), sharey=True)
    for ax, name in zip(panels, cases, strict=True):
        for place, score in enumerate(shown):
            for row in rows:
                if (row["case"], row["score"]) == (name, score):
                    line, mark = style.STYLES[place % 4], "osD^vX"[place]
                    ax.plot(
                        DISTANCES, row["flagged"], line, marker=mark, markersize=4, color=style.COLOURS[place],
                        label=score.replace("_", " "),
                    )  # fmt: skip
        ax.axhline(0.05, color=style.FAINT, linewidth=1)
        ax.set(title=name, xscale="log", xlabel="spreads away from the data", ylim=(-0.03, 1.03))
        style.percents(ax.yaxis, 0)
    panels[0].set_ylabel("rays flagged")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False, fontsize="small")
    return figure


def table(result: dict[str, Any]) -> str:
    """The share of flagged rays near and far, for the page."""
    near, far = result["distances"].index(4.0), result["distances"].index(1024.0)
    cases = list(dict.fromkeys(row["case"] for row in result["rows"]))
    found = {(row["case"], row["score"]): row["flagged"] for row in result["rows"]}
    lines = [
        "| score | " + " | ".join(cases) + " |",
        "|---|" + "---:|" * len(cases),
        *(
            f"| {score.replace('_', ' ')} | "
            + " | ".join(_cell(found.get((case, score)), near, far) for case in cases)
            + " |"
            for score in dict.fromkeys(row["score"] for row in result["rows"])
        ),
    ]
    about = "; ".join(
        f"{name}: {facts['rays']} rays, of which {facts['one_hot']} end in one class, test accuracy "
        f"{100 * facts['accuracy']:.1f} %, measured rate over ½ · gap {facts['rate_least']:.3f} to "
        f"{facts['rate_largest']:.3f}, median {facts['rate_median']:.4f}"
        for name, facts in result["cases"].items()
    )
    return "\n".join(lines) + f"\n\n{about}."


def _cell(flagged: list[float] | None, near: int, far: int) -> str:
    return "" if flagged is None else f"{100 * flagged[near]:.0f} → {100 * flagged[far]:.0f}"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train, leave, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--count", type=int, default=8, help="random directions, and inputs to go towards")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    parts = {
        "moons": case("moons", moons(), (2, 25, 25, 25, 2), options.starts, options.count),
        "wine": case("wine", wine(), (13, 32, 32, 3), options.starts, options.count),
    }
    rows = [row for part in parts.values() for row in part["rows"]]
    about = {name: part["about"] for name, part in parts.items()}
    result = {"distances": list(DISTANCES), "cases": about, "rows": rows}
    print("\n".join(f"{name}: {facts}" for name, facts in about.items()))
    for row in rows:
        flagged = " ".join(f"{100 * v:5.0f}" for v in row["flagged"])
        print(f"{row['case']:<12} {row['score']:<32} flagged % at {flagged}")
    save("escape", {"machine": machine(torch.device("cpu")), **result}, options.folder)
    (options.docs / "figures").mkdir(parents=True, exist_ok=True)
    draw(rows).savefig(options.docs / "figures" / "escape.png", dpi=110)
    page = options.docs / "limits.md"
    if page.exists():
        page.write_text(fill(page.read_text(), "escape", table(result)))
    return result


if __name__ == "__main__":
    main()
