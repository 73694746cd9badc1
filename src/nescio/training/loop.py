"""The training loop: minimise a loss by stochastic gradients, and keep the weights of the best epoch on validation.

For a given seed, device and thread count two runs give the same weights, and so do a run that was killed and taken up
again and one that was not; the global generators are left as they were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from nescio import inputs
from nescio._common.argument_checks import integer
from nescio.inputs import Data
from nescio.models.outputs import check_shape
from nescio.models.structure import refuse_unready
from nescio.modes import predicting, preserved
from nescio.progress import bar
from nescio.training import checkpoint, seeding
from nescio.training.feed import Feed, check_labels, digest, feed, generators
from nescio.training.recipe import Recipe
from nescio.training.run import Epoch, Loss, Run, outputs
from nescio.types import InputError, ModelError


def train(
    model: nn.Module,
    data: Data,
    validation: Data | None = None,
    *,
    recipe: Recipe | None = None,
    loss: Loss | None = None,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_epoch: Callable[[Epoch], object] | None = None,
) -> list[Epoch]:
    """Train a model in place, and leave it in eval mode with its best weights.

    Args:
        model: The model. It is changed.
        data: A pair (inputs, labels) of tensors, which are moved to the model's device as a whole, or a loader of such
            pairs that can be read again in every epoch.
        validation: The same, to choose the best epoch by: the highest accuracy, and of those the lowest loss
            (`Recipe.choose` turns this around). None keeps the last weights.
        recipe: The settings; None for the default ones.
        loss: ``loss(output, y, step)`` gives the mean loss of a batch from what the model returned. None is the
            cross-entropy, with the recipe's label smoothing in training.
        seed: The seed of all random numbers. The global generators are left as they were.
        folder: A folder in which every epoch leaves the whole state of the run. A run that was killed goes on from it
            when it is started again with the same arguments, and ends with the same weights. A run that is finished is
            loaded at once.
        progress: Whether a progress bar is shown; None shows it in a terminal or notebook, after two
            seconds.
        on_epoch: Called after each epoch, before its state is written.

    Returns:
        What was measured in each epoch.

    Examples:
        >>> x = torch.linspace(-1, 1, 64).unsqueeze(1)
        >>> y = (x[:, 0] > 0).long()
        >>> model = torch.nn.Linear(1, 2)
        >>> history = nescio.training.train(model, (x, y), recipe=nescio.training.Recipe(epochs=20, lr=0.5))
        >>> len(history), nescio.training.accuracy(model, x, y) > 0.9
        (20, True)
    """
    recipe = Recipe() if recipe is None else recipe
    first = _check_model(model)
    device, dtype = first.device, first.dtype
    raw = recipe.transform is not None
    seed = integer("seed", seed, at_least=0)
    if validation is None and recipe.patience is not None:
        raise InputError("patience: expected validation data with it, which say when to stop, but got none")
    if loss is not None and recipe.label_smoothing:
        raise InputError(
            f"label_smoothing: expected 0 with a loss of your own, which it does not reach, "
            f"but got {recipe.label_smoothing}"
        )
    with seeding.seeded(seed, device):
        source = feed(data, device, dtype, recipe.batch_size, "training", raw)
        held_out = (
            None if validation is None else feed(validation, device, dtype, 4 * recipe.batch_size, "validation", raw)
        )
        for part in (source, held_out):
            if part is not None:
                _try(model, part, recipe)
    identity = {} if folder is None else _identity(model, recipe, loss, seed, source, held_out)
    saved = None if folder is None else checkpoint.read(folder, identity)
    run = Run(model, source, held_out, recipe, loss, device, generators(data))
    if saved is not None:
        run.restore(saved)
        if saved["finished"]:
            run.finish()
            return run.history
    with seeding.seeded(seed, device), _deterministic(), torch.enable_grad():
        if saved is not None:
            seeding.restore(saved["random"], device)
        total = recipe.epochs * source.steps
        with bar(total, show=progress, description="training", unit="batch") as shown:
            shown.update(len(run.history) * source.steps)
            try:
                for number in range(len(run.history) + 1, recipe.epochs + 1):
                    epoch = run.epoch(number, shown.update)
                    if (note := getattr(shown, "set_postfix_str", None)) is not None:
                        note(_words(epoch))
                    if on_epoch is not None:
                        on_epoch(epoch)
                    if folder is not None:
                        checkpoint.write(folder, {"identity": identity, **run.state(), "finished": run.over})
                    if run.over:
                        break
            finally:  # also after an interrupt: the best weights so far, and no trace of the work
                run.finish()
    return run.history


def accuracy(model: nn.Module, x: Tensor, y: Tensor, batch_size: int = 512) -> float:
    """Return the share of inputs whose most probable class is the label.

    Args:
        model: The model; its modes are left as they were.
        x: Inputs ``[N, ...]``.
        y: The class of each input, ``[N]``.
        batch_size: How many inputs go through at once.

    Returns:
        The share, from 0 to 1.

    Examples:
        >>> nescio.training.accuracy(torch.nn.Linear(2, 2), torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]))
        0.5
    """
    first = _check_model(model)
    source = feed((x, y), first.device, first.dtype, batch_size, "test", False)
    with predicting(model):
        right = [(outputs(model, part, None).argmax(dim=1) == labels).sum() for part, labels in source.batches(False)]
    return int(torch.stack(right).sum()) / source.count


def _check_model(model: object) -> Tensor:
    """The first weight of a model that can be trained."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected a torch.nn.Module to train, got {inputs.describe(model)}; build the model first")
    refuse_unready(model)
    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    if not weights:
        raise ModelError(f"expected a model with weights, got {type(model).__name__}, which has none")
    if half := {str(weight.dtype) for weight in weights} & {"torch.float16", "torch.bfloat16"}:
        raise ModelError(
            f"expected weights in float32, got {', '.join(sorted(half))}, in which small steps are lost; "
            "give model.float(), and Recipe(precision='bfloat16') to compute in that type"
        )
    return weights[0]


