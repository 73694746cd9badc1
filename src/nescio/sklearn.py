"""nescio for scikit-learn: a classifier that says which inputs are foreign, and a scorer of doubt.

    from nescio.sklearn import GuardedClassifier

    model = GuardedClassifier().fit(X, y)
    model.predict(X_new), model.foreign(X_new)

The package is loaded when one of the names is first used: pip install 'nescio[sklearn]'.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nescio._common.lazy_imports import need

if TYPE_CHECKING:
    from nescio.doors.guarded_classifier import GuardedClassifier
    from nescio.doors.uncertainty_scorer import UncertaintyScorer

__all__ = ["GuardedClassifier", "UncertaintyScorer"]
_HOME = {"GuardedClassifier": "guarded_classifier", "UncertaintyScorer": "uncertainty_scorer"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'nescio.sklearn' has no attribute {name!r}; it has {', '.join(__all__)}")
    need("sklearn.base", "sklearn")
    return getattr(import_module(f"nescio.doors.{_HOME[name]}"), name)
