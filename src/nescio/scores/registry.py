"""The one list of methods: what is registered here is found by name, shown in the table and put to the tests.

Every module of this folder is imported when the package is, so that a method is added by adding a file. `methods()`
gives the table, `names()` the names, `get()` a method with its settings.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar, overload

from nescio import notebook
from nescio.scores.base import Method, Score
from nescio.types import InputError

_CARD = ("name", "summary", "requires", "cost", "paper", "sign", "needs_training_data", "composes")
_methods: dict[str, type[Score]] = {}

S = TypeVar("S", bound=type[Score])


def register(cls: S) -> S:
    """Make a score known by its name; a class decorator.

    Args:
        cls: The class of the score, with a complete card.

    Returns:
        The class itself.

    Raises:
        TypeError: Something is missing on the card, or the name belongs to another score.

    Examples:
        >>> register(nescio.scores.Entropy).name
        'entropy'
    """
    missing = [entry for entry in _CARD if not hasattr(cls, entry)]
    if missing:
        raise TypeError(f"expected {cls.__name__} to state {', '.join(missing)}; add it as a class attribute")
    known = _methods.get(cls.name)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(
            f"expected a name of its own for {cls.__name__}, but '{cls.name}' is {known.__name__}; rename it"
        )
    _methods[cls.name] = cls
    return cls


def discover(package: str, folders: Iterable[str]) -> None:
    """Import every module of the package, so that each registers what it holds."""
    for module in iter_modules(folders, f"{package}."):
        import_module(module.name)


def names() -> list[str]:
    """Return the names of all methods, in the order of the table.

    Returns:
        The names.

    Examples:
        >>> "entropy" in names()
        True
    """
    order = {"gradients": 0, "draws": 1, "forward": 2}  # within a family: as they stand in its file

    def place(name: str) -> tuple[int, bool]:
        return order.get(_methods[name].requires, len(order)), _methods[name].needs_training_data

    return sorted(_methods, key=place)


def get(method: str | type[Score] | Method, **settings: Any) -> Method:
    """Return a method with settings.

    Args:
        method: A name, a class of score, or an object, which is returned with the settings changed.
        settings: The settings to set; the others are the defaults, or those of the object.

    Returns:
        The method.

    Raises:
        InputError: There is no such method or setting; the message names the nearest one.

    Examples:
        >>> get("knn", k=5)
        KNN(layer=None, k=5, normalise=True, average=False)
    """
    if isinstance(method, str):
        if method not in _methods:
            raise InputError(f"expected the name of a method, got '{method}'; {_suggest(method, names())}")
        cls = _methods[method]
        _check_settings(cls, settings)
        return cls(**settings)
    if isinstance(method, type) and issubclass(method, Score):
        _check_settings(method, settings)
        return method(**settings)
    if isinstance(method, Score):
        _check_settings(type(method), settings)
        return replace(method, **settings) if settings else method
    if not isinstance(method, type) and isinstance(method, Method):
        if settings:
            raise InputError(
                f"expected no settings beside the object '{method.name}', got {', '.join(settings)}; set them on it"
            )
        return method
    raise InputError(
        f"expected a method's name or an object such as nescio.scores.REGrad(), got {type(method).__name__}; "
        f"the names are {', '.join(names())}"
    )


def choose(method: Any, settings: dict[str, Any]) -> dict[str, Method]:
    """The method, or each of a list or tuple of them, with the settings; by the keys that `nescio.score` gives them."""
    listed = list(method) if isinstance(method, list | tuple) else [method]
    if not listed:
        raise InputError(f"expected at least one method, got an empty list; known: {', '.join(names())}")
    try:
        chosen = [get(one, **settings) for one in listed]
    except InputError as error:
        if len(listed) == 1 or not settings:
            raise
        raise InputError(
            f"{error}. With a list of methods the settings go to every one of them; to set one alone, "
            "give it as an object: [nescio.scores.REGrad(samples=10), 'entropy']"
        ) from error
    counts = Counter(one.name for one in chosen)
    keys = [one.name if counts[one.name] == 1 else getattr(one, "label", one.name) for one in chosen]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"expected each method once, got '{key}' {keys.count(key)} times; leave the others out")
    return dict(zip(keys, chosen, strict=True))


def _check_settings(cls: type[Score], settings: dict[str, Any]) -> None:
    own = [f.name for f in fields(cls)]
    for setting in settings:
        if setting not in own:
            rest = _suggest(setting, own) if own else "it has none; leave it out"
            raise InputError(f"expected a setting of '{cls.name}', got '{setting}'; {rest}")


def _suggest(word: str, known: list[str]) -> str:
    folded = {name.replace("_", ""): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("-", "").replace("_", ""), folded, n=1)
    hint = f"did you mean '{folded[near[0]]}'? " if near else ""
    return f"{hint}known: {', '.join(known)}"


@dataclass(frozen=True)
class MethodInfo:
    """Hold one line of the table of methods.

    Args:
        name: The name by which the method is called.
        requires: What it is computed from: "forward", "gradients", "draws" or "posterior".
        needs_training_data: Whether it has to be fitted.
        cost: Forward passes for one input.
        paper: Where it comes from.
        sign: What a higher number means.
        composes: Refinements that its settings can switch on.
        summary: One sentence.
        settings: Each setting with its default.

    Examples:
        >>> methods()[0].name
        'negrad'
    """

    name: str
    requires: str
    needs_training_data: bool
    cost: str
    paper: str
    sign: str
    composes: tuple[str, ...]
    summary: str
    settings: dict[str, Any]

    @property
    def needs(self) -> str:
        """What the method has to be given or has to compute."""
        return self.requires + (", training data" if self.needs_training_data else "")


class MethodTable(Sequence[MethodInfo]):
    """Hold the methods as a sequence that prints as a table.

    Args:
        rows: The lines.

    Examples:
        >>> len(methods()) == len(names())
        True
    """

    NOTE = "Cost: forward passes for one input; C classes, N noisy copies or draws, h the last layer's share of a pass."

    def __init__(self, rows: Sequence[MethodInfo]) -> None:
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> MethodInfo: ...
    @overload
    def __getitem__(self, index: slice) -> MethodTable: ...
    def __getitem__(self, index: int | slice) -> MethodInfo | MethodTable:
        return MethodTable(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [("method", "needs", "cost", "paper", "sign")]
        lines += [(r.name, r.needs, r.cost, r.paper, r.sign) for r in self._rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, tuple("-" * width for width in widths))
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*text, "", self.NOTE])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.card(
            f"{len(self)} methods",
            columns=["method", "what it is", "needs", "cost", "paper"],
            rows=[[r.name, r.summary, r.needs, r.cost, r.paper] for r in self._rows],
            more=self.NOTE,
        )

    def to_markdown(self) -> str:
        """The table in Markdown, with a sentence on each method."""
        lines: list[tuple[str, ...]] = [("method", "what it is", "needs", "cost", "paper", "sign"), ("---",) * 6]
        lines += [(f"`{r.name}`", r.summary, r.needs, r.cost, r.paper, r.sign) for r in self._rows]
        text = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
        return "\n".join([*text, "", self.NOTE])

    def to_dicts(self) -> list[dict[str, Any]]:
        """The lines as dictionaries, with every field."""
        return [asdict(row) for row in self._rows]


def methods() -> MethodTable:
    """Return all methods: what each needs, its cost in forward passes, its paper and its sign.

    Returns:
        A sequence of `MethodInfo` that prints as a table.

    Examples:
        >>> [method.name for method in nescio.methods() if method.requires == "posterior"]
        ['mutual_information']
    """
    return MethodTable([_info(_methods[name]) for name in names()])


def _info(cls: type[Score]) -> MethodInfo:
    settings = {f.name: f.default for f in fields(cls)}
    card = {entry: getattr(cls, entry) for entry in _CARD}
    return MethodInfo(settings=settings, **card)
