"""nescio, Latin for "I do not know": how uncertain a pre-trained PyTorch classifier is, one number for each input.

    u = nescio.score(model, x)            # float64 [N], higher = more uncertain
    nescio.methods()                      # what else there is, what each needs and what it costs
    g = nescio.trace.class_gradients(model, x)   # ‖∂ log p_c / ∂θ_l‖ for every input, class and layer

The names below are loaded when they are first used, so `import nescio` is quick and needs no optional package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nescio import data, evaluate, models, plots, quantities, report, scores, study, trace, types, zoo
    from nescio.models import Classifier
    from nescio.scores import methods
    from nescio.study.scoring import score
    from nescio.types import ClassGradients, Scored

__version__ = "0.1.0"

__all__ = [
    "score",
    "methods",
    "Classifier",
    "ClassGradients",
    "Scored",
    "trace",
    "scores",
    "evaluate",
    "types",
    "models",
    "quantities",
    "study",
    "data",
    "zoo",
    "plots",
    "report",
    "__version__",
]

_HOME = {
    "score": "nescio.study.scoring",
    "methods": "nescio.scores",
    "Classifier": "nescio.models",
    "ClassGradients": "nescio.types",
    "Scored": "nescio.types",
}
_ROOMS = frozenset(
    {"trace", "scores", "evaluate", "types", "models", "quantities", "study", "data", "zoo", "plots", "report"}
)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _ROOMS:
        value = import_module(f"nescio.{name}")
    else:
        raise AttributeError(f"module 'nescio' has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = value  # the next access finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
