"""What the installation of this package adds to nescio."""

import os
import subprocess
import sys
from pathlib import Path

import nescio
from nescio import plugins
from nescio_papers import datasets, reproduce, zoo

ROOT = Path(__file__).resolve().parents[2]


def test_public_names_of_nescio_lead_here() -> None:
    assert nescio.data.load_set is datasets.load_set and nescio.data.corrupt is datasets.corrupt
    assert nescio.zoo.resnet18 is zoo.resnet18 and nescio.zoo.trained is zoo.trained
    assert nescio.reproduce is reproduce
    assert set(nescio.zoo.PAPERS) | set(nescio.zoo.__all__) == set(zoo.__all__)


def test_every_entry_point_can_be_loaded() -> None:
    for group in ("nescio.commands", "nescio.folders", "nescio.names"):
        entries = [entry for entry in plugins.plugins(group).values() if entry.value.startswith("nescio_papers")]
        assert entries and all(plugins.load(entry) is not None for entry in entries), group


def test_the_commands_run_where_nothing_is_installed() -> None:
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("src", "papers/src"))
    command = [sys.executable, "-S", "-m", "nescio_papers", "train", "--help"]  # -S: no installed packages at all
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0 and "a name that --list shows" in done.stdout, done.stderr
