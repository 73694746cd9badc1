"""The three normal forms of a per-input gradient, and their norms. Every rule ends in one of them.

``K`` is the number of cotangents (classes), ``N`` of inputs, ``T`` of positions that share the parameter (pixels,
tokens, time steps, noisy copies), ``G`` of groups.

* `Outer`: a sum of outer products over positions, ``g[k,n,g] = Σ_t d[k,n,g,t] ⊗ a[n,g,t]`` with ``a`` [N, G, T, I] and
  ``d`` [K, N, G, T, O];
* `Local`: a gradient that is written down, ``g`` [K, N, F];
* `Rows`: the gradient of a table, ``g[k,n,r] = Σ_{t: at[n,t] = r} d[k,n,t]``, zero in all other rows.

``power(p)`` is ``Σ|g|^p`` [K, N] (p = 1 or 2), in float32 or float64; ``merge`` and `join` add gradients up.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nescio.trace.norms.local import Local
from nescio.trace.norms.looked_up_rows import Rows
from nescio.trace.norms.outer import Outer

__all__ = ["Form", "Local", "Outer", "Rows", "join"]

Form = Local | Outer | Rows


def join(forms: Sequence[Form]) -> Form:
    """Add several gradients of one parameter (a module called twice, the steps of a recurrent cell).

    Args:
        forms: The gradients, all of one form.

    Returns:
        Their sum, in the same form.

    Examples:
        >>> join([Local(torch.ones(1, 1, 3)), Local(torch.ones(1, 1, 3))]).power(2)
        tensor([[12.]])
    """
    outer = [f for f in forms if isinstance(f, Outer)]
    rows = [f for f in forms if isinstance(f, Rows)]
    local = [f for f in forms if isinstance(f, Local)]
    if len(forms) == 1:
        return forms[0]
    if len(outer) == len(forms):
        return Outer(torch.cat([f.a for f in outer], 2), torch.cat([f.d for f in outer], 3))
    if len(rows) == len(forms):
        return Rows(torch.cat([f.at for f in rows], 1), torch.cat([f.d for f in rows], 2))
    assert len(local) == len(forms), "one operand has one rule, and a rule one form"
    return Local(torch.stack([f.g for f in local]).sum(0))
