"""One data set and sizes below the smoke scale, on bundled digits."""

from dataclasses import replace

import pytest

from nescio_papers.runner import scale as scales
from nescio_papers.runner.parts import Parts
from nescio_papers.runner.program import Job
from nescio_papers.runner.run import run
from nescio_papers.ua_backprop import figures, sizes, sweep, table1, table2

SMALLER = replace(
    sizes.SIZES["smoke"], pool=40, pictures=5, patched=3, few={"": 30}, tested=20, attended=4, held=4, epochs=1,
    trained={"": (3, 1)},
)  # fmt: skip


@pytest.fixture
def small(tiny, monkeypatch):
    """One data set, and everything smaller than at the smoke scale."""
    monkeypatch.setattr(sizes, "SIZES", {**sizes.SIZES, "smoke": SMALLER})
    for study in (table1, table2, sweep):
        monkeypatch.setattr(study, "COLUMNS", study.COLUMNS[:1])
    monkeypatch.setattr(figures, "SETS", figures.SETS[:1])


def went(study, work, models, **more):
    return run(study.STUDY, "smoke", work=work, models=models, device="cpu", progress=False, **more)


def numbers(results):
    return [
        (c["row"], c["seed"], {k: v for k, v in c.get("metrics", {}).items() if k != "seconds"})
        for part in results["parts"]
        for c in part["cells"]
    ]


@pytest.fixture
def job(small, tmp_path, models):
    return Job(Parts(scales.get("smoke"), None, models, "cpu", False), None, tmp_path, lambda: None, lambda line: None)
