"""From parsed arguments to specs: the one place where the options of `options` are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nescio.cli.messages import say, tell_problems

if TYPE_CHECKING:
    from nescio.batch.run_job import EngineSpec, OutputSpec
    from nescio.cli.options import Setting
    from nescio.scores import Method
    from nescio.specs import AnyGuard, DataSpec, ModelSpec, Network, Pairs, Rows, Source


FITTED = "--posterior: expected it without --fit and --base: it is fitted already, over --model"


def model_spec(args: argparse.Namespace) -> ModelSpec:
    """Return the model of --model and of the options beside it.

    A folder of --guard fills in what is not said, and --posterior is opened over that model.
    """
    from nescio.specs import ModelSpec, remembered
    from nescio.types import InputError

    options = vars(args)
    folder, posterior = options.get("guard"), options.get("posterior")
    name = args.model if folder is None else _guarded_model(args)
    if name is None:
        raise InputError("--model: expected a model, such as timm:resnet18, or a --guard that knows its own")
    own = ("weights", "base", "class_names", "output", "size", "crop", "mean", "std", "device", "trust_pickle", "task")
    spec = ModelSpec(name, **{key: options[key] for key in own if key in options})
    kept = None if folder is None else remembered(folder)
    if kept is not None and kept.name == name:
        spec = spec.filled_from(kept)
    if posterior is None:
        return spec
    if spec.base is not None:
        raise InputError(FITTED)
    return replace(spec, name=posterior, base=name)


def _guarded_model(args: argparse.Namespace) -> str:
    """Return --model, or the model that the folder of --guard names."""
    from nescio.specs import guard_record, names_code, remembered
    from nescio.types import InputError, ModelError

    try:
        guard_record(args.guard)
    except InputError as error:
        raise InputError(f"--guard: {error}") from error
    if args.model is not None:
        return str(args.model)
    kept = remembered(args.guard)
    if kept is None:
        raise InputError(f"--model: expected the model of the guard, since {args.guard} does not say which it is")
    if names_code(kept.name) and not args.trust_pickle:
        raise ModelError(
            f"{args.guard} names the function {kept.name}, and opening it would run that: name it yourself if "
            f"you know it (--model {kept.name}), or say --trust-pickle if you trust where the folder comes from"
        )
    return kept.name


def check_bundled(args: argparse.Namespace, options: Sequence[str]) -> None:
    """Raise where one of these options is given, which mean nothing without --model."""
    from nescio.types import InputError

    for option in options:
        if getattr(args, option) is not None:
            raise InputError(f"--{option.replace('_', '-')}: expected --model with it, got none")


def check_unfitted(args: argparse.Namespace) -> None:
    """Raise where --posterior and --fit are given: a saved distribution is fitted already."""
    from nescio.types import InputError

    if args.posterior is not None and args.fit is not None:
        raise InputError(FITTED)


def data_spec(args: argparse.Namespace, path: str | None = None) -> DataSpec:
    """Return the data of --data, or of another path, read as the options say."""
    from nescio.specs import DataSpec

    x = tuple(args.x.split(",")) if args.x is not None and "," in args.x else args.x
    label, name = (None if text == "none" else text for text in (args.label, args.name))
    return DataSpec(args.data if path is None else path, x, label, name, args.on_error)


def training_pairs(data: DataSpec, source: Source, batch_size: int) -> Pairs:
    """Read labelled data in batches, to fit with, and say which rows could not be used."""
    from nescio.specs import open_training

    pairs, rows = open_training(data, source, batch_size)
    batches = list(pairs)
    if rows is not None:
        tell_problems(rows)
    return batches


def fair_rows(data: DataSpec, source: Source) -> Rows:
    """Open a reference, without labels that are names of something else than the model's classes, as of folders."""
    from nescio.specs import open_rows

    rows = open_rows(data, source)
    named = rows.labels is not None and rows.classes is not None and rows.classes != source.classes
    if not named or data.label != "auto":
        return rows
    say(
        f"nescio: the labels of {data.path} are not known to be classes of the model, and are left out: the guard "
        "will not say how likely an answer is wrong. --class-names says how the classes are called"
    )
    return open_rows(replace(data, label=None), source)


def given_guard(
    folder: str | None, reference: DataSpec | None, source: Source, network: Callable[[], Network]
) -> tuple[AnyGuard | None, Rows | None]:
    """Return the guard of --guard, or one that is fitted to --reference, and its rows; None where neither is given.

    Args:
        folder: That of --guard.
        reference: What --reference names.
        source: The model.
        network: Gives the network that is guarded, or raises where there is not one.
    """
    from nescio.specs import GuardSpec, fit_guard, open_guard
    from nescio.types import InputError

    if folder is not None and reference is not None:
        raise InputError("--reference: expected either --reference or --guard, got both; leave one out")
    if folder is not None:
        return open_guard(GuardSpec(folder), network()), None
    if reference is None:
        return None, None
    rows = fair_rows(reference, source)
    say(f"nescio: a guard is fitted to {reference.path}; `nescio guard` keeps one")
    guard = fit_guard(network(), rows)
    tell_problems(rows)
    return guard, rows


def methods_of(names: Sequence[str] | None, settings: Sequence[Setting]) -> list[Method]:
    """Return the scores of --method, or the usual one, with the settings of --set.

    Raises:
        InputError: A setting that none of the scores has.
    """
    from nescio import scores
    from nescio.types import InputError

    infos = {info.name: info for info in scores.methods()}
    chosen = [scores.default_method().name] if names is None else names
    own = {name: set(infos[name].settings) for name in chosen}  # a name that is given twice counts once
    given: dict[str, dict[str, object]] = {name: {} for name in own}
    for only, key, value in settings:
        takers = [name for name in own if key in own[name] and only in (None, name)]
        if not takers:
            whom = f"'{only}'" if only is not None else "any of the chosen methods"
            listed = "; ".join(f"{name}: {', '.join(sorted(keys)) or 'none'}" for name, keys in own.items())
            raise InputError(f"--set: expected a setting of {whom}, but got '{key}'; there are {listed}")
        for name in takers:
            given[name][key] = value
    return [scores.get(name, **given[name]) for name in own]


def output_spec(args: argparse.Namespace) -> OutputSpec:
    """Return where the table goes, and what is done with what is there."""
    from nescio.batch.run_job import OutputSpec

    return OutputSpec(args.out, fresh=args.fresh, overwrite=args.overwrite, part_rows=args.part_rows)


def engine_spec(args: argparse.Namespace) -> EngineSpec:
    """Return by how many processes the work is done."""
    from nescio.batch.run_job import EngineSpec

    return EngineSpec(args.engine, workers=args.workers, address=args.address)
