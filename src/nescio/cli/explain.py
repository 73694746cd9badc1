"""`nescio explain`: a model and inputs in; a picture of where the doubt comes from, and its maps, out for each."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio.cli.asked import setting
from nescio.cli.interrupting import Interrupted
from nescio.cli.own_model import add_data, add_model, add_running, opened_data, opened_model, tell_opened, tell_problems
from nescio.cli.score import training_data

if TYPE_CHECKING:
    from nescio.data.sources import Rows
    from nescio.models.sources import Source

KINDS = ("epistemic", "aleatoric", "total")
METHODS = ("ua_backprop", "gradient", "smoothgrad", "fullgrad", "integrated_gradients", "blur_ig", "clue", "delta_clue")
PATHS = ("fullgrad", "gradient", "smoothgrad", "gradcam")
EXAMPLES = """examples:
  nescio explain --model torchvision:resnet18 --weights w.safetensors --data photo.jpg --out maps
  nescio explain --model mymodels:build --data photos/ --size 64x64 --class-names names.txt --out maps
  nescio explain --model mymodels:build --posterior ensemble/ --data x.npz --of epistemic --path gradcam --out maps
  nescio explain --model mymodels:build --fit train.npz --data table.csv --out maps
  nescio explain --model mymodels:build --data x.npz --method integrated_gradients --set steps=100 --out maps

For every input the folder gets NAME.maps.png (the input and its maps side by side, in one scale of colours, or bars of
the features or tokens that weigh most) and NAME.maps.npz (the maps by the names of their kinds, and the probabilities);
and maps.csv, with one row for each: the answer, the three uncertainties in nats, and what each map has more than its
own. Files of an earlier run are replaced. Pictures that cannot be read are named and left out.

The answer and its probability are those of the mean prediction of the members. Around a single network these are copies
of it with dropout before the last layer, or, with --fit, draws of a Laplace posterior."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "explain",
        help="show which part of each input your own model's doubt comes from",
        description="Draws which part of each input causes the epistemic, the aleatoric and the total uncertainty.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    add_model(command)
    command.add_argument("--posterior", metavar="FOLDER", help="a distribution over that model, such as an ensemble")
    command.add_argument("--fit", metavar="PATH", help="labelled training data, for a Laplace posterior of the model")
    add_data(command)
    command.add_argument("--out", required=True, metavar="FOLDER", help="where to write; made if it is not there")
    command.add_argument("--method", choices=METHODS, default="ua_backprop", help="default: %(default)s")
    command.add_argument("--path", choices=PATHS, help="how ua_backprop goes from logits to the input (fullgrad)")
    command.add_argument("--of", nargs="+", choices=KINDS, help="which uncertainties (default: all three)")
    command.add_argument(
        "--set", action="append", default=[], type=setting, metavar="KEY=VALUE",
        help="a setting of the method, such as tau2=0.05; may be repeated",
    )  # fmt: skip
    command.add_argument("--vae", metavar="FILE", help="the auto-encoder of clue and delta_clue, by VAE.save")
    command.add_argument(
        "--channels", type=_dimension, default="auto", metavar="DIM",
        help="the dimension of an array [N, ...] that is no place but channels, or none (default: 1 of pictures)",
    )  # fmt: skip
    command.add_argument("--names", metavar="FILE", help="a text file with the features, or the words of the tokens")
    add_running(command)
    command.set_defaults(run=run, batch_size=32, on_error="skip", label="none")