def _try(model: nn.Module, source: Feed, recipe: Recipe) -> None:
    """Raise where the model does not take the data, or the labels are no classes of it."""
    if not any(weight.requires_grad for weight in model.parameters()):
        raise ModelError("expected weights to train, but all are frozen; call model.requires_grad_(True) first")
    x, y = source.first()
    with preserved(model), predicting(model):
        z = outputs(model, x, recipe.transform)
    check_shape(z, inputs.size(x))
    source.classes = z.shape[1]
    check_labels(y, source.classes)


def _identity(
    model: nn.Module, recipe: Recipe, loss: Loss | None, seed: int, source: Feed, held_out: Feed | None
) -> dict[str, str]:
    """What a run was started with, as text: two runs of one identity are the same run."""
    weights = [value for value in model.state_dict().values() if isinstance(value, Tensor)]
    about = {f"recipe.{name}": value for name, value in checkpoint.described(recipe).items()}
    return about | {
        "loss": checkpoint.stable_name(loss),
        "seed": str(seed),
        "device": weights[0].device.type,
        "model": f"{type(model).__name__} with weights {digest(weights)}",
        "data": source.identity(),
        "validation": "none" if held_out is None else held_out.identity(),
    }


@contextmanager
def _deterministic() -> Iterator[None]:
    """Convolutions on a GPU by algorithms that add in a fixed order."""
    before = torch.backends.cudnn.deterministic
    try:
        torch.backends.cudnn.deterministic = True
        yield
    finally:
        torch.backends.cudnn.deterministic = before


def _words(epoch: Epoch) -> str:
    held_out = "" if epoch.validation_accuracy is None else f", validation accuracy {epoch.validation_accuracy:.3f}"
    return f"loss {epoch.loss:.4f}, accuracy {epoch.accuracy:.3f}{held_out}"
