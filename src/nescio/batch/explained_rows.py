"""The rows of a data spec, explained one after another by `MapFiles`: the most doubtful first, where there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from nescio import progress
from nescio.attribution.base import MapMethod
from nescio.attribution.refusing_positions import refusing_positions
from nescio.attribution.sampled_members import distribution
from nescio.batch.interrupted import Interrupted
from nescio.batch.map_files import MapFiles, Names
from nescio.data.prefetch import read_ahead
from nescio.data.sources import Rows
from nescio.data.sources.data_opening import Plain
from nescio.data.sources.decode import ENDINGS
from nescio.data.sources.picture_files import PictureFiles
from nescio.data.sources.table_rows import TableRows
from nescio.models import ModelOrPosterior
from nescio.models import sources as models
from nescio.scores.decomposition import decompose
from nescio.specs import DataSpec, Pairs, open_rows
from nescio.types import InputError


def maps_of(
    model: ModelOrPosterior, training: Pairs | None, method: MapMethod, folder: Path, **settings: Any
) -> tuple[MapFiles, str]:
    """Return what explains a model by the distribution around it, and what that distribution is, in words.

    Args:
        model: A network or a posterior.
        training: Labelled batches, for a Laplace posterior of a network; None inserts dropout.
        method: What `explanation` gives.
        folder: Where the files go.
        settings: Further arguments of `MapFiles`.

    Returns:
        What writes the maps, and the words.

    Examples:
        >>> files, words = maps_of(nescio.zoo.small_cnn(), None, nescio.attribution.METHODS["gradient"](), Path("maps"))
        >>> words
        'inserted dropout (rate 0.4) around the single network Sequential'
    """
    posterior, words = distribution(model, training, None)
    return MapFiles(posterior, method, folder, **settings), words


def explain_rows(rows: Rows, files: MapFiles, batch_size: int, top: int | None = None) -> list[int]:
    """Explain the rows that can be used, and write the table, also where the work is cut off.

    Args:
        rows: The inputs.
        files: What explains them and writes their maps.
        batch_size: How many are read at a time, at most.
        top: Of more rows than this only so many are explained: the most doubtful, which comes first. None: all.

    Returns:
        The places of these rows.

    Raises:
        Interrupted: Ctrl-C came; the files of what is done are there.

    Examples:
        >>> import tempfile
        >>> from nescio.batch.example_job import example_job
        >>> ready = example_job(rows=2).open()
        >>> gradient = nescio.attribution.METHODS["gradient"]()
        >>> files, _ = maps_of(ready.source.model, None, gradient, Path(tempfile.mkdtemp()))
        >>> explain_rows(ready.rows, files, batch_size=2)
        [0, 1]
    """
    places = list(range(len(rows)))
    try:
        if top is not None and len(rows) > top:
            places = most_doubtful(rows, files, batch_size)[:top]
        with progress.bar(len(places), description="explaining") as shown:
            for some in _by_time(places, batch_size):
                batch = rows.assemble(some, map(rows.attempt, some))
                if batch is None:
                    shown.update(len(some))
                    continue
                with refusing_positions(files.posterior, batch.inputs):
                    for _ in files.explain(batch.names, batch.inputs):
                        shown.update(1)
    except KeyboardInterrupt:
        raise Interrupted(f"{len(files.table)} of {len(places)} inputs are done, in {files.folder}") from None
    finally:
        files.write_table()
    if not files.table:
        raise InputError(f"none of the {len(rows)} rows can be used; the first: {rows.problems[0]}")
    return places


def most_doubtful(rows: Rows, files: MapFiles, batch_size: int) -> list[int]:
    """Return the places of all rows that can be used, the most doubtful first.

    Args:
        rows: The inputs.
        files: What explains them; inputs are ranked by its `rank`.
        batch_size: How many are read at a time, at most.

    Returns:
        The places.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> ready = example_job(rows=3).open()
        >>> files, _ = maps_of(ready.source.model, None, nescio.attribution.METHODS["gradient"](), Path("maps"))
        >>> sorted(most_doubtful(ready.rows, files, batch_size=2))
        [0, 1, 2]
    """
    ranked: list[tuple[float, int]] = []
    ranges = progress.growing(len(rows), batch_size)
    with (
        progress.bar(len(rows), description="looking for the most doubtful") as shown,
        closing(read_ahead(rows, ranges)) as reads,
    ):
        for read in reads:
            if read.batch is not None:
                with refusing_positions(files.posterior, read.batch.inputs):
                    doubt = getattr(decompose(files.posterior.predict(read.batch.inputs, progress=False)), files.rank)
                ranked += zip((-doubt).tolist(), read.batch.indices.tolist(), strict=True)
            shown.update(len(read.places))
    return [place for _, place in sorted(ranked)]


def _by_time(places: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Give the places in pieces, the first of one; larger ones as long as a piece takes less than a second."""
    start, size = 0, 1
    while start < len(places):
        since = progress.clock()
        yield places[start : start + size]
        start += size
        size = min(most, 2 * size) if progress.clock() - since < 1.0 else size


def open_inputs(data: DataSpec, source: models.Source) -> Rows:
    """Open the rows of a data spec, which may be a single picture too.

    Args:
        data: The data.
        source: The model that they are for.

    Returns:
        The rows.

    Raises:
        InputError: If there are none, or a picture is given to a model of something else.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> job = example_job()
        >>> len(open_inputs(job.data, job.open().source))
        8
    """
    place = Path(data.path)
    if not place.is_file() or place.suffix.lower() not in ENDINGS:
        rows = open_rows(data, source)
        if not len(rows):
            raise InputError(f"--data: expected at least one input, but {data.path} has none")
        return rows
    preprocess = source.preprocess or Plain("pictures")
    if preprocess.kind != "pictures":
        raise InputError(f"expected {preprocess.kind}, as the model takes, but {data.path} is a picture")
    return Rows(PictureFiles(place.parent, [place.name], None, f"the picture {place}"), preprocess, on_error="stop")


def known_names(rows: Rows) -> Names:
    """Return what the data or the model call features or tokens.

    Args:
        rows: The inputs.

    Returns:
        The names of features; a function from the index of a token to its word; or None.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> known_names(example_job().open().rows) is None
        True
    """
    if rows.preprocess.kind == "texts":
        result: Names = rows.preprocess.tokenizer.convert_ids_to_tokens  # type: ignore[attr-defined]
        return result
    columns = rows.store._x if isinstance(rows.store, TableRows) else []
    return columns if len(columns) > 1 else None
