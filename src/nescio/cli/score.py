"""`nescio score`: a model and data in; a table with one row for each input out, however many there are.

The work is done in parts, each kept as soon as it is done (`nescio.data.parts`): a run that was cut off, by whatever,
goes on where it was when the same command is given again, and ends with the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nescio.cli.asked import add_methods, chosen, configured, tell_chosen
from nescio.cli.decide import apart
from nescio.cli.interrupting import Interrupted
from nescio.cli.own_model import (
    add_data,
    add_model,
    add_running,
    data_at,
    model_at,
    positive,
    tell_opened,
    tell_problems,
)

if TYPE_CHECKING:
    from torch import Tensor

    from nescio.batch.jobs import Job, Ready
    from nescio.batch.pacing import Beginning
    from nescio.batch.streaming import Usage
    from nescio.data.parts import Parts
    from nescio.data.sources import Rows
    from nescio.models.sources import Source

LONG = 30.0
"""Seconds from which on people are told how the time was spent."""
EXAMPLES = """examples:
  nescio score --model timm:resnet18 --weights resnet18.safetensors --data photos --on-error skip --out scores.parquet
  nescio score --model timm:resnet18 --weights resnet18.safetensors --data photos --out scores/
  nescio score --model hf:FOLDER --data reviews.csv --x text --method exgrad --out scores.csv
  nescio score --model torchvision.models:resnet18 --weights resnet18.safetensors --data x.npz --out scores.parquet
  nescio score --model mymodels:build --data x.npz --method regrad --method entropy --out scores.csv
  nescio score --model mymodels:build --data x.npz --method regrad --set samples=0 --out scores.json
  nescio score --model mymodels:build --data x.npz --method regrad --method exgrad --set regrad.power=1 --out s.csv
  nescio score --model mymodels:build --data x.npz --method mahalanobis --fit train.npz --out scores.csv
  nescio score --model timm:resnet18 --weights resnet18.safetensors --data photos --out s/ --engine ray --device cuda

A model of your own comes from a function without arguments, found from the current folder too. Arrays are written by
numpy.savez("x.npz", x=array): one row for each input, in the form that the model takes. Training data have the class
indices beside it: numpy.savez("train.npz", x=array, y=labels). The table has the columns index, name (where rows have
one), one for each method (higher = more uncertain), predicted (class) and probability (of that class), and where they
are known the class's name (predicted_class), label and label_class.

Memory does not grow with the data, and no work is lost: rows are kept in parts, at least every 30 seconds where a row
takes less, in the folder that --out names or beside its file in FILE.parts, which is removed at the end. After a kill,
an interrupt, a full disk or a broken input the same command goes on from there and ends with the same bytes. What is
missing is said in _manifest.json. A file that is there already is replaced only with --overwrite (or --fresh)."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "score",
        help="score the inputs of a folder or file with your own model",
        description="Scores every input of a folder, a list or a table with a model of your own, and writes a table.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    add_model(command)
    add_data(command)
    command.add_argument(
        "--out", required=True, metavar="PATH", help="the table: .parquet, .csv or .json, or a folder for its parts"
    )
    add_methods(command, "a name that `nescio methods` lists; may be repeated (default: gen)")
    command.add_argument(
        "--fit", metavar="PATH", help="labelled training data, such as a .npz file, for the methods that need them"
    )
    add_parts(command)
    command.set_defaults(run=run)


def add_parts(command: argparse.ArgumentParser) -> None:
    """How work in parts is run."""
    command.add_argument("--fresh", action="store_true", help="drop what an earlier run has kept, and begin anew")
    command.add_argument("--overwrite", action="store_true", help="replace the file of --out where there is one")
    command.add_argument(
        "--part-rows",
        type=positive,
        metavar="N",
        help="rows that are kept at a time (default: by how many there are, and how long they take)",
    )
    command.add_argument(
        "--engine", choices=("local", "ray"), default="local",
        help="local: in this process; ray: in many, on many GPUs or machines (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--workers", type=positive, metavar="N",
        help="threads that read rows, or processes for a GPU (default: by cores and kind of data); with ray: processes "
        "with a model each",
    )  # fmt: skip
    command.add_argument("--address", metavar="HOST:PORT", help="with ray: the cluster (default: this machine alone)")
    add_running(command, "rows at a time (default: found by time, 1 to 256, and kept for a run that goes on)")
    command.set_defaults(batch_size=None)


def run(args: argparse.Namespace) -> int:
    """Open, score what is missing, join."""
    return in_parts(args, _opened, _tell)


