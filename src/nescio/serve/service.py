"""What the routes share: from a request to its rows, to the model's thread and back, within the time that it may take.

**One request holds nobody up.** What is sent is read by threads, few at a time, for a large picture or a long list
takes many times its bytes while it is read. Work is given up when its sender has gone or its time is over.

This module is loaded when a service is made: its functions are typed with FastAPI's own.
"""

import asyncio
import math
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from nescio import inputs
from nescio.attribution.uncertainty import Of
from nescio.inputs import Inputs
from nescio.serve import schemas
from nescio.serve.batching import Batcher, Closed, Full
from nescio.serve.bodies import Share
from nescio.serve.engine import Assessed, Engine, Explained
from nescio.serve.errors import Problem, ending, of_input
from nescio.serve.gate import SHARE
from nescio.serve.metrics import Drift, Metrics
from nescio.serve.reading import Reader, check_json
from nescio.serve.settings import Settings
from nescio.serve.watch import Watch

TYPES = "application/json, multipart/form-data with files, or a picture itself (image/png, image/jpeg …)"
READERS = 2
"""Requests that are read at a time."""
T = TypeVar("T")
R = TypeVar("R")


class Task(Hashable, Protocol[R]):
    """Work on the inputs of requests, for the thread that owns the model; equal tasks are done together."""

    slow: ClassVar[bool]

    def __call__(self, engine: Engine, rows: list[Inputs]) -> list[R]:
        """Return one result for each row."""


@dataclass(frozen=True)
class Assess:
    """Find probabilities, doubt, the verdict, and the scores of these methods."""

    methods: tuple[str, ...] = ()
    slow: ClassVar[bool] = False

    def __call__(self, engine: Engine, rows: list[Inputs]) -> list[Assessed]:
        """Return what is known of each row."""
        return engine.assess(rows, self.methods)


@dataclass(frozen=True)
class Explain:
    """Make a map of the doubt; of None: epistemic, or total where that is all."""

    of: Of | None
    method: str
    slow: ClassVar[bool] = True

    def __call__(self, engine: Engine, rows: list[Inputs]) -> list[Explained]:
        """Return what is known of each row, with its map."""
        return [engine.explain(row, self.of, self.method) for row in rows]


