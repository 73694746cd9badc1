"""What an audit far away from the data is given: some of the rows as one array, and the names of their features."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from nescio.data.sources import Rows
from nescio.data.sources.table_rows import TableRows
from nescio.models import ModelOrPosterior
from nescio.report.findings_types import AuditFacts

ROWS = 128
"""So many at most, spread evenly."""
Audit = Callable[[ModelOrPosterior, Tensor, Sequence[str] | None, int, Sequence[str] | None], AuditFacts]
"""From a model, inputs ``[N, ...]``, names of features, a seed and names of classes to plain values.

`nescio.limits.reported` does that.
"""


def audited(
    audit: Audit | None,
    model: ModelOrPosterior,
    rows: Rows,
    places: Sequence[int],
    seed: int,
    classes: Sequence[str] | None = None,
) -> AuditFacts:
    """Audit the model far away from the data.

    Args:
        audit: What does it; None for no audit.
        model: The model.
        rows: The data.
        places: The rows that were sampled; some of them are where the audit starts.
        seed: Of the random directions.
        classes: What the classes are called; None numbers them.

    Returns:
        What the audit found; or in `left_out` why there is none.
    """
    if audit is None:
        return {"left_out": "It was not asked for."}
    if rows.preprocess.kind == "texts":
        return {"left_out": "Texts have no directions to leave them along."}
    few = list(places[:: max(1, -(-len(places) // ROWS))])
    batch = rows.assemble(few, map(rows.attempt, few))
    x = None if batch is None else batch.inputs
    if not isinstance(x, Tensor) or len(x) < 2 or x.ndim < 2:
        return {"left_out": "It takes at least two inputs that are arrays of numbers."}
    columns = rows.store._x if isinstance(rows.store, TableRows) else []
    names = columns if len(columns) > 1 and len(columns) == x[0].numel() else None
    return audit(model, x if x.is_floating_point() else x.float(), names, seed, classes)
