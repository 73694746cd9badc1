"""What every score is made of: its settings, its card (metadata), what it needs, and checks of its settings.

A score is a frozen dataclass. Its fields are its settings, its class attributes are its card, `needs` names the
quantities it is made from, and calling it with those quantities gives float64 ``[N]``. To write a new one, copy a class
of this folder into a new file beside it, and change each part in turn. The registry, the table of methods, the command
line and the conformance tests find it there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from types import UnionType
from typing import Any, ClassVar, Protocol, Self, TypeGuard, runtime_checkable

from torch import Tensor

from nescio._common.argument_checks import choice, integer, number
from nescio.quantities import Request
from nescio.types import InputError

HIGHER = "higher = more uncertain"


@runtime_checkable
class Method(Protocol):
    """Say what a score is: what it needs, and a pure function from that to one float64 per input.

    Any object with these three members can be given to `nescio.score`.

    Examples:
        >>> class FirstLogit:
        ...     name = "first_logit"
        ...     needs = (nescio.quantities.Logits(),)
        ...     def __call__(self, logits):
        ...         return logits[:, 0]
        >>> nescio.score(torch.nn.Identity(), torch.tensor([[1.0, 2.0]]), FirstLogit())
        tensor([1.], dtype=torch.float64)
    """

    name: ClassVar[str]

    @property
    def needs(self) -> tuple[Request, ...]: ...

    def __call__(self, *values: Any) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class Score:
    """Base of the scores that nescio ships: a frozen dataclass whose fields are its settings.

    A subclass has its card as class attributes, `needs`, and `__call__`; `register` makes it known by its name.

    Examples:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Margin(Score):
        ...     name, summary, requires = "margin", "Largest logit less the second, negated.", "forward"
        ...     cost, paper, needs = "1", "none", (nescio.quantities.Logits(),)
        ...     def __call__(self, logits):
        ...         return -logits.topk(2).values.diff(dim=1).abs()[:, 0]
        >>> nescio.score(torch.nn.Identity(), torch.tensor([[1.0, 4.0]]), Margin())
        tensor([-3.], dtype=torch.float64)
    """

    name: ClassVar[str]
    summary: ClassVar[str]  # one sentence
    requires: ClassVar[str]  # "forward", "gradients", "draws" or "posterior"
    cost: ClassVar[str]  # forward passes for one input, in C (classes) and N (noisy copies or draws)
    paper: ClassVar[str]
    sign: ClassVar[str] = HIGHER
    needs_training_data: ClassVar[bool] = False
    composes: ClassVar[tuple[str, ...]] = ()  # refinements that its settings can switch on
    needs_level: ClassVar[bool] = False  # of the logits, which a softmax, and so a posterior, forgets

    @property
    def needs(self) -> tuple[Request, ...]:
        """The quantities this score is computed from, in the order in which it is called with them."""
        raise NotImplementedError

    def __call__(self, *values: Any) -> Tensor:
        """The score of each input, float64 ``[N]``."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The name, with the settings that are not the default ones."""
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default]
        return f"{self.name}({', '.join(changed)})" if changed else self.name

    # The checks leave a setting in its plain type (int, float, tuple), so that equal settings are equal requests.

    def _integer(self, setting: str, *, at_least: int) -> None:
        self._check(setting, integer, at_least=at_least)
        self._check(setting, integer, at_most=2**63 - 1)

    def _number(self, setting: str, **bounds: float) -> None:
        self._check(setting, number, **bounds)

    def _choice(self, setting: str, *options: object) -> None:
        self._check(setting, choice, options=options)

    def _check(self, setting: str, check: Callable[..., object], **bounds: Any) -> None:
        try:
            plain = check(setting, getattr(self, setting), hint=self._leave_out(setting), **bounds)
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from None
        object.__setattr__(self, setting, plain)

    def _instance(self, setting: str, kind: type | UnionType, expected: str) -> None:
        if not isinstance(getattr(self, setting), kind):
            self._refuse(setting, expected)

    def _names(self, setting: str) -> None:
        value = getattr(self, setting)
        if value is None:
            return
        names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else ()
        if not names or not all(isinstance(n, str) for n in names):
            self._refuse(setting, "None, or at least one name or pattern such as 'layer4.*'")
        object.__setattr__(self, setting, names)

    def _refuse(self, setting: str, expected: str) -> None:
        raise InputError(
            f"{self.name}: expected {setting} to be {expected}, got {getattr(self, setting)!r}; "
            f"{self._leave_out(setting)}"
        )

    def _leave_out(self, setting: str) -> str:
        default = next(f.default for f in fields(self) if f.name == setting)
        return f"leave it out for the default, {setting}={default!r}"


@dataclass(frozen=True, kw_only=True)
class FittedScore(Score):
    """Base of the scores that are fitted to training data first.

    `fitted` returns a new object that holds what was learnt. That is no setting: two scores with equal settings are
    equal, whatever they were fitted to, and one whose settings are changed has to be fitted again. A subclass writes
    `_fit`, and `training` where it learns from other quantities than it is computed from.

    Examples:
        >>> features, labels = torch.rand(60, 4, dtype=torch.float64), torch.arange(60) % 3
        >>> nescio.scores.KNN(k=5).fitted([features], labels)(features[:2]).shape
        torch.Size([2])
    """

    needs_training_data = True
    _state: ClassVar[Any] = None  # set on an object that is fitted

    @property
    def training(self) -> tuple[Request, ...]:
        """The quantities of the training data that it is fitted to."""
        return self.needs

    @property
    def is_fitted(self) -> bool:
        """Whether it can be called."""
        return self._state is not None

    def fitted(self, values: Sequence[Any], labels: Tensor) -> Self:
        """Return this score, fitted.

        Args:
            values: The values of `training`.
            labels: The class indices ``[N]`` of the training data.

        Returns:
            The fitted score.
        """
        new = copy.copy(self)
        object.__setattr__(new, "_state", self._fit(*values, labels))
        return new

    def _fit(self, *values: Any) -> Any:
        """What is kept of the values and the labels, which come last."""
        raise NotImplementedError

    def _fitted_state(self) -> Any:
        if self._state is None:
            raise InputError(
                f"expected '{self.name}' to be fitted, got one that was not; give training data as "
                f"nescio.score(..., fit=(x, y)), or fit it once: nescio.fit(model, '{self.name}', (x, y))"
            )
        return self._state

    def _same_width(self, width: int, features: Tensor) -> None:
        if features.shape[1] != width:
            raise InputError(
                f"{self.name}: expected {width} features as in the training data, got {features.shape[1]}; "
                "fit it with the model that it is used for"
            )


def must_be_fitted(method: Method) -> TypeGuard[FittedScore]:
    """Whether the method has to be fitted before it can be called."""
    return isinstance(method, FittedScore) and not method.is_fitted


def without_tolerance(method: Any, noise: bool) -> Any:
    """The method without a tolerance, which is kept by looking at a batch, and without noise where there can be none.

    So the score of an input is the same in any batch.
    """
    own = {f.name for f in fields(method)}
    changes = {"tolerance": 0.0} | ({} if noise else {"samples": 0})
    changed = {name: value for name, value in changes.items() if {name, "tolerance"} <= own}
    return replace(method, **changed) if changed else method
