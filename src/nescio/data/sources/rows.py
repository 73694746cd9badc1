"""Rows of data that are read one at a time, in a fixed order, each with a name; what cannot be read is kept in a list.

A `Store` knows where the rows lie and gives each as it is: a picture, a text, numbers. `Rows` makes of it what the
model takes, checks it, and puts batches together. Batch k holds the rows from k·size + start on, less those with
problems: a bad row moves no other row into another batch.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from nescio.data.sources.labels import Labels, Resolved, resolved
from nescio.inputs import Inputs, as_inputs, is_floating, tensors
from nescio.types import InputError, NescioError

Kind = Literal["pictures", "texts", "numbers"]
OnError = Literal["stop", "skip"]


class Store(Protocol):
    """Where rows lie."""

    @property
    def kind(self) -> Kind: ...

    @property
    def about(self) -> str: ...

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def identity(self) -> str:
        """Changes when the list of rows does."""

    def __len__(self) -> int: ...

    def raw(self, index: int) -> Any:
        """The row as it is; pure and thread-safe."""

    def labels(self) -> Labels | None:
        """What the labels are, for all rows; None where there are none."""


class Preprocess(Protocol):
    """From one row to what the model takes; `nescio.models.sources` has them."""

    @property
    def kind(self) -> Kind: ...

    def __call__(self, row: object) -> Inputs: ...

    def collate(self, rows: Sequence[Inputs]) -> Inputs: ...


@dataclass(frozen=True)
class Problem:
    """Say why a row cannot be used.

    Attributes:
        index: Its place.
        name: Its name.
        reason: The reason, in words.

    Examples:
        >>> print(Problem(3, "cat.jpg", "it is not a picture"))
        cat.jpg (row 3): it is not a picture
    """

    index: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} (row {self.index}): {self.reason}"


class Batch(NamedTuple):
    """Hold some rows.

    Attributes:
        indices: Their places, int64 ``[n]``.
        names: Their names.
        inputs: What the model takes.
        labels: Their class indices, int64 ``[n]``; None where the data have no labels.

    Examples:
        >>> Batch(torch.tensor([0, 1]), ["a", "b"], torch.zeros(2, 3), None).names
        ['a', 'b']
    """

    indices: Tensor
    names: list[str]
    inputs: Inputs
    labels: Tensor | None


class Rows:
    """Read the rows of data one at a time. The docstring of `nescio.data.sources` lists what it offers.

    Args:
        store: Where the rows lie.
        preprocess: What makes of a row what the model takes.
        classes: The names of the model's classes, by which labels in words are read.
        on_error: "stop" raises for the first row that cannot be used, "skip" leaves such rows out.

    Examples:
        >>> import tempfile
        >>> np.save(file := tempfile.mkdtemp() + "/x.npy", np.zeros((5, 3), np.float32))
        >>> [len(batch.names) for batch in nescio.data.sources.open_data(file).batches(2)]
        [2, 2, 1]
    """

    def __init__(
        self,
        store: Store,
        preprocess: Preprocess,
        *,
        classes: Sequence[str] | None = None,
        on_error: OnError = "stop",
    ) -> None:
        self.store, self.preprocess, self.on_error = store, preprocess, on_error
        self._known = None if classes is None else tuple(classes)
        self._problems: dict[int, Problem] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.store)

    @property
    def about(self) -> str:
        """In words what it is."""
        return self.store.about

    @property
    def names(self) -> Sequence[str]:
        """The name of each row."""
        return self.store.names

    @property
    def labels(self) -> Tensor | None:
        """The class index of each row, int64 ``[N]``, −1 for one with a problem; None where the data have no labels."""
        return self._labelled.indices

    @property
    def classes(self) -> tuple[str, ...] | None:
        """What the labels mean, where it is known."""
        return self._labelled.classes

    @property
    def problems(self) -> list[Problem]:
        """The rows that could not be used so far, by their place."""
        return [self._problems[index] for index in sorted(self._problems)]

    @property
    def identity(self) -> str:
        """A hash that changes when the list of rows or the pre-processing does."""
        return hashlib.sha256(f"{self.store.identity}\n{self.preprocess}".encode()).hexdigest()[:16]

    def read(self, index: int) -> Inputs:
        """Return what the model takes for one row, without a batch dimension.

        Args:
            index: Which row.

        Returns:
            The input. An InputError is raised where the row cannot be used.
        """
        if not 0 <= index < len(self):
            raise InputError(f"expected a row from 0 to {len(self) - 1}, got {index}")
        row = self.attempt(index)
        if isinstance(row, Problem):
            raise InputError(str(row))
        return row

    def attempt(self, index: int) -> Inputs | Problem:
        """Return what `read` does, or the problem in place of raising it; several threads may call it.

        Args:
            index: Which row.

        Returns:
            The input or the problem.
        """
        if (fault := self._labelled.faults.get(index)) is not None:
            return Problem(index, self.names[index], fault)
        try:
            row = self._checked_row(self._made(index))
            if self._form is not None and (form := _form(row)) != self._form:
                raise InputError(
                    f"expected {_words(self._form)} as the first row has, got {_words(form)}; "
                    "bring all rows to one size (--size)"
                )
            return row
        except (MemoryError, ImportError):
            raise
        except Exception as error:  # of a file, a decoder or a transform: it is this row that cannot be read
            return Problem(index, self.names[index], _reason(error))

    def assemble(
        self,
        indices: Iterable[int],
        attempts: Iterable[Inputs | Problem],
        collate: Callable[[list[Inputs]], Inputs] | None = None,
    ) -> Batch | None:
        """Put together what `attempt` gave; problems are noted, or raised with on_error="stop".

        Args:
            indices: Which rows.
            attempts: What `attempt` gave for each.
            collate: What puts the rows together; None takes the pre-processing.

        Returns:
            The batch; None where no row can be used.
        """
        places, good = [], []
        for index, row in zip(indices, attempts, strict=True):
            if isinstance(row, Problem):
                self._problems[index] = row
                if self.on_error == "stop":
                    raise InputError(f"cannot use {row}; mend or remove it, or leave such rows out (--on-error skip)")
            else:
                places.append(index)
                good.append(row)
        if not good:
            return None
        where = torch.tensor(places, dtype=torch.long)
        labels = None if self.labels is None else self.labels[where]
        return Batch(where, [self.names[place] for place in places], (collate or self.preprocess.collate)(good), labels)

    def batches(
        self,
        size: int,
        start: int = 0,
        stop: int | None = None,
        mapper: Callable[[Callable[[int], Inputs | Problem], Iterable[int]], Iterable[Inputs | Problem]] = map,
    ) -> Iterator[Batch]:
        """Read the rows in batches; those with problems are left out, as on_error says.

        Args:
            size: The largest number of rows in a batch.
            start: The first row.
            stop: The row behind the last; None for the last of all.
            mapper: What calls `attempt` for each row of a batch, as `map` does.

        Returns:
            The batches.
        """
        last = len(self) if stop is None else min(stop, len(self))
        if size < 1 or start < 0:
            raise InputError(f"expected batches of at least 1 row from a row >= 0 on, got {size} from {start} on")
        any_good = False
        for first in range(start, last, size):
            places = range(first, min(first + size, last))
            batch = self.assemble(places, mapper(self.attempt, places))
            if batch is not None:
                any_good = True
                yield batch
        if not any_good and start == 0 and last == len(self) > 0:
            raise self.unusable()

    def unusable(self) -> InputError:
        """What to raise where every row has a problem."""
        return InputError(f"none of the {len(self)} rows can be used; the first: {self.problems[0]}")

    @cached_property
    def _form(self) -> Any:
        """The shapes and types of the first row that can be used; None where rows may differ, as texts do."""
        if self.preprocess.kind == "texts":
            return None
        with self._lock:
            for index in range(len(self)):
                try:
                    return _form(self._checked_row(self._made(index)))
                except (MemoryError, ImportError):
                    raise
                except Exception:
                    continue  # told when its turn comes
        return None

    @cached_property
    def _labelled(self) -> Resolved:
        with self._lock:
            return resolved(self.store.labels(), self._known)

    def _made(self, index: int) -> Inputs:
        return self.preprocess(self.store.raw(index))

    @staticmethod
    def _checked_row(row: Inputs) -> Inputs:
        ready = isinstance(row, Tensor) or all(isinstance(value, Tensor) for value in row.values())
        inputs = row if ready else as_inputs(row)
        if is_floating(inputs) and not all(bool(value.isfinite().all()) for value in tensors(inputs)):
            raise InputError("it has NaN or infinite values")
        return inputs


def _form(row: Inputs) -> Any:
    if isinstance(row, Tensor):
        return tuple(row.shape), row.dtype
    return {name: (tuple(value.shape), value.dtype) for name, value in row.items()}


def _words(form: Any) -> str:
    if isinstance(form, dict):
        return ", ".join(f"{name} {_words(one)}" for name, one in form.items())
    return f"{list(form[0])} of {str(form[1]).removeprefix('torch.')}"


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    return text if isinstance(error, NescioError | OSError) else f"{type(error).__name__}: {text}"
