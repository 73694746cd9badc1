"""Acting on doubt: what an uncertainty map can be used for once `nescio.explain` has made it.

    result = nescio.mitigate.without(posterior, x, maps, share=0.05, by="inpaint")   # no training: before, after
    print(result.improved(y))
    better = nescio.mitigate.retrain(factory, (x, y), maps, recipe=recipe)          # the maps as attention
    plain = nescio.mitigate.retrain(factory, (x, y), None, recipe=recipe)           # the same without attention
    nescio.evaluate.nll(better.predict(test, test_maps)[0], labels)

| name | does |
|---|---|
| `without(posterior, x, maps, *, share, threshold, by, ...)` → `Without` | the doubtful pixels filled in |
| `retrain(model, (x, y), maps, validation, *, validation_maps, recipe, ...)` → `Mitigated` | a network that attends |
| `attention(maps, normalise="range")` | A = (1 − M) ⊙ M, float64 [N, H, W] |
| `Attended(network, where, layer, alpha)` | a module of (x, attention), for a training of one's own |
| `inpaint(x, mask)` | pictures with the masked pixels filled smoothly from around them |

`maps` is an `Attribution`, or numbers [N, H, W]. `retrain` also takes what makes maps for any x (a distribution, a
network, or a function of x): then `predict(x)` needs no maps.
"""

from nescio.mitigate.inpainting import inpaint
from nescio.mitigate.map_attention import ALPHA, Attended, attention
from nescio.mitigate.removal import Improvement, Prediction, Without, without
from nescio.mitigate.retraining import Mitigated, retrain

__all__ = [
    "without",
    "retrain",
    "attention",
    "inpaint",
    "Attended",
    "Mitigated",
    "Without",
    "Prediction",
    "Improvement",
    "ALPHA",
]
