"""`Classifier`: any callable that classifies, seen as one function from a batch of inputs to logits ``[N, C]``.

    z(x; θ) = logits(model(preprocess(x)))

What differs between models is settled here: wrappers, the kind of output, devices and types of number, keyword inputs,
and errors that say what was expected, what came and what to do. Nothing here sets a mode of the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from nescio import inputs, modes
from nescio.inputs import Inputs, describe
from nescio.models import outputs, positions
from nescio.models.call_errors import explain
from nescio.models.outputs import Closing, listed
from nescio.models.structure import compiled_call, parameter_places, refuse_coupled, refuse_unready, replaced, unwrap
from nescio.modes import eager
from nescio.modes.stopping import stop_where_wanted
from nescio.types import InputError, ModelError, Posterior, refuse_estimator

TWICE = {
    "logits": "every row lies in [0, 1] and sums to 1. If the model ends in a softmax say output='probabilities', for "
    "the softmax",
    "dense": "every position lies in [0, 1] and sums to 1. If the model ends in a softmax say output='probabilities' "
    "with class_dim=..., for the softmax",
    "binary": "all lie in [0, 1]. If they come from a sigmoid return what goes into it, for the sigmoid",
}
"""How the outputs look when the last function is in the model already."""


class Classifier:
    """Treat any classifier as one function from a batch of inputs to logits ``[N, C]``.

    Args:
        model: A PyTorch module, or any callable that gives logits.
        output: What the model returns: "logits", "probabilities" (it ends in a softmax), "binary" (one logit for two
            classes), or "dense": logits of every position, such as each pixel or token. For logits [N, C, H, W] of
            pictures `nescio.score` and the posteriors find "dense" by themselves.
        preprocess: Applied to every input before the model, such as the normalisation of an image. Noise is added to
            inputs before it, so that its size is in the units of the input.
        item: Where the logits are, if the model returns several things: an index into a tuple, or a name in a mapping.
            Without it nescio takes the entry ``logits``, or the first of a tuple, and warns if other entries could be
            logits too.
        class_dim: For a model that answers at every position: the dimension of the classes in what it returns, 1 in
            [N, C, H, W], -1 in [N, T, C]. With output="dense" it may be left out if it is clear. With
            "probabilities" or "binary" it says that these are of every position. nescio puts the classes last.

    Raises:
        ModelError: The model cannot be called, or has parameters without values.

    Examples:
        >>> classifier = nescio.Classifier(torch.nn.Linear(4, 1), output="binary", preprocess=lambda x: x / 255)
        >>> nescio.score(classifier, torch.rand(5, 4), "entropy").shape
        torch.Size([5])
    """

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        output: str = "logits",
        preprocess: Callable[[Any], Any] | None = None,
        item: int | str | None = None,
        class_dim: int | None = None,
    ) -> None:
        _check_model(model)
        if output not in outputs.OUTPUTS:
            raise ModelError(f"expected output to be one of {', '.join(outputs.OUTPUTS)}, got {output!r}")
        if preprocess is not None and not callable(preprocess):
            raise ModelError(f"expected preprocess to be a function of a batch of inputs, got {describe(preprocess)}")
        if item is not None and (isinstance(item, bool) or not isinstance(item, int | str)):
            raise ModelError(f"expected item to be a place in a tuple or a name, got {item!r}")
        if class_dim is not None and (isinstance(class_dim, bool) or not isinstance(class_dim, int) or class_dim == 0):
            raise ModelError(
                f"expected class_dim to be a dimension after the first, such as 1 or -1, got {class_dim!r}"
            )
        self.model, self.output, self.preprocess, self.item = model, output, preprocess, item
        self.class_dim = class_dim
        self._count: int | None = None
        owner = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
        self._owner = owner if isinstance(owner, nn.Module) else None
        self._warned = self._chose = False
        if self._owner is not None:
            refuse_unready(self._owner)

    @classmethod
    def of(cls, model: Classifier | Callable[..., Any], output: str | None = None, dense: bool = False) -> Classifier:
        """Return the model as a Classifier; a Classifier is returned as it is.

        Args:
            model: The model.
            output: What it returns; None for logits.
            dense: Whether answers at every position are fine; otherwise a ModelError is raised for them.

        Returns:
            The Classifier.
        """
        given = model if isinstance(model, Classifier) else cls(model, output="logits" if output is None else output)
        if output is not None and output != given.output:
            raise ModelError(f"expected output={given.output!r} as this Classifier was made with, got {output!r}")
        if given.dense and not dense:
            raise ModelError(
                f"expected a model with one answer for each input, got {given!r}, which answers at every position; "
                "nescio.score, nescio.dense and the posteriors take it. For all else average over its positions"
            )
        return given

    @property
    def dense(self) -> bool:
        """Whether the model is known to answer at every position: its logits are ``[N, *positions, C]``."""
        return self.class_dim is not None or self.output == "dense"

    @property
    def module(self) -> nn.Module | None:
        """The model's module without wrappers; None for a plain callable."""
        return None if self._owner is None else unwrap(self._owner)

    @property
    def roots(self) -> tuple[nn.Module, ...]:
        """The modules, with their wrappers, whose state matters when the classifier runs."""
        return tuple(part for part in (self._owner, self.preprocess) if isinstance(part, nn.Module))

    @property
    def name(self) -> str:
        """The model's name for people."""
        model = self.module if self.module is not None else self.model
        return getattr(model, "__name__", type(model).__name__)

    @property
    def device(self) -> torch.device | None:
        """Where the first floating-point tensor of the model lies; None if it has none."""
        tensor = self._first()
        return None if tensor is None else tensor.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the first floating-point tensor of the model; None if it has none."""
        tensor = self._first()
        return None if tensor is None else tensor.dtype

    def parameters(self) -> dict[str, Tensor]:
        """Return the floating-point parameters by their public names, in the model's order, tied ones once."""
        if self.module is None:
            return {}
        named = {name: owner._parameters[key] for name, ((owner, key), *_) in parameter_places(self.module).items()}
        if strange := [name for name, parameter in named.items() if parameter is not None and parameter.is_complex()]:
            raise ModelError(
                f"expected real parameters, got complex ones: {', '.join(strange)}; keep their real and imaginary "
                "parts as two parameters and join them in the forward pass with torch.complex"
            )
        return {name: p for name, p in named.items() if p is not None and p.is_floating_point()}

    def prepare(self, x: object) -> Inputs:
        """Return the batch on the model's device, checked to be finite, with floats in the model's type.

        Args:
            x: The batch, as the user gave it.

        Returns:
            The batch, as `logits` takes it.
        """
        converted = inputs.as_inputs(x)
        if any(value.is_meta for value in inputs.tensors(converted)):
            raise InputError(f"expected inputs with values, got {describe(converted)} on the meta device")
        batch = inputs.to(converted, self.device, self.dtype)
        names = [""] if isinstance(converted, Tensor) else list(converted)
        for name, before, after in zip(names, inputs.tensors(converted), inputs.tensors(batch), strict=True):
            _check_finite(name, before, after)
        return batch

    def logits(self, x: Inputs, look: bool = True) -> Tensor:
        """Compute the logits ``[N, C]`` of a prepared batch; differentiable where gradients are on.

        Of a model that is known to answer at every position they are ``[N, *positions, C]``.

        Args:
            x: What `prepare` gave.
            look: Whether to raise a ModelError for logits that are not finite. A GPU is waited for then.

        Returns:
            The logits.
        """
        count = inputs.size(x)
        if count == 0:  # many models fail on no input at all; one of zeros shows how many classes there are
            one = inputs.apply(x, lambda value: value.new_zeros((1, *value.shape[1:])))
            return self._run(one, 1)[0][:0]
        z, out = self._run(x, count)
        if not look:
            return z
        looks = outputs.check_values(z.detach(), out.detach(), self.output)
        if looks and self.output in TWICE and not self._warned:
            self._warned = True
            warnings.warn(
                f"the output of {self.name} looks like probabilities: {TWICE[self.output]} would be applied twice",
                UserWarning,
                stacklevel=2,
            )
        return z

    def functional(self, params: Mapping[str, Tensor], x: Inputs) -> Tensor:
        """Compute the logits with some parameters replaced. It looks at no values, and so works under `torch.func`.

        Args:
            params: Parameters by their names.
            x: What `prepare` gave.

        Returns:
            The logits.
        """
        if self.module is None:
            raise ModelError(
                f"expected a torch.nn.Module, whose parameters can be replaced, got {describe(self.model)}"
            )
        with replaced(self.module, params):
            return self._run(x, inputs.size(x))[0]

    def __repr__(self) -> str:
        where = "" if self.class_dim is None else f", class_dim={self.class_dim}"
        return f"Classifier({self.name}, output={self.output!r}{where})"

    def _first(self) -> Tensor | None:
        if self.module is None:
            return None
        tensors = chain(self.module.parameters(), self.module.buffers())
        return next((t for t in tensors if t.is_floating_point()), None)

    def _run(self, x: Inputs, count: int) -> tuple[Tensor, Tensor]:
        """Logits, checked in shape, and the tensor in the model's output that they came from."""
        stop_where_wanted()
        loose = modes.current()
        if self.module is not None and (loose is None or id(self.module) not in loose.looked_at):
            refuse_coupled(self.module)
            if loose is not None:
                loose.looked_at.add(id(self.module))
        call = compiled_call(self.model) if isinstance(self.model, nn.Module) else self.model
        closing = None if self.output in ("logits", "dense") else Closing()
        with ExitStack() as stack:
            if loose is not None:  # no call sees what another one kept
                loose.restore()
                torch.clear_autocast_cache()
                stack.callback(loose.restore)
            if closing is not None:
                stack.enter_context(eager())  # a compiled softmax cannot be listened to
                stack.enter_context(closing)
            # a copy, for a first layer that works in place would change the caller's input, and fail on one with a
            # gradient; and no gradient can be taken through what inference mode made
            prepared: Any = inputs.apply(x, Tensor.clone)
            try:
                prepared = prepared if self.preprocess is None else self.preprocess(prepared)
                result = call(**prepared) if isinstance(prepared, Mapping) else call(prepared)
            except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
                if isinstance(error, ModelError | InputError) or (explained := explain(error, x)) is None:
                    raise
                raise explained from error
        if self.item is None and not self._chose and (rivals := outputs.rivals(result, count)):
            self._chose = True
            shapes = ", ".join(f"item {i}: {list(result[i].shape)}" for i in rivals)
            warnings.warn(
                f"{self.name} returns several tensors that could be logits ({shapes}); the first is taken. Say which "
                f"it is: nescio.Classifier(model, item={rivals[1]}), or item=0",
                UserWarning,
                stacklevel=2,
            )
        out = outputs.pick(result, self.item)
        if self.dense:
            return self._everywhere(result, out, closing, x)
        z = outputs.to_logits(out, self.output, closing)
        outputs.check_shape(z, count, positions.find_class_dim(result, out, x) if out.ndim > 2 else None)
        self._same_classes(z.shape[-1])
        return z, out

    def _everywhere(self, result: object, out: Tensor, closing: Closing | None, x: Inputs) -> tuple[Tensor, Tensor]:
        """What `_run` gives, of a model that answers at every position, with the classes last."""
        if self.class_dim is None and out.ndim > 2:
            self.class_dim = positions.find_class_dim(result, out, x)
            if self.class_dim is None:
                raise positions.unclear(out)
        dim, count = self.class_dim or 1, inputs.size(x)
        z = positions.classes_last(outputs.to_logits(out, self.output, closing, dim), dim, count)
        self._same_classes(z.shape[-1])
        return z, out.movedim(dim, -1)

    def _same_classes(self, count: int) -> None:
        """Raise a ModelError for another number of classes than the batch before had."""
        if self._count not in (None, count):
            raise ModelError(
                f"expected the {self._count} classes of the batch before in every batch, got {count}; scores over "
                "other classes cannot be compared: give the model one list of classes"
            )
        self._count = count


