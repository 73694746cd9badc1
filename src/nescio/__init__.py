"""nescio, Latin for "I do not know": how uncertain a pre-trained PyTorch classifier is, one number for each input.

    guard = nescio.Guard(model).fit(reference)   # some hundred unlabelled inputs of the kind it is meant for
    guard.check(x).foreign(0.05)          # which inputs are unlike them, with a promise: at most 5 % false alarms
    u = nescio.score(model, x)            # float64 [N], higher = more uncertain
    nescio.methods()                      # what else there is, what each needs and what it costs
    posterior = nescio.posteriors.Laplace(model).fit(train)      # or an ensemble, dropout, an evidential network …
    nescio.decompose(posterior.predict(x))                       # total, aleatoric and epistemic doubt
    nescio.explain(posterior, x)                                 # which part of the input causes the doubt
    policy = nescio.decide.threshold(u, correct, risk=0.05)      # which answers to accept, with a promise
    g = nescio.trace.class_gradients(model, x)   # ‖∂ log p_c / ∂θ_l‖ for every input, class and layer

The names below are loaded when they are first used, so `import nescio` is quick and needs no optional package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nescio import (
        app,
        attribution,
        batch,
        data,
        decide,
        dense,
        doors,
        evaluate,
        guard,
        lightning,
        limits,
        mitigate,
        models,
        plots,
        posteriors,
        quantities,
        report,
        scores,
        serve,
        sklearn,
        specs,
        trace,
        training,
        types,
        zoo,
    )
    from nescio.attribution import Attribution, explain
    from nescio.doors.transformers_pipeline import pipeline
    from nescio.guard import Guard, Verdict
    from nescio.models import Classifier
    from nescio.scores import methods
    from nescio.scores.decomposition import decompose
    from nescio.scoring import fit, score
    from nescio.types import ClassGradients, Decomposition, Scored

__version__ = "0.2.0"

__all__ = [
    "Guard",
    "score",
    "fit",
    "methods",
    "decompose",
    "explain",
    "pipeline",
    "Classifier",
    "ClassGradients",
    "Decomposition",
    "Attribution",
    "Scored",
    "Verdict",
    "guard",
    "trace",
    "posteriors",
    "scores",
    "evaluate",
    "decide",
    "dense",
    "attribution",
    "mitigate",
    "limits",
    "types",
    "models",
    "quantities",
    "specs",
    "batch",
    "data",
    "training",
    "zoo",
    "plots",
    "report",
    "serve",
    "app",
    "doors",
    "sklearn",
    "lightning",
    "__version__",
]

_HOME = {
    "Guard": "nescio.guard",
    "Verdict": "nescio.guard",
    "score": "nescio.scoring",
    "fit": "nescio.scoring",
    "methods": "nescio.scores",
    "decompose": "nescio.scores.decomposition",
    "explain": "nescio.attribution",
    "Attribution": "nescio.attribution",
    "pipeline": "nescio.doors.transformers_pipeline",
    "Classifier": "nescio.models",
    "ClassGradients": "nescio.types",
    "Decomposition": "nescio.types",
    "Scored": "nescio.types",
}
_ROOMS = frozenset(__all__) - {*_HOME, "__version__"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(_room(_HOME[name]), name)
    elif name in _ROOMS:
        value = _room(f"nescio.{name}")
    elif name == "reproduce":
        value = import_module("nescio.plugins").lent("nescio.reproduce")
    else:
        raise AttributeError(f"module 'nescio' has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = value  # the next access finds it without coming here
    return value


def _room(name: str) -> Any:
    """A part of nescio; where PyTorch is not there, a sentence that says so."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise ImportError(import_module("nescio._common.without_torch").WITHOUT_TORCH) from None
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
