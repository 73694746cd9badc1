"""`GuardCallback`: after each validation of a Lightning trainer, fit a guard and log what it is worth."""

from __future__ import annotations

import math
import sys
from importlib import import_module
from typing import Any

from nescio._common.argument_checks import integer
from nescio._common.lazy_imports import need
from nescio.data.sources import Rows
from nescio.doors.validation import measure
from nescio.guard import Guard
from nescio.guard.changes import Nuisances
from nescio.inputs import Data


def _callback_base() -> Any:
    """The base of callbacks, from the package that is in use; the trainers of both packages take either."""
    for name in sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda one: one not in sys.modules):
        try:
            return import_module(name).Callback
        except ImportError:
            continue
    return need("lightning.pytorch", "lightning").Callback


_Callback: Any = _callback_base()


class GuardCallback(_Callback):
    """Log accuracy, calibration, drift and the AUROC of a guard after each validation, through the trainer's loggers.

    The numbers are those of `nescio.doors.validation.measure`, as ``nescio/auroc`` and so on. They are metrics like any
    others: `ModelCheckpoint` and `EarlyStopping` can monitor them. Module, random generators and trainer are left as
    they were found. It costs a pass over each of the loaders. With several processes each measures its own share, and
    the mean is logged. With ``fast_dev_run`` nothing is measured.

    Args:
        reference: Inputs that the guard is fitted to, such as a loader. None takes one half of the validation inputs,
            and measures the guard on the other.
        foreign: Inputs that the model is not meant for, such as a loader. None leaves out what needs them.
        loader: Validation data as pairs (inputs, labels). None takes the trainer's own, the first if there are several,
            as far as the trainer reads them (`limit_val_batches`).
        network: The name of the attribute of the Lightning module that gives logits; "" for the module itself.
        every_n_epochs: How often to measure in training. `Trainer.validate` always does.
        prefix: What stands before the names.
        output: What the network returns, as in `nescio.score`.
        nuisances: As in `nescio.Guard.fit`. None is quicker for pictures.
        alpha: The share of known inputs that the guard may call foreign.

    Attributes:
        guard: The guard of the latest validation, fitted; None before.
        numbers: What was logged then.

    Examples:
        >>> callback = GuardCallback(foreign=torch.rand(50, 4), every_n_epochs=5)
        >>> callback.guard is None
        True
    """

    def __init__(
        self,
        reference: Data | Rows | None = None,
        foreign: Data | Rows | None = None,
        *,
        loader: Data | None = None,
        network: str = "",
        every_n_epochs: int = 1,
        prefix: str = "nescio",
        output: str | None = None,
        nuisances: Nuisances = "auto",
        alpha: float = 0.05,
    ) -> None:
        super().__init__()
        self.reference, self.foreign, self.loader, self.network = reference, foreign, loader, network
        self.every_n_epochs = integer("every_n_epochs", every_n_epochs, at_least=1)
        self.prefix, self.output, self.nuisances, self.alpha = prefix, output, nuisances, alpha
        self.guard: Guard | None = None
        self.numbers: dict[str, float] = {}

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Fit the guard, measure and log; Lightning calls it."""
        in_training = trainer.state.fn == "fit"
        if trainer.sanity_checking or trainer.fast_dev_run:
            return
        if in_training and (trainer.current_epoch + 1) % self.every_n_epochs:
            return
        loader, batches = self.loader, None
        if loader is None:
            loader, batches = _first(trainer.val_dataloaders), trainer.num_val_batches[0]
        self.guard = Guard(pl_module.get_submodule(self.network), output=self.output)
        self.numbers = measure(
            self.guard.classifier,
            loader,
            batches=None if batches in (None, math.inf) else int(batches),
            reference=self.reference,
            foreign=self.foreign,
            guard=self.guard,
            nuisances=self.nuisances,
            alpha=self.alpha,
        )
        shown = {f"{self.prefix}/{name}": number for name, number in self.numbers.items()}
        pl_module.log_dict(shown, sync_dist=trainer.world_size > 1)


def _first(loaders: Any) -> Any:
    """The validation loader, or the first of several."""
    several = list(loaders.values()) if isinstance(loaders, dict) else loaders
    return several[0] if isinstance(several, list | tuple) else several
