"""nescio for Lightning: a callback that logs how far a model can be trusted, after each validation.

    from nescio.lightning import GuardCallback

    Trainer(callbacks=[GuardCallback(foreign=loader_of_other_things)])

`lightning` and `pytorch_lightning` both do. The package is loaded when the name is first used:
pip install 'nescio[lightning]'.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nescio.doors.lightning_callback import GuardCallback

__all__ = ["GuardCallback"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'nescio.lightning' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module("nescio.doors.lightning_callback"), name)