class Service:
    """An engine with its thread, its metrics and its limits."""

    def __init__(self, engine: Engine, settings: Settings, drift: Drift, watch: Watch) -> None:
        self.engine, self.settings, self.drift, self.watch = engine, settings, drift, watch
        self.reader = Reader(engine.source, settings.max_pixels, settings.max_text)
        self.metrics = Metrics(drift, watch, lambda: self.batcher.waiting if hasattr(self, "batcher") else 0)
        self.judges = () if engine.decider is None else (engine.decider,)

    def start(self) -> None:
        """Start the thread that owns the model."""
        s = self.settings
        self.batcher = Batcher(self._work, s.batch_size, s.batch_wait, s.max_waiting, self.metrics.batch)
        self._reading, self._drawing = CapacityLimiter(READERS), CapacityLimiter(1)

    def _work(self, task: Task[R], rows: list[Inputs]) -> list[R]:
        return task(self.engine, rows)

    async def answer(self, request: Request, task: Task[R], then: Callable[[list[Inputs], list[R]], T]) -> T:
        """Answer a request.

        Args:
            request: What was sent.
            task: What the model's thread does with its inputs.
            then: From the inputs and what was found for each to the answer.

        Returns:
            What `then` gives.

        Raises:
            Problem: The request cannot be used, or there is no answer in time.
        """
        slow = task.slow
        seconds, most, flag = self.settings.timeout, self.settings.max_inputs, "--timeout"
        if slow:
            seconds, most, flag = self.settings.explain_timeout, self.settings.max_explained, "--explain-timeout"
        late = Problem(
            408, f"expected the request within {seconds:g} s, got a part; send it again", {"Connection": "close"}
        )
        try:
            async with asyncio.timeout(seconds):
                kind = _kind(request)
                body = await request.body()
                late = Problem(503, "expected to read this in time, but others were before it; try again later")
                rows = await self._rows(request, kind, body, most)
                late = Problem(
                    504,
                    f"expected an answer within {seconds:g} s, but the model was not done with {len(rows)} inputs; "
                    f"send fewer at once, try later, or allow more ({flag})",
                )
                results: list[R] = await _while_there(request, self.batcher.submit(task, rows, slow))
                made = await run_sync(then, rows, results, limiter=self._drawing if slow else None)
        except TimeoutError:
            raise late from None
        except Full:
            raise Problem(
                503, "expected a free place, but too many inputs are waiting; try again later", {"Retry-After": "1"}
            ) from None
        except Closed:
            raise ending() from None
        self.metrics.inputs.labels(request.url.path).inc(len(rows))
        return made

    async def decided(self, results: Sequence[schemas.AnsweredInput]) -> None:
        """Count what the policy said, and let the monitor see it."""
        made = [one.decision for one in results if one.decision is not None]
        for one in made:
            self.metrics.decisions.labels(one.advice).inc()
        scores = [one.score for one in made if one.score is not None]
        if scores and self.drift.monitor is not None:
            await run_in_threadpool(self.drift.update, scores)

    async def judged(self, verdicts: Sequence[schemas.GuardVerdict]) -> None:
        """Count what the guard said, and let the watch see it."""
        if verdicts:
            p, states = [one.p_value for one in verdicts], [one.state for one in verdicts]
            await run_in_threadpool(self.watch.update, p, states)

    async def _rows(self, request: Request, kind: str, body: bytes, most: int) -> list[Inputs]:
        """The inputs of a request, at most so many."""
        share: Share = request.scope[SHARE]
        if kind == "application/json":
            rows = await run_sync(self._json, body, most, limiter=self._reading)
        else:
            share.take(len(body))  # a form's files are copies
            files = await _uploaded(request, most) if kind == "multipart/form-data" else [body]
            rows = await run_sync(self.reader.files, files, most, limiter=self._reading)
        share.take(sum(tensor.nbytes for row in rows for tensor in inputs.tensors(row)))
        return rows

    def _json(self, body: bytes, most: int) -> list[Inputs]:
        check_json(body)
        try:
            items = schemas.Body.model_validate_json(body).inputs
        except ValidationError as error:
            raise of_input(first(error.errors(include_url=False, include_context=False))) from None
        return self.reader.items(items, most)


async def sent(answer: BaseModel) -> Response:
    """Write an answer by a thread, since it may be long."""
    return Response(await run_in_threadpool(answer.model_dump_json), media_type="application/json")


def first(errors: Any) -> str:
    """Return what a validator found first, and how many things more."""
    one, more = errors[0], len(errors) - 1
    where = ".".join(str(part) for part in one["loc"]) or "the body"
    others = f" (and {more} more)" if more else ""
    return f"{where}: {one['msg']}{others}; /docs shows what is expected"


def _kind(request: Request) -> str:
    """The content type, or a Problem before anything is read."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    known = kind in ("application/json", "multipart/form-data", "application/octet-stream")
    if not known and not kind.startswith("image/"):
        raise Problem(415, f"expected the content type {TYPES}, got {kind[:80] or 'none'}; name it in Content-Type")
    return kind


async def _while_there(request: Request, work: Future[T]) -> T:
    """The result, unless the sender goes; then, and when the time is over, the work is given up."""
    result: asyncio.Future[Any] = asyncio.wrap_future(work)
    gone: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({result, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ClientDisconnect
        value: T = result.result()
        return value
    finally:
        gone.cancel()
        work.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _uploaded(request: Request, most: int) -> list[bytes]:
    """The files of a form, all in memory: nothing that was sent is written to the disk."""
    parser = MultiPartParser(request.headers, request.stream(), max_files=most, max_fields=16, max_part_size=2**16)
    parser.spool_max_size = math.inf  # type: ignore[assignment]
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        many = "Too many files" in str(error)
        raise Problem(
            413 if many else 422,
            f"expected a form with at most {most} files, got one that cannot be read ({error}); "
            "send it as curl -F file=@picture.png does",
        ) from None
    files = [await value.read() for _, value in form.multi_items() if not isinstance(value, str)]
    await form.close()
    if not files:
        raise of_input("expected at least one file in the form, got none; send it as curl -F file=@picture.png does")
    return files
