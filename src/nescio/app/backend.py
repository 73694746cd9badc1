"""What the page stands on: a model with its guard, policies and examples, asked by one caller at a time."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from nescio._common.formatting import percent
from nescio.app import examples
from nescio.app.doubt_scale import Scale
from nescio.app.examples import Example
from nescio.app.opinion import AnyPolicy, Opinion, Ruling, form, mapped, opinion, ruling
from nescio.app.policies import Policies
from nescio.guard.promise import ENOUGH
from nescio.inputs import Inputs
from nescio.serve.engine import Engine
from nescio.serve.errors import Problem
from nescio.serve.reading import Reader
from nescio.types import InputError

MAX_BYTES, MAX_PIXELS, MAX_TEXT = 10_000_000, 25_000_000, 20_000
LEVELS = (0.01, 0.05, 0.1, 0.2)
NOUNS = {"pictures": "pictures", "texts": "texts", "numbers": "inputs"}


@dataclass(frozen=True)
class Backend:
    """Hold everything that the page asks: a model with its guard, policies and examples.

    Attributes:
        engine: The model, with what it is asked by.
        kind: What people give: "pictures", "texts" or "numbers".
        scale: Known inputs that doubts and scores are compared with.
        policy: Which answers to accept, and what that policy is called.
        examples: Inputs to click on.
        names: What the features are called.
        notes: What people should know of how it was set up.

    Examples:
        >>> from nescio.models.sources import Numbers, Source
        >>> source = Source(nescio.Classifier(torch.nn.Linear(4, 3)), Numbers(), "a layer", ("a", "b", "c"))
        >>> backend = nescio.app.Backend(nescio.serve.Engine(source, ["entropy"]), kind="numbers")
        >>> [one.maps is not None for one in backend.of_text("9, 0, 0, 0")]
        [False, True]
    """

    engine: Engine
    kind: str = "pictures"
    scale: Scale | None = None
    policy: tuple[str, AnyPolicy] | None = None
    examples: tuple[Example, ...] = ()
    names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _kept: dict[int, Opinion] = field(default_factory=dict, init=False, repr=False)
    """Whole opinions of examples, by their place."""

    @property
    def policies(self) -> Policies:
        """Return the policies to choose from."""
        return Policies(self.engine, self.scale, self.policy)

    def of_picture(self, path: str | Path | None) -> Iterator[Opinion]:
        """Yield opinions of a picture file, see `of_row`.

        Args:
            path: The file; None where nothing was given.

        Returns:
            The opinions, first without maps.
        """
        if path is None:
            raise InputError("expected a picture, got none; drop one here, or choose an example")
        try:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)  # an endless one too
        except OSError as error:
            raise InputError(f"expected a picture, but it cannot be read ({error.strerror}); give it again") from error
        if len(data) > MAX_BYTES:
            raise InputError(f"expected a file of at most {MAX_BYTES / 1e6:g} MB, got a larger one; save it smaller")
        reader = Reader(self.engine.source, MAX_PIXELS, MAX_TEXT)
        try:
            (row,) = reader.files([data], 1)
        except Problem as problem:
            raise InputError(problem.message.removeprefix("file 0: ")) from problem
        return self.of_row(row)

    def of_text(self, text: str | None) -> Iterator[Opinion]:
        """Yield opinions of a text, or of numbers with commas, see `of_row`.

        Args:
            text: What was written; None where nothing was given.

        Returns:
            The opinions, first without maps.
        """
        if not text or not text.strip():
            raise InputError("expected a text, got none; write something, or choose an example")
        if len(text) > MAX_TEXT:
            raise InputError(f"expected at most {MAX_TEXT} characters, got {len(text)}; shorten it")
        if self.kind == "numbers":
            numbers = examples.read(text)
            if numbers is None:
                raise InputError("expected finite numbers with commas between them, got something else; look it over")
            return self.of_row(self._formed(numbers))
        assert self.engine.source.preprocess is not None
        return self.of_row(self.engine.source.preprocess(text))

    def of_example(self, place: int) -> Iterator[Opinion]:
        """Yield opinions of one of the examples, see `of_row`; what was made once is kept, and comes at once.

        Args:
            place: Which of the examples.

        Returns:
            The opinions, first without maps.
        """
        if not 0 <= place < len(self.examples):
            raise InputError(
                f"expected an example from 0 to {len(self.examples) - 1}, got {place}; load the page again"
            )
        if place in self._kept:
            yield self._kept[place]
            return
        for one in self.of_row(self.examples[place].row):
            yield one
            if one.maps is not None:
                self._kept[place] = one

    def of_row(self, row: Inputs) -> Iterator[Opinion]:
        """Yield the opinion without maps first, then, when they are made, with them.

        Args:
            row: The input, as the model takes it.

        Returns:
            The opinions.
        """
        with self._lock:
            first = opinion(self.engine, row, self.scale)
        yield first
        with self._lock:
            maps = mapped(self.engine, row, first.samples, self.names)
        yield replace(first, maps=maps)

    def warm(self) -> None:
        """Do once what is slow the first time: the example that the page opens with, whose opinion is kept."""
        with contextlib.suppress(Exception):  # whoever asks next is told
            for _ in self.of_example(0):
                pass

    @property
    def levels(self) -> dict[str, float]:
        """Return shares of known inputs that may be flagged, by their words; the usual one first."""
        usual = self.engine.level
        if usual is None or self.engine.guard is None:
            return {}
        possible = [level for level in LEVELS if level > usual or self.engine.guard.fitted.ranks >= ENOUGH / level]
        return {f"{percent(level)} of known {NOUNS[self.kind]}": level for level in dict.fromkeys((usual, *possible))}

    def level(self, name: str | None) -> float | None:
        """Return the level of that name, or the usual one; None without a guard.

        Args:
            name: The name of the level; None for the usual one.

        Returns:
            The share of false alarms, or None.
        """
        return self.levels.get(str(name), self.engine.level)

    def ruling(self, opinion: Opinion, level: str | None, policy: str | None, by: str | None) -> Ruling | None:
        """Say whether the answer may be used.

        Args:
            opinion: What the model makes of the input.
            level: The name of the level of the guard.
            policy: The name of the policy.
            by: The method that the policy judges by.

        Returns:
            The ruling; None without a guard and without a policy.
        """
        chosen, judge = self.policies.policy_named(policy, by)
        share = self.level(level)
        foreign = opinion.verdict is not None and share is not None and bool(opinion.verdict.foreign(share)[0])
        return ruling(opinion, chosen, judge, foreign)

    def _formed(self, numbers: Tensor) -> Tensor:
        """In the form of known inputs, where there are as many numbers."""
        known = form(self.engine, self.scale)
        return numbers.view(known) if known is not None and math.prod(known) == numbers.numel() else numbers
