"""What kind of doubt, on bundled digits: one network, one with a temperature, an ensemble of five, an evidential one.

    python benchmarks/kinds.py                # about a minute on two cores; results/kinds.json, results/kinds.png
    python benchmarks/kinds.py --seeds 0      # one seed

For each seed the digits are split anew: about 440 to train on, 660 to fit the temperature and choose the evidential
epoch, 700 to measure. All networks are the small CNN, trained to the end, as people do who then find them too sure.
Foreign inputs are photo patches and drawn letters, 200 of each; `auroc` is how well a number tells them from digits.
Means over seeds are printed; every seed is in the JSON file.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import torch
from measure import RESULTS, machine, save
from torch import Tensor

from nescio import data, decompose, evaluate, plots, posteriors, zoo
from nescio.training import Recipe
from nescio.types import Decomposition

RECIPE = Recipe(optimizer="adam", lr=3e-3, weight_decay=0.0, batch_size=64, schedule="constant")


def measured(seed: int, epochs: int = 60, members: int = 5) -> tuple[dict[str, dict[str, float]], Any]:
    """All figures of one seed, and what the picture is drawn from."""
    from dataclasses import replace

    parts = data.digits(held_out=700, validation=0.6, seed=seed)
    fit, tune, test = (parts.train.x, parts.train.y), (parts.validation.x, parts.validation.y), parts.held_out
    count = 200
    foreign = torch.cat([kind.make(count, seed) for kind in data.NOT_DIGITS.values()])
    recipe = replace(RECIPE, epochs=epochs)
    build = partial(zoo.small_cnn, 1, 8, 10, kernel=3)

    ensemble = posteriors.DeepEnsemble.train(build, fit, members=members, seed=seed, recipe=recipe, progress=False)
    single = posteriors.Deterministic(ensemble.classifiers[0])
    scaled = posteriors.Temperature(single).fit(tune)
    evidential = posteriors.Evidential.train(build, fit, tune, seed=seed, recipe=recipe, progress=False)
    found: dict[str, dict[str, float]] = {}
    for name, posterior in {"one network": single, "temperature": scaled, "ensemble": ensemble}.items():
        found[name] = calibration(posterior.predict(test.x).mean(0), test.y)
        known, other = decompose(posterior.predict(test.x)), decompose(posterior.predict(foreign))
        found[name] |= separation(known, other, ("total", "epistemic") if name == "ensemble" else ("total",))
    found["temperature"]["temperature"] = float(scaled.temperature)
    alpha = evidential.dirichlet(test.x)
    found["evidential"] = calibration(alpha / alpha.sum(1, keepdim=True), test.y)
    vacuity = evaluate.ood(evidential.vacuity(test.x), evidential.vacuity(foreign), bootstrap=0)
    found["evidential"] |= {"auroc of vacuity": vacuity.auroc}
    found["evidential"] |= separation(
        evidential.decompose(test.x), evidential.decompose(foreign), ("total", "epistemic")
    )
    p = ensemble.predict(torch.cat([test.x, foreign]))
    right = p.mean(0).argmax(1)[: len(test.x)] == test.y
    return found, (decompose(p), right)


def calibration(p: Tensor, y: Tensor) -> dict[str, float]:
    right = float((p.argmax(1) == y).double().mean())
    return {"accuracy": right, "ece": evaluate.ece(p, y), "nll": evaluate.nll(p, y), "brier": evaluate.brier(p, y)}


def separation(known: Decomposition, foreign: Decomposition, fields: tuple[str, ...]) -> dict[str, float]:
    return {
        f"auroc of {name}": evaluate.ood(getattr(known, name), getattr(foreign, name), bootstrap=0).auroc
        for name in fields
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = {}
    for seed in args.seeds:
        runs[seed], drawn = measured(seed, args.epochs)
        if seed == args.seeds[0]:
            decomposition, right = drawn
            n = len(right)
            known = np.concatenate([right.numpy(), np.zeros(len(decomposition.total) - n, bool)])
            wrong = np.concatenate([~right.numpy(), np.zeros(len(decomposition.total) - n, bool)])
            groups = {"correct": known, "wrong": wrong, "not a digit": ~(known | wrong)}
            plots.kinds(decomposition, groups, log=True).savefig(RESULTS / "kinds.png", dpi=110)
    names = list(runs[args.seeds[0]])
    means = {
        name: {key: float(np.mean([run[name][key] for run in runs.values()])) for key in runs[args.seeds[0]][name]}
        for name in names
    }
    for name, values in means.items():
        print(f"{name:12} " + "  ".join(f"{key} {value:.4f}" for key, value in values.items()))
    save("kinds", {"machine": machine(torch.device("cpu")), "means": means, "runs": runs})


if __name__ == "__main__":
    main()
