"""Small models and rows for the tests of reports: digits that are learnt in a second, and a table of three features."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nescio import data
from nescio.data.sources import Rows, open_data
from nescio.models.sources import Source, open_model

MODELS = """
import torch
from torch import nn


def digits():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))


def table():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))


table.classes = ["<b>low", "middle", "high"]
"""


@functools.cache
def _learnt() -> tuple[data.Digits, dict[str, Any]]:
    """Digits, and weights that have learnt them: once for all tests of a process."""
    known = data.digits(held_out=60, seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    for _ in range(40):  # plain descent: torch.optim alone takes seconds to load
        loss = nn.functional.cross_entropy(model(known.train.x[:300]), known.train.y[:300])
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for value, slope in zip(model.parameters(), slopes, strict=True):
                value -= 0.5 * slope
    return known, model.state_dict()


def write(folder: Path) -> None:
    """Models, the weights of one, digits whose labels are in part wrong, noise, both mixed, digits for a reference, and
    a table with a bad row.
    """
    (folder / "reported_models.py").write_text(MODELS)
    known, weights = _learnt()
    torch.save(weights, folder / "digits.pt")
    labels = known.held_out.y.clone()
    labels[::9] = (labels[::9] + 1) % 10
    np.savez(folder / "held.npz", x=known.held_out.x.numpy(), y=labels.numpy())
    np.savez(folder / "train.npz", x=known.train.x[:200].numpy(), y=known.train.y[:200].numpy())
    np.savez(folder / "reference.npz", x=known.train.x[300:420].numpy())  # never shown to the network
    rng = np.random.default_rng(0)
    noise = rng.random((40, 1, 8, 8), np.float32)
    np.savez(folder / "other.npz", x=noise)
    mixed = [known.held_out.x[:12].numpy(), 5 * noise[:4], 5 * noise[:1]]
    np.savez(folder / "mixed.npz", x=np.concatenate(mixed))  # twelve digits, and bright noise, one of four twice
    lines = ["age,pay,name height,label"]
    for i, row in enumerate(rng.normal(size=(40, 3))):
        label = ("<b>low", "middle", "high")[int(row[0] > 0) + int(row[1] > 0.5)]
        lines.append(",".join(["?" if i == 7 else f"{row[0]:.4f}", *(f"{v:.4f}" for v in row[1:]), label]))
    (folder / "table.csv").write_text("\n".join(lines) + "\n")


def opened(name: str, file: str, **settings: Any) -> tuple[Source, Rows]:
    """A model of the current folder, and rows of a file there."""
    source = open_model(f"reported_models:{name}", "digits.pt" if name == "digits" else None)
    return source, open_data(file, preprocess=source.preprocess, classes=source.classes, on_error="skip", **settings)
