"""`nescio explain`: a model and inputs in; a picture of where the doubt comes from, and its maps, out for each."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio._common.argument_checks import argument_type, integer
from nescio._common.formatting import count
from nescio.cli.messages import tell_cheaper, tell_opened, tell_problems
from nescio.cli.options import (
    add_command,
    add_data,
    add_model,
    add_posterior,
    add_running,
    add_settings,
)
from nescio.cli.paths import output_folder, read_lines
from nescio.cli.specs import check_unfitted, data_spec, model_spec, training_pairs

if TYPE_CHECKING:
    from nescio.cli.options import Commands

KINDS = ("epistemic", "aleatoric", "total")
METHODS = (
    "ua_backprop",
    "gradient",
    "smoothgrad",
    "fullgrad",
    "integrated_gradients",
    "blur_ig",
    "blur_gradient",
    "clue",
    "delta_clue",
)
PATHS = ("fullgrad", "gradient", "smoothgrad", "gradcam")
EXAMPLES = """\
Of many inputs the 20 most doubtful are drawn; --top changes that. All inputs are scored first, by the total
uncertainty, or by the kind that --of names.

The folder gets, for each drawn input: NAME.maps.png, the input with its maps side by side in one scale of colours (for
a text or a table row: bars of the tokens or features that weigh most); and NAME.maps.npz, the maps by kind and the
probabilities. The table maps.csv has one row for each input: the answer, the three uncertainties in nats, and how far
each map's sum is from its uncertainty (residual_KIND). With many classes it also has error_KIND: about what share of
the map lies elsewhere than in the exact map. Files of an earlier run are replaced. A picture that cannot be read is
named and left out.

Which method? The maps of ua_backprop are never below 0 and add up to the doubt. blur_gradient says what blurring a
pixel would do: above 0 it lowers the doubt, below 0 it raises it; so do integrated_gradients and blur_ig for the way
from a black or a blurred picture. --set signed=true gives ua_backprop the signs of blur_gradient (ours, not the
paper's): such maps no longer add up, and their signs hold for a blur of 1.5 pixels. clue and delta_clue look for
what does not belong there, and need --vae. The other methods are there to compare with.

The answer is that of the members' mean prediction. For a single network the members are copies of it with dropout
before the last layer, or, with --fit, draws of a Laplace posterior.

examples:
  nescio explain --model torchvision:resnet18 --weights w.safetensors --data photo.jpg --out maps
  nescio explain --model mymodels:build --data photos/ --size 64x64 --class-names names.txt --out maps --top 50
  nescio explain --model mymodels:build --posterior ensemble/ --data x.npz --of epistemic --path gradcam --out maps
  nescio explain --model mymodels:build --fit train.npz --data table.csv --out maps
  nescio explain --model mymodels:build --data x.npz --method integrated_gradients --set steps=100 --out maps
  nescio explain --model mymodels:build --data photos/ --method blur_gradient --of epistemic --out maps"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "explain",
        help="show which part of each input your own model's doubt comes from",
        description="Draws which part of each input causes the epistemic, the aleatoric and the total uncertainty.",
        examples=EXAMPLES,
    )
    add_model(command)
    add_posterior(command)
    command.add_argument("--fit", metavar="PATH", help="labelled training data, for a Laplace posterior of the model")
    add_data(command)
    command.add_argument("--out", required=True, metavar="FOLDER", help="where to write; made if it is not there")
    command.add_argument(
        "--method", choices=METHODS, default="ua_backprop", help="how the maps are made (default: %(default)s)"
    )
    command.add_argument("--path", choices=PATHS, help="how ua_backprop goes back to the input (default: fullgrad)")
    command.add_argument("--of", nargs="+", choices=KINDS, help="which kinds of uncertainty (default: all three)")
    command.add_argument(
        "--top", type=_number, default=20, metavar="N",
        help="how many of the most doubtful inputs are drawn, or all (default: %(default)s)",
    )  # fmt: skip
    add_settings(command, "a setting of the method, such as tau2=0.05")
    command.add_argument("--vae", metavar="FILE", help="the auto-encoder for clue and delta_clue; VAE.save writes it")
    command.add_argument(
        "--channels", type=_dimension, default="auto", metavar="DIM",
        help="the dimension of an array [N, ...] that holds channels and not places, or none (default: 1 for pictures)",
    )  # fmt: skip
    command.add_argument("--names", metavar="FILE", help="a text file with the names of the features, or the tokens")
    add_running(command)
    command.set_defaults(run=run, batch_size=32, on_error="skip", label="none")


def run(args: argparse.Namespace) -> int:
    """Open, explain, draw, write."""
    from nescio._common.lazy_imports import need
    from nescio.batch.explained_rows import explain_rows, known_names, maps_of, open_inputs
    from nescio.batch.map_files import MAPS, PICTURE, TABLE, explanation
    from nescio.specs import open_source

    folder = _maps_folder(args, TABLE)
    need("matplotlib.figure", "demo")
    method = explanation(args.method, _settings(args), args.vae)
    names = None if args.names is None else read_lines(args.names)
    check_unfitted(args)
    source = open_source(model_spec(args))
    rows = open_inputs(data_spec(args), source)
    tell_opened(source, rows)
    training = None
    if args.fit is not None:
        training = training_pairs(replace(data_spec(args, args.fit), label="auto"), source, args.batch_size)
    files, words = maps_of(
        source.model, training, method, folder, kinds=args.of, channels=args.channels, class_names=source.classes,
        names=names or known_names(rows),
    )  # fmt: skip
    tell_cheaper(args, "a smaller --top", "--of total")
    drawn = explain_rows(rows, files, args.batch_size, args.top)
    tell_problems(rows, most=len(rows))
    print(f"Explained {len(files.table):,} of {count(len(rows), 'input')}: {', '.join(files.kinds)} uncertainty of")
    print(f"{words} ({count(files.members, 'member')}), by {method.words}.")
    if len(drawn) < len(rows) - len(rows.problems):
        print(f"These are the most doubtful by their {files.rank} uncertainty, the first in {TABLE} the most of all.")
        print(f"--top {2 * len(drawn)} draws more of them, --top all draws every input.")
    if files.drawn:
        print(f"{files.error_words()}; --set classes=exact takes all, which takes long.")
    if args.of is None and files.members == 1:
        print("With a single prediction for each input there is no epistemic part, and the aleatoric is the total.")
    print(f"Wrote {folder}: a picture (NAME{PICTURE}) and the maps (NAME{MAPS}) of each, and {TABLE}")
    return 0


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of --set and --path."""
    from nescio.types import InputError

    if strange := [one.method for one in args.set if one.method not in (None, args.method)]:
        raise InputError(f"--set: expected settings of {args.method}, but got one of {strange[0]}")
    settings = {one.key: one.value for one in args.set}
    return settings if args.path is None else settings | {"path": args.path}


def _maps_folder(args: argparse.Namespace, table: str) -> Path:
    """Return the folder of --out; raise now where it could not be made or written."""
    from nescio.types import InputError

    folder, data = Path(args.out), Path(args.data)
    if data.is_dir() and folder.resolve().is_relative_to(data.resolve()):
        raise InputError(
            f"--out: expected a folder that is not inside of {data}, since the pictures that are written would be "
            "taken for inputs the next time; name another place"
        )
    return output_folder(args.out, table)


def _number(text: str) -> int | None:
    return None if text == "all" else argument_type(integer, at_least=1, hint="give a number, or all")(text)


def _dimension(text: str) -> int | str | None:
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    return argument_type(integer, at_least=1, hint="give a number, auto or none")(text)
