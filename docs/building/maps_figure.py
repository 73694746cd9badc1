"""One picture and four maps of its doubt: `python docs/building/maps_figure.py` writes docs/figures/maps.png."""

from __future__ import annotations

from pathlib import Path

import torch

import nescio
from nescio import plots

FILE = Path(__file__).resolve().parents[1] / "figures" / "maps.png"
METHODS = {
    "ua_backprop": {},
    "ua_backprop, signed": {"signed": True},
    "blur_gradient": {},
    "integrated_gradients": {"steps": 50},
}
BLURRED = 6
"""Pixels that are blurred to see what becomes of the doubt: those that a map blames most."""


def network(seed: int, data: object) -> torch.nn.Module:
    """A small CNN of 8 × 8 digits."""
    model = nescio.zoo.small_cnn(1, 8, 10, kernel=3, seed=seed)
    tuning = (data.validation.x, data.validation.y)
    nescio.zoo.train(model, data.train.x, data.train.y, tuning, epochs=8, batch_size=32, seed=seed)
    return model


def main() -> None:
    """Train five networks, smear digits that they know, explain the most doubtful of these and draw it."""
    torch.set_num_threads(1)
    data = nescio.data.digits(held_out=300)
    posterior = nescio.posteriors.DeepEnsemble([network(seed, data) for seed in range(5)])
    clean = data.held_out.x
    x = clean.clone()
    x[:, :, 5, 1:7] = x[:, :, 5, 1:7].clamp(min=0.8)  # a stroke through the lower half
    before, after = (nescio.decompose(posterior.predict(one)).epistemic for one in (clean, x))
    at = int((after - before).argmax())
    one = x[at : at + 1]
    shown = {}
    for name, settings in METHODS.items():
        why = nescio.explain(posterior, one, name.partition(",")[0], **settings)
        left = nescio.mitigate.without(posterior, one, why, share=BLURRED / 64, by="blur").after
        title = f"{name}\n{float(after[at]):.2f} → {float(left.uncertainty.epistemic):.2f} nats"
        shown[title] = why.maps[0] / why.maps.abs().max()
    figure = plots.maps(
        shown, one[0], side=2.2, unit="share of the strongest pixel\n(below 0: lowers the doubt)"
    )
    figure.savefig(FILE, dpi=110)


if __name__ == "__main__":
    main()
