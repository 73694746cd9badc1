"""`run_job`: a job from its specs to a table on the disk, in parts that survive a kill.

    open the model and the rows ─► find the size of a batch, by time ─► score what is missing, part by part ─► join

The work is done in parts, each kept as soon as it is done (`nescio.data.parts`). A run that was cut off, by whatever,
goes on where it was when the same job is given again, and ends with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from nescio._common.formatting import count
from nescio._common.lazy_imports import need
from nescio.batch import pacing, ray_stream
from nescio.batch.columns import Column
from nescio.batch.interrupted import Interrupted
from nescio.batch.jobs import Job, Ready, identity, machine
from nescio.batch.pacing import Beginning
from nescio.batch.streaming import Usage, stream
from nescio.data import check_ending, check_writable
from nescio.data.manifest import MANIFEST, earlier_settings
from nescio.data.parts import Parts, clean, part_rows
from nescio.data.sources import Problem, Rows
from nescio.guard.promise import check_level
from nescio.models.sources import Source
from nescio.types import InputError, NescioError

Columns = dict[str, Column]
Change = Callable[[Parts], Callable[[Columns], Columns] | None]
"""From all parts to what is done to the columns of each when they are joined; None for nothing."""


@dataclass(frozen=True)
class OutputSpec:
    """Say where a table goes, and what is done with what is there.

    Args:
        path: A file (.parquet, .csv or .json), or a folder for the parts themselves.
        fresh: Whether what an earlier run has kept is dropped.
        overwrite: Whether a file of that name is replaced.
        part_rows: How many rows a part has; None chooses.

    Examples:
        >>> OutputSpec("scores.parquet").is_folder, OutputSpec("scores/").is_folder
        (False, True)
    """

    path: str
    fresh: bool = False
    overwrite: bool = False
    part_rows: int | None = None

    @property
    def is_folder(self) -> bool:
        """Whether the parts are the result, and not one file."""
        out = Path(self.path)
        return self.path.endswith(("/", "\\")) or out.is_dir() or not out.suffix

    @property
    def folder(self) -> Path:
        """Where the parts are kept: the folder itself, or beside the file."""
        out = Path(self.path)
        return out if self.is_folder else out.with_name(f"{out.name}.parts")

    def check(self) -> str:
        """Raise an InputError where the output cannot be written; return the ending of the parts."""
        out = Path(self.path)
        if self.is_folder:
            check_ending("part.parquet")
            check_writable(out / MANIFEST if out.is_dir() else out)
            return ".parquet"
        ending = check_ending(out)
        check_writable(out)
        if not self.folder.exists():
            self.check_free()
        return ending

    def check_free(self) -> None:
        """Raise where a file of that name would be lost: what it holds, and of which run, it does not say."""
        if Path(self.path).is_file() and not (self.overwrite or self.fresh):
            raise InputError(
                f"--out: {self.path} is there already; name another file, or say --overwrite to replace it"
            )


@dataclass(frozen=True)
class EngineSpec:
    """Say by how many processes a job is done.

    Args:
        name: "local" for this process, "ray" for many, on many GPUs or machines.
        workers: Threads that read rows; with Ray: processes with a model each. None chooses.
        address: The cluster of Ray; None starts one on this machine.

    Raises:
        InputError: If a cluster is named for the local engine.
        MissingExtra: If Ray is not installed.

    Examples:
        >>> EngineSpec(workers=4)
        EngineSpec(name='local', workers=4, address=None)
    """

    name: Literal["local", "ray"] = "local"
    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.name == "local" and self.address is not None:
            raise InputError("--address: expected --engine ray beside it; the local engine has no cluster")
        if self.name == "ray":
            need("ray", "ray")


@dataclass(frozen=True)
class Finished:
    """Hold what is known of a job that is done.

    Attributes:
        ready: The job, opened.
        words: What was written, for people.
        notes: The number of rows of each part, and what was noted with it (`nescio.batch.columns.Scores`).
        usage: What the work took.

    Examples:
        >>> import tempfile
        >>> from nescio.batch.example_job import example_job
        >>> run_job(example_job(), OutputSpec(tempfile.mkdtemp() + "/scores.csv"), EngineSpec()).words
        'Wrote 8 rows to .../scores.csv'
    """

    ready: Ready
    words: str
    notes: list[tuple[int, dict[str, Any]]]
    usage: Usage


@dataclass
class Listener:
    """Hear what happens in a run; the usual one hears nothing.

    Args:
        opened: Called with the model and the rows once they are open.
        say: Called with each line that people should read.

    Examples:
        >>> lines = []
        >>> Listener(say=lines.append).say("one row could not be used")
        >>> lines
        ['one row could not be used']
    """

    opened: Callable[[Source, Rows], object] = field(default=lambda source, rows: None)
    say: Callable[[str], object] = field(default=lambda line: None)


def run_job(
    job: Job,
    output: OutputSpec,
    engine: EngineSpec,
    *,
    find_batch: bool = False,
    about: Mapping[str, Any] | None = None,
    listener: Listener | None = None,
    change: Change = lambda parts: None,
) -> Finished:
    """Do a job on all its rows, part by part, and write the table.

    Args:
        job: What is to be done.
        output: Where the table goes.
        engine: By how many processes.
        find_batch: Whether the size of a batch is found by time, in the place of the job's.
        about: What else people want to know of where the table comes from; it is kept in the manifest.
        listener: Who hears what was opened, and what people should read.
        change: What is done to the columns when parts are joined.

    Returns:
        What was written, and how the time was spent.

    Raises:
        Interrupted: Ctrl-C came; what is done is kept.

    Examples:
        >>> from nescio.batch.jobs import Job
        >>> import tempfile
        >>> from nescio.specs import DataSpec, ModelSpec
        >>> folder = tempfile.mkdtemp()
        >>> np.savez(f"{folder}/x.npz", x=np.zeros((4, 1, 28, 28), np.float32))
        >>> model, data = ModelSpec("nescio.zoo:small_cnn"), DataSpec(f"{folder}/x.npz")
        >>> job = Job(model, data, (nescio.scores.get("entropy"),))
        >>> done = run_job(job, OutputSpec(f"{folder}/scores.csv"), EngineSpec())
        >>> done.words
        'Wrote 4 rows to .../scores.csv'
    """
    on_ray, listener = engine.name == "ray", listener or Listener()
    ending = output.check()
    ready = ray_stream.opened(job, listener.opened) if on_ray else job.open(listener.opened)
    if ready.guard is not None and job.guard is not None:
        check_level(job.guard.level, ready.guard.fitted.ranks)
    if ready.training is not None:
        _say_all(listener, problem_lines(ready.training.problems, len(ready.training)))
    if not output.is_folder and not output.fresh and earlier_settings(output.folder) is None:  # before rows are scored
        output.check_free()
    ready, size, begun = _paced(ready, output, on_ray, find_batch)
    facts = {"machine": None if on_ray else machine(ready), **_facts(ready), **(about or {})}
    kept = Parts(
        output.folder, len(ready.rows), size, identity(ready.job, ready), about=facts, ending=ending, fresh=output.fresh
    )
    usage = ray_stream.Usage() if on_ray else Usage()
    with kept as parts:
        if parts.missing:  # else it is the file of these very parts, which a run that was cut off could not remove
            output.check_free()
        _say_all(listener, _kept_lines(parts))
        rows, notes = _work(ready, parts, output, engine, usage, begun, listener, change)
        _say_all(listener, problem_lines(parts.problems, len(parts)))
        if not output.is_folder:
            parts.remove()
    there = output.is_folder and rows == parts.before > 0
    words = f"Wrote {count(rows, 'row')} to {output.path}"
    if there:
        words = f"{f'All {rows:,} rows were' if rows > 1 else 'The one row was'} in {output.path} already"
    return Finished(ready, words, notes, usage)


def problem_lines(problems: Sequence[Problem], total: int, most: int = 5) -> Iterator[str]:
    """Give the lines that say how many rows could not be used, and which are the first of them.

    Args:
        problems: What is wrong with each.
        total: How many rows there are in all.
        most: How many of them are named.

    Returns:
        The lines; none where every row could be used.

    Examples:
        >>> list(problem_lines([], 10))
        []
    """
    if not problems:
        return
    verb = "was" if len(problems) == 1 else "were"
    yield f"nescio: {len(problems):,} of {count(total, 'row')} could not be used and {verb} left out:"
    yield from (f"  {problem}" for problem in problems[:most])
    if len(problems) > most:
        yield f"  and {len(problems) - most} more"


def _work(
    ready: Ready,
    parts: Parts,
    output: OutputSpec,
    engine: EngineSpec,
    usage: Usage,
    begun: Beginning | None,
    told: Listener,
    change: Change,
) -> tuple[int, list[tuple[int, dict[str, Any]]]]:
    """Do what is missing, and join; whatever happens, what is done is kept and the run is logged."""
    began, end = datetime.now(UTC).isoformat(timespec="seconds"), "failed"
    try:
        if isinstance(usage, ray_stream.Usage):
            ray_stream.stream(
                ready, parts, workers=engine.workers, address=engine.address, usage=usage,
                tell=lambda words: told.say(f"nescio: {words}"),
            )  # fmt: skip
        else:
            stream(ready, parts, begun=begun, usage=usage)
        parts.flush()
        end = "done"
        rows, notes = parts.rows, parts.notes
        if not output.is_folder:
            clean(output.path)
            parts.join(output.path, change(parts))
        return rows, notes
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
            told.say(f"nescio: {parts}")
        raise
    finally:
        parts.log({"began": began, "end": end, "machine": parts.about["machine"], **usage.record()})


def _paced(ready: Ready, output: OutputSpec, on_ray: bool, find_batch: bool) -> tuple[Ready, int, Beginning | None]:
    """Find the size of a batch and of a part; the first rows come with it, where they were scored to find these.

    On Ray the process that keeps the results has no GPU, and fits nothing: there such rows are not timed.
    """
    begun, rows = None, output.part_rows
    earlier = None if output.fresh else earlier_settings(output.folder)
    if find_batch:
        size = None if earlier is None else pacing.noted_size(earlier.get("batch size"))
        if size is not None:
            ready = pacing.with_batch_size(ready, size)
        elif not on_ray or ray_stream.can_begin(ready):
            begun = pacing.begin(ready)
            ready = begun.ready
        else:
            ready = pacing.with_batch_size(ready, pacing.SIZES[-1])
    if rows is None and earlier is not None:
        rows = earlier["part_rows"]
    seconds = None if begun is None else begun.seconds
    return ready, part_rows(len(ready.rows), ready.job.batch, rows, seconds), begun


def _facts(ready: Ready) -> dict[str, str]:
    return {
        "model": ready.source.about,
        "data": ready.rows.about,
        "pre-processing": str(ready.rows.preprocess),
    }


def _kept_lines(parts: Parts) -> Iterator[str]:
    """Give the lines that say what an earlier run has left."""
    if parts.damaged:
        listed = ", ".join(parts.damaged[:3]) + (" …" if len(parts.damaged) > 3 else "")
        yield f"nescio: {listed} in {parts.folder} was lost or changed, and is made again"
    if parts.before and parts.missing:
        yield f"nescio: going on after {parts.before:,} of {count(len(parts), 'row')} in {parts.folder}"
        before, now = parts.earlier.get("machine"), parts.about["machine"]
        if now is not None and before != now:  # Ray tells when it knows
            yield f"nescio: warning: they are of {before}, not of {now}: last digits may differ"


def _say_all(told: Listener, lines: Iterator[str]) -> None:
    for line in lines:
        told.say(line)