def in_parts(
    args: argparse.Namespace,
    opened: Callable[[argparse.Namespace, Any], Ready],
    tell: Callable[[str, Ready, list[tuple[int, Any]], Usage], object],
    change: Callable[[Parts], Callable[[Any], Any] | None] = lambda parts: None,
) -> int:
    """Work on all rows of --data, part by part, into --out.

    opened: gives what is to be done, from the arguments and the module of the other engine, if that is asked for.
    tell: gets what was written, in words, the notes of all parts and the use of time. change: gives what is done to
    the columns of each part when they are joined, from all parts.
    """
    from nescio.batch.jobs import identity, machine
    from nescio.batch.streaming import Usage, stream
    from nescio.data.manifest import settled
    from nescio.data.parts import Parts, clean
    from nescio.types import NescioError

    folder, ending = _out(args)
    ray = _on_ray(args)
    ready = opened(args, ray)
    if ready.training is not None:
        tell_problems(ready.training)
    total = len(ready.rows)
    if folder != Path(args.out) and not args.fresh and settled(folder) is None:  # before rows are scored
        _check_free(args)
    ready, size, begun = _paced(args, ready, folder, ray)
    about = {"machine": machine(ready) if ray is None else None, **_about(args, ready)}
    kept = Parts(folder, total, size, identity(ready.job, ready), about=about, ending=ending, fresh=args.fresh)
    with kept as parts:
        if parts.missing:  # else it is the file of these very parts, which a run that was cut off could not remove
            _check_free(args)
        _tell_kept(parts)
        usage = Usage() if ray is None else ray.Usage()
        began, end = datetime.now(UTC).isoformat(timespec="seconds"), "failed"
        try:
            if ray is None:
                stream(ready, parts, begun=begun, usage=usage)
            else:
                ray.stream(ready, parts, workers=args.workers, address=args.address, usage=usage, tell=_say)
            parts.flush()
            end = "done"
            rows, notes = parts.rows, parts.notes
            if folder != Path(args.out):
                clean(args.out)
                parts.join(args.out, change(parts))
        except KeyboardInterrupt:
            end = "interrupted"
            parts.settle()
            raise Interrupted(str(parts), goes_on=parts.rows > 0) from None
        except NescioError as error:
            parts.settle()
            raise type(error)(f"{error}; {parts}" if parts.rows else str(error)) from error
        except Exception:
            parts.settle()
            if parts.rows:
                print(f"nescio: {parts}", file=sys.stderr)
            raise
        finally:
            parts.log({"began": began, "end": end, "machine": parts.about["machine"], **usage.record()})
        tell_problems(parts)  # type: ignore[arg-type]  # it has problems and a length, as rows have
        if folder != Path(args.out):
            parts.remove()
    there = folder == Path(args.out) and rows == parts.before > 0
    words = f"All {rows} rows were in {args.out} already" if there else f"Wrote {rows} rows to {args.out}"
    tell(words, ready, notes, usage)
    return 0


def _out(args: argparse.Namespace) -> tuple[Path, str]:
    """The folder for parts, and what kind of files they are; raises now where --out cannot be written."""
    from nescio.data import check_ending, check_writable
    from nescio.data.manifest import MANIFEST

    out = Path(args.out)
    for option, path in {"--data": args.data, "--weights": args.weights, "--fit": args.fit}.items():
        apart({option: path, "--out": args.out})
    if not (args.out.endswith(("/", "\\")) or out.is_dir() or not out.suffix):
        ending = check_ending(out)
        check_writable(out)
        folder = out.with_name(f"{out.name}.parts")
        if not folder.exists():
            _check_free(args)
        return folder, ending
    check_ending("part.parquet")
    check_writable(out / MANIFEST if out.is_dir() else out)
    return out, ".parquet"


def _check_free(args: argparse.Namespace) -> None:
    """Raise where a file of that name would be lost: what it holds, and of which run, it does not say."""
    from nescio.types import InputError

    if Path(args.out).is_file() and not (args.overwrite or args.fresh):
        raise InputError(f"--out: {args.out} is there already; name another file, or say --overwrite to replace it")


def _opened(args: argparse.Namespace, ray: Any) -> Ready:
    """What is to be scored, opened, and fitted by this process if it is the one that scores."""
    from nescio.batch.jobs import Job
    from nescio.batch.pacing import SIZES
    from nescio.progress import cheaper
    from nescio.scores import default_method

    methods = tuple(configured(chosen(args.method), args.set))
    fit = None if args.fit is None else data_at(args, args.fit)
    readers = args.workers if args.engine == "local" else None
    job = Job(model_at(args), data_at(args, args.data), methods, fit, args.batch_size or SIZES[-1], readers)
    dear = [one.name for one in methods if getattr(one, "requires", "") != "forward"]
    gpu = "a GPU (--device cuda) or more processes (--engine ray --workers N) are faster"
    cheaper(f"--method {default_method().name} takes one forward pass for each, unlike {dear[0]}" if dear else gpu)

    def tell(source: Source, rows: Rows) -> None:
        tell_opened(source, rows)
        tell_chosen(args.method)

    return open_job(job, ray, tell)


