"""What every test stands on: the threads that were asked for, fixed seeds that leave no trace, the way to real data."""

import gc
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the suite runs in the background

# The same examples in every run: a failure in continuous integration is the failure one sees at home.
hypothesis.settings.register_profile("nescio", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("nescio")


gc.disable()  # all that is loaded while tests are found stays: to look through it took a quarter of that time


LONG = {"test_kernels.py", "test_browser.py", "test_gpu.py", "test_reproduce.py"}
"""Files that begin with what takes long: they come first, so that no worker waits for another at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """What was loaded before a file's tests is not garbage: without this every `gc.collect()` would look through it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else libraries that count their objects at the end would tell of leaks


@pytest.fixture(autouse=True)
def _fixed_seeds() -> Iterator[None]:
    """Every test starts from seed 0, and the generators are put back after it, so that order does not matter."""
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if cuda else []
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(cuda_states)


@pytest.fixture(scope="session")
def nescio_data() -> Path:
    """The folder of real datasets that the environment variable NESCIO_DATA names; tests that need it skip without."""
    folder = os.environ.get("NESCIO_DATA")
    if not folder:
        pytest.skip("NESCIO_DATA is not set: name the folder of datasets to run this test")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(
            f"NESCIO_DATA should name a folder of datasets, got {folder}: mend it, or unset it to skip this test"
        )
    return path
