"""How people label pictures: for each picture the share of annotators who chose each class.

CIFAR-10H (Peterson et al. 2019): about 51 people for each picture of the CIFAR-10 test set, in its official order;
p_c = count_c / Σ_c count_c. The file is `cifar10h.npz` with the array `counts` [10000, 10].
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from nescio.data.npz_files import read_npz
from nescio.types import InputError
from nescio_papers.datasets.sets import VARIABLE, folders

SHAPES = {"cifar10h": (10000, 10)}


def soft_labels(name: str = "cifar10h", *, root: str | Path | None = None) -> Tensor:
    """Read how people labelled the test pictures of CIFAR-10.

    Args:
        name: "cifar10h", the only one there is.
        root: Folders as in `load_set`.

    Returns:
        Probabilities float64 [10000, 10], in the order of `load_set("cifar10", "test")`.

    Raises:
        InputError: if the file is missing or holds something else.
    """
    if name not in SHAPES:
        raise InputError(f"name: expected one of {', '.join(SHAPES)}, but got {name!r}")
    places = folders(root)
    path = next((file for place in places if (file := place / f"{name}.npz").is_file()), None)
    if path is None:
        raise InputError(
            f"expected {name}.npz, with the array 'counts', in {' or '.join(map(str, places))}, but it is not there; "
            f"another folder is named with root= or the environment variable {VARIABLE}"
        )
    counts = torch.from_numpy(read_npz(path, "counts")).double()
    if tuple(counts.shape) != SHAPES[name]:
        raise InputError(f"expected counts {list(SHAPES[name])} in {path}, but got {list(counts.shape)}")
    people = counts.sum(dim=1, keepdim=True)
    if not (counts >= 0).all() or not (people > 0).all() or not people.isfinite().all():
        raise InputError(f"expected counts of people in {path}: none negative, and one or more for each picture")
    return counts / people