def run(args: argparse.Namespace) -> int:
    """Open, explain, draw, write."""
    from nescio._common.lazy_imports import need
    from nescio.attribution.members import distribution
    from nescio.cli.explain_files import MAPS, PICTURE, TABLE, Explainer
    from nescio.progress import bar, cheaper

    folder = _checked_folder(args, TABLE)
    need("matplotlib.figure", "demo")
    method = _method(args)
    names = _lines(args.names)
    source = _opened_model(args)
    rows = _opened_data(args, source)
    tell_opened(source, rows)
    training = (
        None if args.fit is None else training_data(argparse.Namespace(**{**vars(args), "label": "auto"}), source)
    )
    posterior, words = distribution(source.model, training, None)
    work = Explainer(
        *(posterior, method, folder), kinds=args.of, channels=args.channels,
        class_names=source.classes, names=names or _known_names(rows),
    )  # fmt: skip
    cheaper("--of total, fewer inputs or a GPU (--device cuda) take less")
    try:
        with bar(len(rows), description="explaining") as shown:
            for batch in rows.batches(args.batch_size):
                for _ in work.explain(batch.names, batch.inputs):
                    shown.update(1)
    except KeyboardInterrupt:
        raise Interrupted(f"{len(work.rows)} of {len(rows)} inputs are done, in {folder}") from None
    finally:
        work.write_table()
    tell_problems(rows, most=len(rows))
    members = f"{work.members} member{'s' if work.members > 1 else ''}"
    print(f"Explained {len(work.rows)} of {len(rows)} inputs: {', '.join(work.kinds)} uncertainty of")
    print(f"{words} ({members}), by {method.words}.")
    if work.merged:
        print(f"The {work.merged} least likely classes were taken together as one; --set classes=exact follows each.")
    if args.of is None and work.members == 1:
        print("With a single prediction for each input there is no epistemic part, and the aleatoric is the total.")
    print(f"Wrote {folder}: a picture (NAME{PICTURE}) and the maps (NAME{MAPS}) of each, and {TABLE}")
    return 0


def _method(args: argparse.Namespace) -> Any:
    """The method with its settings."""
    from nescio import attribution
    from nescio.types import InputError

    if strange := [whose for whose, _, _ in args.set if whose not in (None, args.method)]:
        raise InputError(f"--set: expected settings of {args.method}, but got one of {strange[0]}")
    settings = {key: value for _, key, value in args.set}
    settings |= {} if args.path is None else {"path": args.path}
    settings |= {} if args.vae is None else {"vae": attribution.VAE.load(args.vae)}
    return attribution._method(args.method, settings)


def _opened_model(args: argparse.Namespace) -> Source:
    """The model, or the distribution over it that was saved."""
    from nescio.types import InputError

    if args.posterior is None:
        return opened_model(args)
    if args.fit is not None or args.base is not None:
        raise InputError("--posterior: expected it without --fit and --base: it is fitted already, over --model")
    return opened_model(argparse.Namespace(**{**vars(args), "model": args.posterior, "base": args.model}))


def _opened_data(args: argparse.Namespace, source: Source) -> Rows:
    """The rows of --data, which may be a single picture too."""
    from nescio.data.sources import Rows
    from nescio.data.sources.decode import ENDINGS
    from nescio.data.sources.files import PictureFiles
    from nescio.data.sources.opening import Plain
    from nescio.types import InputError

    place = Path(args.data)
    if not place.is_file() or place.suffix.lower() not in ENDINGS:
        rows = opened_data(args, source)
        if not len(rows):
            raise InputError(f"--data: expected at least one input, but {args.data} has none")
        return rows
    preprocess: Any = source.preprocess or Plain("pictures")
    if preprocess.kind != "pictures":
        raise InputError(f"expected {preprocess.kind}, as the model takes, but {args.data} is a picture")
    return Rows(PictureFiles(place.parent, [place.name], None, f"the picture {place}"), preprocess, on_error="stop")


def _known_names(rows: Rows) -> Any:
    """What the data or the model themselves call features or tokens: a list, a function of the index, or None."""
    from nescio.data.sources.tables import TableRows

    if rows.preprocess.kind == "texts":
        return rows.preprocess.tokenizer.convert_ids_to_tokens  # type: ignore[attr-defined]
    columns = rows.store._x if isinstance(rows.store, TableRows) else []
    return columns if len(columns) > 1 else None


def _checked_folder(args: argparse.Namespace, table: str) -> Path:
    """The folder of --out; raises now where it could not be made or written."""
    from nescio.data import check_writable
    from nescio.types import InputError

    folder, data = Path(args.out), Path(args.data)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: expected a folder, but {folder} is a file; name another place")
    if data.is_dir() and folder.resolve().is_relative_to(data.resolve()):
        raise InputError(
            f"--out: expected a folder that is not inside of {data}, since the pictures that are written would be "
            "taken for inputs the next time; name another place"
        )
    check_writable(folder / table if folder.exists() else folder)
    return folder


def _lines(path: str | None) -> list[str] | None:
    from nescio.types import InputError

    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expected a text file with a name on each line, but cannot read {path}: {error}") from error


def _dimension(text: str) -> int | str | None:
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, or none, got '{text}'")
    return int(text)
