"""`calibrate`: a temperature for a network, fitted to some labelled rows and judged on others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from nescio import plots
from nescio.data import replacing
from nescio.data.sources import Rows
from nescio.evaluate import Reliability, nll, reliability
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.posteriors import Deterministic, Temperature
from nescio.progress import growing


class LabelledRows:
    """Read some rows of labelled data in batches, as often as they are gone through.

    Args:
        rows: The data.
        places: Which of their rows.
        batch_size: How many rows a batch has.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> LabelledRows(example_job().open().rows, range(4), batch_size=2).total
        4
    """

    def __init__(self, rows: Rows, places: Sequence[int], batch_size: int) -> None:
        self.rows, self.places, self.batch_size = rows, list(places), batch_size
        self.total = len(self.places)

    def __iter__(self) -> Iterator[tuple[Inputs, Tensor | None]]:
        for some in growing(len(self.places), self.batch_size):
            places = self.places[some.start : some.stop]
            batch = self.rows.assemble(places, map(self.rows.attempt, places))
            if batch is not None:
                yield batch.inputs, batch.labels

    def labels(self) -> Tensor:
        """Return the labels of the rows that could be used; they are known once the rows were gone through."""
        assert self.rows.labels is not None
        bad = {problem.index for problem in self.rows.problems}
        return self.rows.labels[[place for place in self.places if place not in bad]]


@dataclass(frozen=True)
class Calibration:
    """Hold a fitted temperature, and how reliable the network is before and after it.

    Attributes:
        posterior: The network with the fitted temperature.
        fitted: The number of inputs that it was fitted to.
        tested: The number of inputs that the figures are of.
        reliability: "before" and "after" it.
        nll: The negative log-likelihood "before" and "after" it.

    Examples:
        See `calibrate`, which makes one.

        >>> [field for field in Calibration.__dataclass_fields__][:2]
        ['posterior', 'fitted']
    """

    posterior: Temperature
    fitted: int
    tested: int
    reliability: dict[str, Reliability]
    nll: dict[str, float]

    def draw(self, file: Path) -> None:
        """Draw the reliability before and after it, as a PNG file.

        Args:
            file: Where to write.
        """
        figure = plots.reliability(self.reliability)
        with replacing(file) as part:
            figure.savefig(part, format="png", dpi=150)


def halves(rows: Rows, seed: int, batch_size: int) -> tuple[LabelledRows, LabelledRows]:
    """Split rows into two halves at random: one to fit with, one to judge by.

    Args:
        rows: The data.
        seed: The seed of the split.
        batch_size: How many rows a batch has.

    Returns:
        The half for the fit, and the half for the figures.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> fit, test = halves(example_job(rows=8).open().rows, seed=0, batch_size=8)
        >>> fit.total, test.total
        (4, 4)
    """
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    fit, test = (half.sort().values.tolist() for half in (order[: len(rows) // 2], order[len(rows) // 2 :]))
    return LabelledRows(rows, fit, batch_size), LabelledRows(rows, test, batch_size)


def calibrate(
    network: Classifier, fit: LabelledRows, test: LabelledRows, kind: Literal["temperature", "platt"] = "temperature"
) -> Calibration:
    """Fit a temperature to labelled rows, and compare the network without and with it on others.

    Args:
        network: The network to calibrate; it is left as it is.
        fit: The rows for the fit.
        test: The rows for the figures.
        kind: One temperature, or a scale and a shift for each class.

    Returns:
        The temperature, and the figures.

    Raises:
        InputError: If there are no labels, or labels that do not fit the network.

    Examples:
        >>> import tempfile
        >>> from nescio.data.sources import open_data
        >>> file = tempfile.mkdtemp() + "/x.npz"
        >>> answers = np.arange(300) % 3
        >>> labels = np.where(np.arange(300) % 10, answers, 0)  # some of the answers are wrong
        >>> np.savez(file, x=4 * np.eye(3, dtype=np.float32)[answers], y=labels)
        >>> rows = open_data(file)
        >>> fit, test = halves(rows, seed=0, batch_size=8)
        >>> calibration = calibrate(nescio.Classifier(torch.nn.Identity()), fit, test)
        >>> calibration.fitted, calibration.tested, list(calibration.nll)
        (150, 150, ['before', 'after'])
    """
    before = Deterministic(network).predict(test)[0]
    labels = test.labels()
    figures = {"before": reliability(before, labels)}  # labels that do not fit are found before the fit
    posterior = Temperature(network, kind).fit(fit)
    after = posterior.predict(test)[0]
    figures["after"] = reliability(after, labels)
    losses = {"before": nll(before, labels), "after": nll(after, labels)}
    return Calibration(posterior, len(fit.labels()), len(labels), figures, losses)
