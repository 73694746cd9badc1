"""An ensemble with its maps."""

from dataclasses import replace

import numpy as np
import pytest

from nescio.types import InputError
from nescio_papers.runner import scale as scales
from nescio_papers.runner.parts import Parts
from nescio_papers.runner.scoring import TimeOver
from nescio_papers.ua_backprop.case import Case
from nescio_papers.ua_backprop.rows import MAGNITUDES, RIVALS, described
from papers.tests.ua_backprop.conftest import SMALLER


def test_time_that_is_over_is_seen_between_members(job):
    calls = []

    def check():
        calls.append(len(calls))
        if len(calls) == 2:
            raise TimeOver

    with pytest.raises(TimeOver):
        Case.of(replace(job, check=check), "mnist")


def test_networks_of_cifar100_are_not_trained_but_taken_where_they_are(job, tmp_path):
    quick = replace(job, parts=Parts(scales.get("quick"), None, tmp_path, "cpu", False))
    with pytest.raises(InputError, match="no trained networks are at hand"):
        Case.of(quick, "cifar100")


def test_magnitudes_are_those_of_the_maps_with_signs(job):
    """They are made from the same maps, so they have the same settings, and no time of their own."""
    case = Case.of(job, "mnist")
    x = job.parts.known("mnist").floats(0, 3)
    rows = {row.label: row for row in (*RIVALS, *MAGNITUDES)}
    for name in ("IG", "Blur IG"):
        own, bare = case.maps(rows[name], x).values, case.maps(rows[f"{name}, magnitudes"], x)
        assert (own < 0).any() and (bare.values == np.abs(own)).all() and bare.seconds == 0.0
        told, without = (described(rows[label], SMALLER) for label in (name, f"{name}, magnitudes"))
        assert told.pop("method") != without.pop("method") and told == without and told["steps"] == 2
