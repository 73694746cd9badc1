"""`Guard`: fitted to a reference, it says of any input whether it is foreign. The pipeline, from top to bottom.

fit     read the reference ─► one forward pass, copies changed by nuisances too ─► equal inputs once, cut in folds
─► witnesses fitted to some, ranks from the others
check   one forward pass ─► votes ─► their sum ─► its rank
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from os import PathLike
from typing import Any, Self

import torch
from torch import Tensor

from nescio import inputs, quantities, scores
from nescio.guard import fitting, split
from nescio.guard.anatomy import anatomy_of
from nescio.guard.changes import Changes, Nuisances
from nescio.guard.fitted_witnesses import Bench, Testimony
from nescio.guard.fitting import Fitted, Heard
from nescio.guard.input_blocks import at_once, blocks, count, form
from nescio.guard.promise import at_least
from nescio.guard.verdict import Verdict, joined
from nescio.guard.witnesses import WITNESSES, Doubt, Witness
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import preserved
from nescio.posteriors.saving import fingerprint
from nescio.progress import bar
from nescio.quantities import Logits, Request
from nescio.scores import Method
from nescio.types import InputError, ModelError

_GPU_SHARE = 0.1  # of a GPU's memory that what the witnesses found may take


class Guard:
    """Says of each input of a classifier whether it is foreign: unlike the inputs of a reference.

    Args:
        model: a PyTorch classifier, any callable that gives logits, or a `Classifier`. It is left as it was found.
        doubt: the score that the witness of doubt takes: a name of `nescio.methods()` or an object. As it comes GEN,
            which needs nothing but the forward pass; "regrad" and "evengrad" cost many times as much.
        witnesses: names or objects of `nescio.guard.witnesses`.
        output: what the model returns, as in `nescio.score`.

    Example:
        >>> guard = nescio.Guard(model).fit(reference)
        >>> verdict = guard.check(x)
        >>> verdict.foreign(0.05)
    """

    name = "guard"

    def __init__(
        self,
        model: Any,
        *,
        doubt: str | Method = "gen",
        witnesses: Sequence[str | Witness] = ("doubt", "strangeness", "appearance"),
        output: str | None = None,
    ) -> None:
        self.classifier = Classifier.of(model, output)
        self.witnesses = tuple(_witness(one, doubt) for one in witnesses)
        names = [one.name for one in self.witnesses]
        if not names or len(set(names)) < len(names):
            raise InputError(f"expected at least one witness, and each once, got {names}")
        self._found: Fitted | None = None
        self._seen: tuple[Any, ...] = ()
        self._moved: tuple[Fitted, torch.device, list[Bench]] | None = None

    @property
    def fitted(self) -> Fitted:
        """What the fit found; an InputError before the fit."""
        if self._found is None:
            raise InputError(
                "expected a guard that is fitted, got one that was not; give it some hundred inputs of the kind that "
                "the model is meant for: guard.fit(reference)"
            )
        return self._found

    def fit(
        self,
        reference: Any,
        *,
        nuisances: Nuisances = "auto",
        groups: Sequence[Hashable] | None = None,
        seed: int = 0,
        progress: bool | None = None,
        chunk: int | None = None,
    ) -> Self:
        """Learn what known inputs look like.

        Args:
            reference: inputs of the kind that the model is meant for and was not trained on: a tensor, a mapping of
                tensors, an iterable of batches such as a data loader, or rows of `nescio.data.sources.open_data`.
                With labels, as a pair (x, y) or as batches that are pairs, `Verdict.wrong` is there too.
            nuisances: changes that do not make an input foreign. "auto": pictures may be re-saved, resized, a little
                brighter, noisy or turned, where that does not change the model's answer. A list of names of
                `nescio.guard.changes.CHANGES`, and of functions from a batch to a changed batch. None: none.
            groups: for each input what it belongs to, where inputs are not independent: the photograph that a crop is
                of, the film of a frame, the patient of a scan. Inputs of one group never judge each other, so that
                the verdict is on inputs of other groups than these.
            seed: changes which inputs fit and which give ranks, and what is drawn for the changes.
            progress: as in `nescio.score`.
            chunk: as in `nescio.score`.

        Returns:
            The guard itself.

        Raises:
            InputError: fewer than 20 distinct inputs, or inputs that cannot be used.
        """
        changes = Changes.of(nuisances)
        heard = self._listened(reference, changes, seed, progress, chunk)
        self._found = fitting.fit(self.classifier, heard, groups)
        self._seen = versions(self.classifier)
        return self

    def check(self, x: Any, *, progress: bool | None = None, chunk: int | None = None) -> Verdict:
        """Judge inputs.

        Args:
            x: a tensor, a mapping of tensors, an iterable of batches, or rows of `nescio.data.sources.open_data`.
            progress: as in `nescio.score`.
            chunk: as in `nescio.score`.

        Returns:
            The verdict on every input, on the CPU.

        Example:
            >>> guard.check(x).p_value
        """
        requests = self.requests
        self._refuse_another_model()
        parts = []
        with preserved(self.classifier), bar(count(x), show=progress, description="checking") as shown:
            for block, _ in blocks(x, chunk or at_once(self.classifier)):
                self.refuse_another_form(block)
                parts.append(self._judged(block, requests, chunk))
                shown.update(inputs.size(block))
        if not parts:
            raise InputError("expected at least one input to check, got none")
        return joined(parts)

    @property
    def requests(self) -> tuple[Request, ...]:
        """The quantities of a batch that `judge` needs, for `nescio.quantities.compute`."""
        found = self.fitted
        needs = [request for witness in found.witnesses for request in witness.needs(found.anatomy)]
        return tuple(dict.fromkeys([*needs, Logits()]))

    def judge(self, answers: Mapping[Request, Any]) -> Verdict:
        """The verdict on a batch whose quantities are known."""
        found = self.fitted
        kept = fitting.kept(found.witnesses, found.anatomy, answers)
        logits = answers[Logits()]
        benches, names = self._benches(logits.device), [witness.name for witness in found.witnesses]
        measured = [bench.measured(w, kept[w.name]) for bench in benches for w in found.witnesses]
        columns = [*measured, scores.get("max_probability")(logits)[:, None], logits.argmax(1)[:, None]]
        table = torch.cat([column.to(logits.device, torch.float64) for column in columns], dim=1).cpu()
        *measured, doubt, predicted = table.split([column.shape[1] for column in columns], dim=1)
        doubt, predicted = doubt[:, 0], predicted[:, 0].long()
        rank = changed = torch.zeros(len(logits), dtype=torch.float64)
        beyond, z, votes = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for number, jury in enumerate(found.juries):
            own = measured[number * len(names) : (number + 1) * len(names)]
            heard = jury.bench.testimony(found.witnesses, dict(zip(names, own, strict=True)))
            rank = rank + at_least(jury.ranks, heard.score)
            changed = changed + at_least(jury.copies, heard.score)
            for name, value in heard.z.items():
                z[name] = z.get(name, 0.0) + value / len(found.juries)
                votes[name] = votes.get(name, 0.0) + heard.votes[name] / len(found.juries)
                beyond[name] = beyond.get(name, 0) + len(jury.ranks) - at_least(jury.z[name], value)
        copies = sum(len(jury.copies) for jury in found.juries)
        p = (1.0 + rank) / (1.0 + found.ranks)
        if copies:  # the promise holds for inputs as they are, and for changed ones
            p = torch.maximum(p, (1.0 + changed) / (1.0 + copies))
        return Verdict(
            p_value=p,
            score=Testimony(z, votes).score,
            witnesses=z,
            votes=votes,
            beyond=beyond,
            ranks=found.ranks,
            predicted=predicted,
            confidence=1.0 - doubt,
            wrong=None if found.mistakes is None else found.mistakes(doubt),
            reasons={witness.name: witness.words(found.anatomy.kind) for witness in found.witnesses},
        )

    def _judged(self, x: Inputs, requests: Sequence[Request], chunk: int | None) -> Verdict:
        """The verdict on a batch. On a GPU the witnesses work there, and only what they measure comes to the host."""
        if self._works_on_gpu():
            verdict = self.judge(quantities.compute(self.classifier, x, requests, chunk, on_device=True))
            if bool(verdict.score.isfinite().all()):
                return verdict
        return self.judge(quantities.compute(self.classifier, x, requests, chunk))  # names what is not finite

    def _works_on_gpu(self) -> bool:
        """Whether the model is on a GPU on which there is room for what the witnesses found."""
        device = self.classifier.device
        if device is None or device.type != "cuda":
            return False
        room = torch.cuda.get_device_properties(device).total_memory
        return sum(jury.bench.nbytes for jury in self.fitted.juries) < _GPU_SHARE * room

    def _benches(self, device: torch.device) -> Sequence[Bench]:
        """What the witnesses found in each fold, on the device, to which it is moved once."""
        found = self.fitted
        if device.type == "cpu":
            return [jury.bench for jury in found.juries]
        if self._moved is None or self._moved[0] is not found or self._moved[1] != device:
            self._moved = found, device, [jury.bench.to(device) for jury in found.juries]
        return self._moved[2]

    # --- a guard is a method of `nescio.score` too, and shares its pass over the data ---

    @property
    def needs(self) -> tuple[Request, ...]:
        """The quantities that the score is made from."""
        self._refuse_another_model()
        return self.requests

    def __call__(self, *values: Any) -> Tensor:
        """The score of each input, float64 ``[N]``, higher = more foreign."""
        return self.judge(dict(zip(self.requests, values, strict=True))).score

    def check_model(self, classifier: Classifier) -> None:
        """Raise a ModelError for another model than the guard's own, or one with other weights."""
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
        """Write the guard to a folder: safetensors and JSON. The model itself is not in it.

        Example:
            >>> guard.save("guard/")
            >>> guard = nescio.Guard.load("guard/", model)
        """
        from nescio.guard import saving

        saving.save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str], model: Any) -> Guard:
        """Read a guard that was saved, for the same model with the same weights; a ModelError for another one."""
        from nescio.guard import saving

        return saving.load(folder, model)

    def refuse_another_form(self, x: Inputs) -> None:
        """Raise an InputError for inputs of another kind or shape than those of the reference."""
        expected = self.fitted.form
        if expected is not None and form(x) != expected:
            raise InputError(
                f"expected inputs of shape {list(expected)} as in the reference, got {inputs.describe(x)}; bring them "
                "to that form, or fit the guard to inputs of this one"
            )

    def _refuse_another_model(self) -> None:
        """Raise a ModelError where the model's weights have changed since the fit."""
        found, seen = self.fitted, versions(self.classifier)
        if seen != self._seen:
            if fingerprint(self.classifier) != found.weights:
                raise ModelError(
                    f"expected {self.classifier.name} with the weights that the guard was fitted with, but they have "
                    "changed since; fit it again: guard.fit(reference)"
                )
            self._seen = seen

    def __repr__(self) -> str:
        names = ", ".join(witness.name for witness in self.witnesses)
        state = "not fitted" if self._found is None else f"fitted to {self._found.count} inputs"
        return f"Guard({self.classifier.name}, {names}; {state})"

    def _listened(self, reference: Any, changes: Changes, seed: int, progress: bool | None, chunk: int | None) -> Heard:
        heard = Heard()
        with preserved(self.classifier), bar(count(reference), show=progress, description="guard") as shown:
            for block, labels in blocks(reference, chunk or at_once(self.classifier)):
                if heard.anatomy is None:
                    heard.start(anatomy_of(self.classifier, block), self.witnesses, form(block))
                heard.hear(self.classifier, block, labels, split.digests(block, seed), changes, chunk)
                shown.update(inputs.size(block))
        return heard


def _witness(one: str | Witness, doubt: str | Method) -> Witness:
    if isinstance(one, Witness):
        return one
    if one == "doubt":
        return Doubt(scores.get(doubt))
    if not isinstance(one, str) or one not in WITNESSES:
        raise InputError(f"expected the name of a witness ({', '.join(WITNESSES)}) or an object, got {one!r}")
    return WITNESSES[one]()


def versions(classifier: Classifier) -> tuple[Any, ...]:
    """What changes when weights are replaced or written to."""
    if classifier.module is None:
        return ()
    tensors = [*classifier.module.parameters(), *classifier.module.buffers()]
    return tuple((tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors)