ModelLike: TypeAlias = Classifier | Callable[..., Any]
"""What a user gives as a model: a PyTorch module, any callable that gives logits, or a `Classifier`."""
ModelOrPosterior: TypeAlias = ModelLike | Posterior
"""A model, or a distribution over predictions in its place."""


def _check_model(model: object) -> None:
    if isinstance(model, type):
        raise ModelError(f"expected a model, got the class {model.__name__}; make one: {model.__name__}(...)")
    if callable(model):
        return
    refuse_estimator(model)
    remedy = "give a torch.nn.Module or a function that returns logits"
    if isinstance(model, str):
        remedy = "load it with nescio.models.load('package.module:factory', weights='file')"
    elif isinstance(model, Mapping):
        remedy = "weights alone are no model: build the module and call module.load_state_dict(weights)"
    raise ModelError(f"expected a model that can be called, got {describe(model)}; {remedy}")


def _check_finite(name: str, before: Tensor, after: Tensor) -> None:
    """Raise an InputError for NaN or infinite values; a mask of scores to add may hold minus infinity."""
    if not after.is_floating_point() or after.numel() == 0:
        return
    extremes = torch.stack(torch.aminmax(after.detach()))  # NaN where one value is NaN: one pass over the batch
    if bool(extremes.isfinite().all()):
        return
    bad = after.isnan() | (after == torch.inf) if "mask" in name else ~after.isfinite()
    where = bad.reshape(len(bad), -1).any(dim=1).nonzero().flatten().tolist()
    if not where:
        return
    entry = f" in entry {name!r}" if name else ""
    if bool(before[where].isfinite().all()):
        raise InputError(
            f"expected inputs within the range of the model's {after.dtype}, got larger ones{entry} for "
            f"{listed(where)}; scale them, or use the model in float32"
        )
    raise InputError(
        f"expected finite inputs, got NaN or infinite values{entry} for {listed(where)}; "
        "leave those out, or fill them in, for example with torch.nan_to_num"
    )
