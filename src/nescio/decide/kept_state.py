"""The state of a watch over a stream, in memory or in a file from which it goes on after a crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nescio.decide import decision_files
from nescio.types import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

State = TypeVar("State", bound="DataclassInstance")


class KeptState(Generic[State]):
    """The state of one stream. With a path, what `keep` was given is on disk once it returns.

    Args:
        path: The file; None to keep the state in memory alone.
        form: The format that the file names.
        settings: What the watch was made with. A file that was written with other settings is refused.
        owner: What such a file belongs to, for the message.
        state: The state at the beginning, a dataclass. Its fields are written as JSON.
        parse: From the record of a file to a state, or None where the numbers do not fit together.

    Raises:
        InputError: If the file cannot be read or written, is damaged, or belongs to another watch.
    """

    def __init__(
        self,
        path: str | Path | None,
        form: str,
        settings: Mapping[str, Any],
        owner: str,
        state: State,
        parse: Callable[[dict[str, Any]], State | None],
    ) -> None:
        self.path = None if path is None else Path(path)
        self.state = state
        self._form, self._settings, self._owner, self._parse = form, settings, owner, parse
        if self.path is not None:
            if self.path.exists():
                self.state = self._read(self.path)
            else:
                self.keep(state)  # so that a path that cannot be written to fails now

    def check_alone(self) -> None:
        """Raise an InputError if another watch wrote to the file."""
        if self.path is not None and self._read(self.path) != self.state:
            raise InputError(f"{self.path} was changed by another monitor; give each stream a file of its own")

    def keep(self, state: State) -> None:
        """Write the state to the file, if there is one, and go on with it."""
        if self.path is not None:
            decision_files.write(self.path, self._form, {**self._settings, **asdict(state)})
        self.state = state

    def _read(self, path: Path) -> State:
        record = decision_files.read(path, self._form)
        if any(record.get(name) != value for name, value in self._settings.items()):
            raise InputError(f"{path} belongs to {self._owner}; name another file, or remove this one to begin anew")
        try:
            state = self._parse(record)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise decision_files.damaged(path, f"something is missing or wrong ({error})") from error
        if state is None:
            raise decision_files.damaged(path, "its counts do not fit together")
        return state
