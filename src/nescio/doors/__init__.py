"""Adapters to other libraries, one file each. A file is loaded when it is first used, and its library with it.

nescio.pipeline                transformers: a pipeline whose answers say how far to trust them
nescio.sklearn                 scikit-learn: `GuardedClassifier`, `UncertaintyScorer`
nescio.lightning               Lightning: `GuardCallback`
nescio.doors.validation        the numbers of that callback, for a training loop of your own
nescio.doors.pytorch_ood       pytorch-ood: a method as a detector (`nescio.scores.from_pytorch_ood` is the way back)
nescio.doors.openood           OpenOOD: a method as a post-processor
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name not in {module.name for module in iter_modules(__path__)}:
        raise AttributeError(f"module 'nescio.doors' has no attribute {name!r}")
    return import_module(f"nescio.doors.{name}")
