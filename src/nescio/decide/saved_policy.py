"""What every policy does: it says its promise, and it is kept as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

from nescio.decide import decision_files
from nescio.types import InputError


class SavedPolicy:
    """A frozen dataclass of plain values that says its promise, and that is kept as JSON."""

    _form: ClassVar[str]
    """The format that the file names."""
    about: Mapping[str, str]

    def _sentence(self) -> str:
        """Return the promise, or why there is none."""
        raise NotImplementedError

    def _wrong(self) -> str | None:
        """Return what does not fit together in a policy that was read, or None."""
        raise NotImplementedError

    def __str__(self) -> str:
        made = "; ".join(f"{name}: {value}" for name, value in self.about.items())
        return self._sentence() + (f" ({made})" if made else "")

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON, as a whole or not at all."""
        decision_files.write(path, self._form, {**vars(self), "about": dict(self.about), "says": str(self)})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        record = decision_files.read(path, cls._form)
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        if missing := [name for name in names if name not in record]:
            raise decision_files.damaged(path, f"{', '.join(missing)} is missing")
        values = {name: tuple(record[name]) if isinstance(record[name], list) else record[name] for name in names}
        policy = cls(**values)
        try:
            wrong = policy._wrong() if _words(policy.about) else "its field about does not hold words by name"
        except TypeError as error:  # a value of another kind
            wrong = str(error)
        if wrong:
            raise decision_files.damaged(path, wrong)
        return policy


def about_of(about: Mapping[str, str] | None) -> dict[str, str]:
    """Return what the caller says of how the scores were made, checked."""
    if about is not None and not _words(about):
        raise InputError(f"about: expected words by name, such as {{'score': 'regrad'}}, but got {about!r:.80}")
    return dict(about or {})


def _words(about: Any) -> bool:
    return isinstance(about, Mapping) and all(isinstance(word, str) for pair in about.items() for word in pair)
