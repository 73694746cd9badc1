"""Forms of the guard: how z of the witnesses become one score. The guard's own, and what it is compared with.

Every form is a function of `Z`: doubt ``[N]``, strangeness ``[N]`` and appearance ``[N, depths]``, all as z.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nescio.guard.witnesses import Appearance, Doubt, Strangeness, Witness

Floats = NDArray[np.float64]


class Z(NamedTuple):
    """What the witnesses say."""

    doubt: Floats
    strangeness: Floats
    appearance: Floats


Form = Callable[[Z], Floats]


def guard(z: Z) -> Floats:
    """Return the votes of the witnesses as they come, added up."""
    return _vote(Doubt(), z.doubt) + _vote(Strangeness(), z.strangeness) + _vote(Appearance(), z.appearance)


def _vote(witness: Witness, z: Floats) -> Floats:
    return witness.vote(torch.from_numpy(z if z.ndim == 2 else z[:, None])).numpy()


def _appearance(dead_zone: float, weight: float) -> Callable[[Floats], Floats]:
    witness = Appearance(dead_zone, weight)
    return lambda z: _vote(witness, z)


def _positive(z: Floats) -> Floats:
    return np.maximum(z, 0.0)


FORMS: Mapping[str, Form] = {
    "guard": guard,
    "doubt alone": lambda z: z.doubt,
    "strangeness alone": lambda z: z.strangeness,
    "appearance alone": lambda z: _vote(Appearance(0.0), z.appearance),
    "without doubt": lambda z: _vote(Strangeness(), z.strangeness) + _vote(Appearance(), z.appearance),
    "without strangeness": lambda z: _vote(Doubt(), z.doubt) + _vote(Appearance(), z.appearance),
    "without appearance": lambda z: _vote(Doubt(), z.doubt) + _vote(Strangeness(), z.strangeness),
    "plain sum, mean over depths": lambda z: z.doubt + z.strangeness + _positive(z.appearance).mean(1),
    "no dead zone": lambda z: (
        _vote(Doubt(), z.doubt) + _vote(Strangeness(), z.strangeness) + _appearance(0.0, 3.0)(z.appearance)
    ),
    "no floor of doubt": lambda z: z.doubt + _vote(Strangeness(), z.strangeness) + _vote(Appearance(), z.appearance),
    "largest depth": lambda z: (
        _vote(Doubt(), z.doubt) + _vote(Strangeness(), z.strangeness) + 3 * _positive(z.appearance - 1.5).max(1)
    ),
    "first half of the depths": lambda z: guard(z._replace(appearance=z.appearance[:, : z.appearance.shape[1] // 2])),
    "second half of the depths": lambda z: guard(z._replace(appearance=z.appearance[:, z.appearance.shape[1] // 2 :])),
    "largest witness": lambda z: np.maximum(np.maximum(z.doubt, z.strangeness), z.appearance.max(1)),
}
"""The forms by their names in the study; the first is the guard's."""