def open_job(job: Job, ray: Any, tell: Callable[[Source, Rows], object]) -> Ready:
    """The job, opened by this engine."""
    ready: Ready = job.open(tell) if ray is None else ray.opened(job, tell)
    return ready


def _paced(args: argparse.Namespace, ready: Ready, folder: Path, ray: Any) -> tuple[Ready, int, Beginning | None]:
    """The job with the size of a batch, that of a part, and the first rows, where they were scored to find these.

    On Ray the process that keeps the results has no GPU, and fits nothing: there such rows are not timed.
    """
    from nescio.batch import pacing
    from nescio.data.manifest import settled
    from nescio.data.parts import part_rows

    begun, rows = None, args.part_rows
    earlier = None if args.fresh else settled(folder)
    if args.batch_size is None:
        size = None if earlier is None else pacing.found(earlier.get("batch size"))
        if size is not None:
            ready = pacing.settled(ready, size)
        elif ray is None or ray.can_begin(ready):
            begun = pacing.begin(ready)
            ready = begun.ready
        else:
            ready = pacing.settled(ready, pacing.SIZES[-1])
    if rows is None and earlier is not None:
        rows = earlier["part_rows"]
    seconds = None if begun is None else begun.seconds
    return ready, part_rows(len(ready.rows), ready.job.batch, rows, seconds), begun


def training_data(args: argparse.Namespace, source: Source) -> list[tuple[Any, Tensor]]:
    """The training data of --fit in batches, for other commands that fit."""
    from nescio.batch.jobs import labelled

    data, rows = labelled(data_at(args, args.fit), source, args.batch_size)
    found = list(data)
    if rows is not None:
        tell_problems(rows)
    return found


def _about(args: argparse.Namespace, ready: Ready) -> dict[str, Any]:
    """What people want to know of where the scores come from."""
    plain = {
        name: value for name, value in vars(args).items() if name not in ("run", "fresh", "overwrite", "debug", "set")
    }
    return {
        "model": ready.source.about,
        "data": ready.rows.about,
        "pre-processing": str(ready.rows.preprocess),
        "settings": plain,
        "set": [f"{f'{only}.' if only else ''}{key}={value!r}" for only, key, value in args.set],
    }


def _on_ray(args: argparse.Namespace) -> Any:
    """The module of the other engine, where that is asked for."""
    from nescio._common.lazy_imports import need
    from nescio.types import InputError

    if args.engine == "local":
        if args.address is not None:
            raise InputError("--address: expected --engine ray beside it; the local engine has no cluster")
        return None
    need("ray", "ray")
    from nescio.batch import ray_stream

    return ray_stream


def _say(words: str) -> None:
    print(f"nescio: {words}", file=sys.stderr)


def _tell_kept(parts: Parts) -> None:
    """On standard error what an earlier run has left."""
    if parts.damaged:
        listed = ", ".join(parts.damaged[:3]) + (" …" if len(parts.damaged) > 3 else "")
        print(f"nescio: {listed} in {parts.folder} was lost or changed, and is made again", file=sys.stderr)
    if parts.before and parts.missing:
        print(f"nescio: going on after {parts.before} of {len(parts)} rows in {parts.folder}", file=sys.stderr)
        before, now = parts.earlier.get("machine"), parts.about["machine"]
        if now is not None and before != now:  # Ray tells when it knows
            print(f"nescio: warning: they are of {before}, not of {now}: last digits may differ", file=sys.stderr)


def _tell(words: str, ready: Ready, notes: list[tuple[int, Any]], usage: Usage) -> None:
    """On standard output what was written, what is known of its error and, after a long run, how long it took."""
    print(f"{words}: {', '.join(ready.columns)}")
    for name in ready.columns:
        own = [(count, note[name]) for count, note in notes if name in note]
        if own:
            print(f"{name}: {_error(own)}")
    if usage.seconds >= LONG:
        print(usage)


def _error(notes: list[tuple[int, dict[str, float]]]) -> str:
    """What is known of the error of scores that were estimated, from what each part has noted."""
    half, middle = sum(count for count, _ in notes) / 2, 0.0
    for count, note in sorted(notes, key=lambda one: one[1]["middle"]):
        middle, half = note["middle"], half - count
        if half <= 0:
            break
    text = f"estimated; median standard error {middle:.1%}, {max(n['largest'] for _, n in notes):.1%} at most"
    if checked := sum(int(note.get("checked", 0)) for _, note in notes):
        inputs = "1 input" if checked == 1 else f"{checked} inputs"
        worst = max(note.get("worst", 0.0) for _, note in notes)
        text += f"; {worst:.1%} off at most for {inputs} computed exactly"
    return text
