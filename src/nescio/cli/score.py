"""`nescio score`: a model and data in; a table with one row for each input out, however many there are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nescio._common.formatting import count
from nescio.cli.messages import say, tell_cheaper, tell_method, tell_opened
from nescio.cli.options import add_command, add_data, add_methods, add_model, add_parts
from nescio.cli.paths import check_apart
from nescio.cli.specs import data_spec, engine_spec, methods_of, model_spec, output_spec

if TYPE_CHECKING:
    from nescio.batch.run_job import Finished
    from nescio.cli.options import Commands
    from nescio.specs import Rows, Source

LONG = 30.0
"""Seconds from which on people are told how the time was spent."""
EXAMPLES = """\
A model of your own comes from a function without arguments, found from the current folder too. Arrays are written by
numpy.savez("x.npz", x=array): one row for each input, in the form that the model takes. Training data have the class
indices too: numpy.savez("train.npz", x=array, y=labels). The table has the columns index, name (if rows have names),
one for each method (higher = more uncertain), predicted (the class) and probability (of that class); and if they are
known, predicted_class (its name), label and label_class.

A model that answers at every position (segmentation, tokens) has one row for each input too: the mean of each method
over positions, METHOD_max, the commonest class, and the mean probability. --maps keeps the maps themselves.

Memory does not grow with the data, and no work is lost. Rows are kept in parts, at least every 30 seconds, in the
folder of --out, or beside its file in FILE.parts, which is removed at the end. After a kill, an interrupt, a full disk
or a broken input, the same command goes on from there and ends with the same bytes. _manifest.json says what is
missing. A file that exists is replaced only with --overwrite or --fresh.

examples:
  nescio score --model timm:resnet18 --weights resnet18.safetensors --data photos --on-error skip --out scores.parquet
  nescio score --model timm:resnet18 --weights resnet18.safetensors --data photos --out scores/
  nescio score --model hf:FOLDER --data reviews.csv --x text --method exgrad --out scores.csv
  nescio score --model torchvision.models:resnet18 --weights resnet18.safetensors --data x.npz --out scores.parquet
  nescio score --model mymodels:build --data x.npz --method regrad --method entropy --out scores.csv
  nescio score --model mymodels:build --data x.npz --method regrad --set samples=0 --out scores.json
  nescio score --model mymodels:build --data x.npz --method regrad --method exgrad --set regrad.power=1 --out s.csv
  nescio score --model mymodels:build --data x.npz --method mahalanobis --fit train.npz --out scores.csv
  nescio score --model timm:resnet18 --weights resnet18.safetensors --data photos --out s/ --engine ray --device cuda
  nescio score --model hf:FOLDER --task token-classification --data letters.csv --x text --out scores.csv
  nescio score --model mymodels:segment --data photos --method entropy --out scores.csv --maps maps"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "score",
        help="score the inputs of a folder or file with your own model",
        description="Scores every input of a folder, a list or a table with a model of your own, and writes a table.",
        examples=EXAMPLES,
    )
    add_model(command)
    add_data(command)
    add_methods(command, "a name that `nescio methods` lists; may be repeated (default: gen)")
    command.add_argument(
        "--fit", metavar="PATH", help="labelled training data, such as a .npz file, for the methods that need them"
    )
    command.add_argument(
        "--maps", metavar="FOLDER",
        help="for a model that answers at every position: a picture and the maps of each input go to this folder",
    )  # fmt: skip
    add_parts(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Open, score what is missing, join."""
    from nescio.batch.jobs import Job
    from nescio.batch.pacing import SIZES
    from nescio.batch.run_job import Listener, run_job
    from nescio.scores import default_method

    for option in ("data", "weights", "fit"):
        check_apart({f"--{option}": getattr(args, option), "--out": args.out})
    methods = tuple(methods_of(args.method, args.set))
    job = Job(
        model_spec(args), data_spec(args), methods, None if args.fit is None else data_spec(args, args.fit),
        args.batch_size or SIZES[-1], args.workers if args.engine == "local" else None, maps=args.maps,
    )  # fmt: skip
    dear = [one.name for one in methods if getattr(one, "requires", "") != "forward"]
    quick = f"--method {default_method().name} (one forward pass for each input, unlike {dear[0]})" if dear else None
    tell_cheaper(args, *filter(None, [quick]))

    def opened(source: Source, rows: Rows) -> None:
        tell_opened(source, rows)
        tell_method(args.method)

    finished = run_job(
        job, output_spec(args), engine_spec(args), find_batch=args.batch_size is None, about=about(args),
        listener=Listener(opened, say),
    )  # fmt: skip
    _tell(finished)
    return 0


def about(args: argparse.Namespace) -> dict[str, Any]:
    """Return what people want to know of where the rows come from: the options that were given."""
    left_out = ("run", "fresh", "overwrite", "debug", "set")
    options = {name: value for name, value in vars(args).items() if name not in left_out}
    settings = vars(args).get("set", [])
    return {"settings": options, "set": [str(one._replace(value=repr(one.value))) for one in settings]}


def _tell(finished: Finished) -> None:
    """Print what was written, what is known of its error and, after a long run, how long it took."""
    columns = finished.ready.columns
    print(f"{finished.words}: {', '.join(columns)}")
    for name in columns:
        notes = [(count, note[name]) for count, note in finished.notes if name in note]
        if notes:
            print(f"{name}: {_error(notes)}")
    if finished.usage.seconds >= LONG:
        print(finished.usage)


def _error(notes: list[tuple[int, dict[str, float]]]) -> str:
    """What is known of the error of scores that were estimated, from what each part has noted."""
    half, middle = sum(rows for rows, _ in notes) / 2, 0.0
    for rows, note in sorted(notes, key=lambda one: one[1]["middle"]):
        middle, half = note["middle"], half - rows
        if half <= 0:
            break
    text = f"estimated; median standard error {middle:.1%}, {max(n['largest'] for _, n in notes):.1%} at most"
    if checked := sum(int(note.get("checked", 0)) for _, note in notes):
        worst = max(note.get("worst", 0.0) for _, note in notes)
        text += f"; {worst:.1%} off at most for {count(checked, 'input')} computed exactly"
    return text
