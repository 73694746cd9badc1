"""`example_job`: a job that takes a moment, to try the pipeline with. The examples of this room use it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from nescio import scores
from nescio.batch.jobs import Job
from nescio.specs import DataSpec, ModelSpec


def example_job(method: str = "entropy", rows: int = 8) -> Job:
    """Return a job of a few black pictures for a small network with random weights.

    Args:
        method: The name of the score.
        rows: How many pictures there are. They have the labels 0, 1, 2, 0, … and are kept in a new temporary folder.

    Returns:
        The job.

    Examples:
        >>> job = example_job(rows=4)
        >>> [len(places) for places in job.batches(range(4))]
        [4]
    """
    file = Path(tempfile.mkdtemp(), "x.npz")
    np.savez(file, x=np.zeros((rows, 1, 28, 28), np.float32), y=np.arange(rows) % 3)
    return Job(ModelSpec("nescio.zoo:small_cnn"), DataSpec(str(file)), (scores.get(method),))
