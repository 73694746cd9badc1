"""`Guard`: fitted to a reference, it says of any input whether it is foreign. The pipeline, from top to bottom:

fit     read the reference ─► one forward pass, and one for changed copies ─► equal inputs once, cut into folds
        ─► witnesses fitted to one part, ranks from the other
check   one forward pass ─► what the witnesses measure ─► their votes ─► the sum of these ─► its rank
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from nescio import inputs, quantities
from nescio.data.sources import Rows
from nescio.guard import fitting
from nescio.guard.changes import Changes, Nuisances
from nescio.guard.fitted_witnesses import FittedWitnesses
from nescio.guard.fitting import Fitted
from nescio.guard.input_blocks import block_size, blocks, count, form
from nescio.guard.judging import Measured
from nescio.guard.verdict import Verdict, joined
from nescio.guard.witnesses import Witness, get
from nescio.inputs import Data, Inputs
from nescio.models import Classifier, ModelLike
from nescio.modes import preserved
from nescio.posteriors.saving import fingerprint, versions
from nescio.progress import bar
from nescio.quantities import Logits, Request
from nescio.scores import Method
from nescio.types import InputError, ModelError

_GPU_SHARE = 0.1  # of a GPU's memory that the states of the witnesses may take


class Guard:
    """Tell which inputs of a classifier are foreign: unlike the inputs of a reference.

    Args:
        model: A PyTorch classifier, any callable that returns logits, or a `Classifier`. It is not changed.
        doubt: The score that the witness of doubt uses: a name of `nescio.methods()`, or such an object. The default,
            GEN, needs the forward pass alone; "regrad" and "evengrad" cost many times as much.
        witnesses: Names or objects of `nescio.guard.witnesses`.
        output: What the model returns, as in `nescio.score`.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> guard = nescio.Guard(model).fit(torch.randn(400, 4))
        >>> guard.check(torch.tensor([[0.1, -0.2, 0.3, 0.1], [9.0, 9.0, 9.0, 9.0]])).foreign(0.05)
        tensor([False,  True])
    """

    name: ClassVar[str] = "guard"

    def __init__(
        self,
        model: ModelLike,
        *,
        doubt: str | Method = "gen",
        witnesses: Sequence[str | Witness] = ("doubt", "strangeness", "appearance"),
        output: str | None = None,
    ) -> None:
        self.classifier = Classifier.of(model, output)
        self.witnesses = tuple(get(one, doubt) for one in witnesses)
        names = [one.name for one in self.witnesses]
        if not names or len(set(names)) < len(names):
            raise InputError(f"expected at least one witness, and each once, got {names}")
        self._fitted: Fitted | None = None
        self._versions: tuple[Any, ...] = ()
        self._on_gpu: tuple[Fitted, torch.device, list[FittedWitnesses]] | None = None

    @property
    def fitted(self) -> Fitted:
        """What the guard has learnt; an InputError before the fit."""
        if self._fitted is None:
            raise InputError(
                "expected a guard that is fitted, got one that is not; give it some hundred inputs of the kind that "
                "the model is meant for: guard.fit(reference)"
            )
        return self._fitted

    def fit(
        self,
        reference: Data | Rows,
        *,
        nuisances: Nuisances = "auto",
        groups: Sequence[Hashable] | None = None,
        seed: int = 0,
        progress: bool | None = None,
        chunk: int | None = None,
    ) -> Self:
        """Learn what known inputs look like.

        Args:
            reference: Inputs of the kind that the model is meant for and was not trained on: a tensor, a mapping of
                tensors, an iterable of batches such as a data loader, or rows of `nescio.data.sources.open_data`.
                With labels, as a pair (x, y) or as batches that are pairs, verdicts have `Verdict.wrong` too.
            nuisances: Changes that do not make an input foreign. "auto": pictures may be re-saved, resized, a little
                brighter, noisy or turned, where that does not change the model's answer. A list of names of
                `nescio.guard.changes.CHANGES`, and of functions from a batch to a changed batch. None: no changes.
            groups: For each input what it belongs to, where inputs are not independent: the photograph that a crop is
                from, the film of a frame, the patient of a scan. Inputs of one group never judge each other, so the
                promise is for inputs of new groups.
            seed: Changes which inputs fit and which give ranks, and what is drawn for the changes.
            progress: As in `nescio.score`.
            chunk: As in `nescio.score`.

        Returns:
            The guard itself.

        Raises:
            InputError: The reference has fewer than 20 different inputs, or inputs that cannot be used.

        Examples:
            >>> guard = nescio.Guard(torch.nn.Linear(4, 3)).fit(torch.randn(400, 4))
            >>> guard
            Guard(Linear, doubt, strangeness, appearance; fitted to 400 inputs)
        """
        changes = Changes.of(nuisances)
        record = fitting.read(self.classifier, self.witnesses, reference, changes, seed, progress, chunk)
        self._fitted = fitting.fit(self.classifier, record, groups)
        self._versions = versions(self.classifier)
        return self

    def check(self, x: Data | Rows, *, progress: bool | None = None, chunk: int | None = None) -> Verdict:
        """Judge whether inputs are foreign.

        Args:
            x: A tensor, a mapping of tensors, an iterable of batches, or rows of `nescio.data.sources.open_data`.
            progress: As in `nescio.score`.
            chunk: As in `nescio.score`.

        Returns:
            The verdict on every input, on the CPU.

        Raises:
            InputError: The guard is not fitted, or the inputs have another shape than those of the reference.
            ModelError: The model's weights have changed since the fit.

        Examples:
            >>> guard = nescio.Guard(torch.nn.Linear(4, 3)).fit(torch.randn(400, 4))
            >>> guard.check(torch.full((1, 4), 99.0)).p_value
            tensor([0.0050], dtype=torch.float64)
        """
        requests = self.requests
        self._refuse_changed_weights()
        parts = []
        last: Callable[[], Verdict] | None = None
        with preserved(self.classifier), bar(count(x), show=progress, description="checking") as shown:
            for block, _ in blocks(x, chunk or block_size(self.classifier), self.classifier.device):
                self.refuse_another_form(block)
                begun = self._begun(block, requests, chunk)
                if last is not None:
                    parts.append(last())
                last = begun
                shown.update(inputs.size(block))
        if last is None:
            raise InputError("expected at least one input to check, got none")
        return joined([*parts, last()])

    @property
    def requests(self) -> tuple[Request, ...]:
        """The quantities of a batch that `judge` needs, for `nescio.quantities.compute`."""
        return fitting.requests_of(self.fitted.witnesses, self.fitted.anatomy)

    def judge(self, answers: Mapping[Request, Any]) -> Verdict:
        """Return the verdict on a batch from its quantities.

        Args:
            answers: What `nescio.quantities.compute` gives for `requests`. On a GPU the witnesses work there, and
                only what they measure is copied to the host.

        Returns:
            The verdict, on the CPU.
        """
        return self._measured(answers).verdict()

    # --- a guard is also a method of `nescio.score`, and shares its pass over the data ---

    @property
    def needs(self) -> tuple[Request, ...]:
        """The quantities that the score is made from."""
        self._refuse_changed_weights()
        return self.requests

    def __call__(self, *values: Any) -> Tensor:
        """Return the score of each input, float64 ``[N]``, higher = more foreign."""
        return self.judge(dict(zip(self.requests, values, strict=True))).score

    def check_model(self, classifier: Classifier) -> None:
        """Raise a ModelError for another model than the guard's own, or one with other weights.

        Args:
            classifier: The model.
        """
        own = self.classifier
        same = classifier.model is own.model or (
            classifier.module is not None and fingerprint(classifier) == self.fitted.weights
        )
        if not same or classifier.preprocess is not own.preprocess or classifier.output != own.output:
            raise ModelError(
                f"expected the model that the guard was fitted with ({own.name}), got {classifier.name}, which is "
                "another one, or has another pre-processing or output; give that one, or fit a guard to this one"
            )

    # --- keeping ---

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the guard to a folder, as safetensors and JSON. The model itself is not in it.

        Args:
            folder: Where to write; it is made where it is missing.

        Examples:
            >>> from tempfile import TemporaryDirectory
            >>> model = torch.nn.Linear(4, 3)
            >>> with TemporaryDirectory() as folder:
            ...     nescio.Guard(model).fit(torch.randn(400, 4)).save(folder)
            ...     nescio.Guard.load(folder, model)
            Guard(Linear, doubt, strangeness, appearance; fitted to 400 inputs)
        """
        from nescio.guard import guard_saving

        guard_saving.save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str], model: ModelLike) -> Guard:
        """Read a guard that was saved.

        Args:
            folder: What `save` wrote.
            model: The model that the guard was fitted with, with the same weights.

        Returns:
            The guard, fitted.

        Raises:
            ModelError: The model is another one, or has other weights.
            InputError: The folder holds no guard, or a damaged one.
        """
        from nescio.guard import guard_saving

        return guard_saving.load(folder, model)

    def refuse_another_form(self, x: Inputs) -> None:
        """Raise an InputError for inputs of another kind or shape than those of the reference.

        Args:
            x: The inputs.
        """
        expected = self.fitted.form
        if expected is not None and form(x) != expected:
            raise InputError(
                f"expected inputs of shape {list(expected)} as in the reference, got {inputs.describe(x)}; bring them "
                "to that form, or fit the guard to inputs of this one"
            )

    def __repr__(self) -> str:
        used = self.witnesses if self._fitted is None else self._fitted.witnesses  # a model may lack what some look at
        names = ", ".join(witness.name for witness in used)
        state = "not fitted" if self._fitted is None else f"fitted to {self._fitted.count} inputs"
        return f"Guard({self.classifier.name}, {names}; {state})"

    def _measured(self, answers: Mapping[Request, Any]) -> Measured:
        return Measured(self.fitted, self._witnesses_on(answers[Logits()].device), answers)

    def _begun(self, x: Inputs, requests: Sequence[Request], chunk: int | None) -> Callable[[], Verdict]:
        """Begin with a batch: a GPU goes on with it, and the host is free until it asks for the verdict."""
        compute = partial(quantities.compute, self.classifier, x, requests, chunk)
        if not self._works_on_gpu():
            done = self.judge(compute())
            return lambda: done
        measured = self._measured(compute(on_device=True))

        def verdict() -> Verdict:
            result = measured.verdict()
            return result if measured.finite(result) else self.judge(compute())  # says which layer is not finite

        return verdict

    def _works_on_gpu(self) -> bool:
        """Whether the model is on a GPU that has room for the states of the witnesses."""
        device = self.classifier.device
        if device is None or device.type != "cuda":
            return False
        room = torch.cuda.get_device_properties(device).total_memory
        return sum(fold.witnesses.nbytes for fold in self.fitted.folds) < _GPU_SHARE * room

    def _witnesses_on(self, device: torch.device) -> list[FittedWitnesses]:
        """The fitted witnesses of each fold, on the device, to which they are moved once."""
        fitted = self.fitted
        if device.type == "cpu":
            return [fold.witnesses for fold in fitted.folds]
        if self._on_gpu is None or self._on_gpu[0] is not fitted or self._on_gpu[1] != device:
            self._on_gpu = fitted, device, [fold.witnesses.to(device) for fold in fitted.folds]
        return self._on_gpu[2]

    def _refuse_changed_weights(self) -> None:
        """Raise a ModelError where the model's weights have changed since the fit."""
        fitted, now = self.fitted, versions(self.classifier)
        if now != self._versions:
            if fingerprint(self.classifier) != fitted.weights:
                raise ModelError(
                    f"expected {self.classifier.name} with the weights that the guard was fitted with, but they have "
                    "changed since; fit it again: guard.fit(reference)"
                )
            self._versions = now
