"""What a user says of a model, of data and of a guard, as plain values; and how these are opened.

    ModelSpec, DataSpec, GuardSpec      frozen, picklable, of values that JSON can hold (`values`)
    open_source, open_rows, open_guard  the model, its rows, its guard (`opening`)
    remember, remembered                which model a saved posterior or guard belongs to (`saved_models`)

The command line makes specs of its arguments, in one place (`nescio.cli.specs`). Jobs carry them to the workers of Ray.
"""

from nescio.data.sources import Rows as Rows
from nescio.models import Classifier
from nescio.models.sources import Source as Source
from nescio.specs.opening import AnyGuard as AnyGuard
from nescio.specs.opening import Pairs as Pairs
from nescio.specs.opening import (
    fit_guard,
    guard_record,
    only_network,
    open_guard,
    open_rows,
    open_source,
    open_training,
)
from nescio.specs.saved_models import names_code, remember, remembered
from nescio.specs.values import DataSpec, GuardSpec, ModelSpec

__all__ = [
    "ModelSpec", "DataSpec", "GuardSpec", "open_source", "open_rows", "open_training", "open_guard", "fit_guard",
    "guard_record",    "only_network", "names_code", "remember", "remembered",
]  # fmt: skip
Network = Classifier
"""What `only_network` gives; with `Source`, `Rows` and `Pairs` for those who name types alone."""
