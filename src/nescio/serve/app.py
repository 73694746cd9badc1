"""The application: routes over one engine, one batcher and one set of metrics.

This module is loaded when a service is made (`nescio.serve.application`): its functions are typed with FastAPI's own.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from nescio import __version__
from nescio.inputs import Inputs
from nescio.report.html import facts
from nescio.serve import answers, drawing, schemas
from nescio.serve.batching import Batcher, Closed, Full
from nescio.serve.engine import MAPS, Engine
from nescio.serve.errors import KINDS, Problem, ending, of_input
from nescio.serve.guard import Guard
from nescio.serve.metrics import Drift, Metrics
from nescio.serve.page import page
from nescio.serve.reading import Reader
from nescio.serve.settings import Settings

ABOUT = "How sure a classifier is of each input, what kind of doubt it is, why, and what to do."
TYPES = "application/json, multipart/form-data with files, or a picture itself (image/png, image/jpeg …)"
_FILE = {"type": "string", "format": "binary", "description": "A picture"}
BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": {"$ref": "#/components/schemas/Body"}},
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {"file": {"type": "array", "items": _FILE, "minItems": 1}},
                "required": ["file"],
            }
        },
        "image/*": {"schema": _FILE},
    },
}
_Of = Literal["epistemic", "aleatoric", "total"]
_Show = Literal["overlay", "numbers", "both"]


def make(engine: Engine, settings: Settings, drift_path: str | Path | None = None) -> FastAPI:
    """The application. drift_path: where the drift monitor keeps its counts; None: they are forgotten at the end."""
    drift = Drift(engine.policy, drift_path)
    service = _Service(engine, settings, drift)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await run_in_threadpool(service.batcher.close, settings.timeout)

    app = FastAPI(
        title="nescio", version=__version__, description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    guard: list[Guard] = []

    def guarded(inner: Any) -> Guard:
        guard.append(Guard(inner, settings, service.metrics))
        return guard[0]

    app.add_middleware(guarded)

    async def refused(request: Request, error: Exception) -> Response:
        raise _problem(error) from None  # the guard answers it, as it does every other

    for kind in (RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)
    _routes(app, service, guard)
    _documents(app, engine, settings)
    return app


class _Service:
    """What the routes share."""

    def __init__(self, engine: Engine, settings: Settings, drift: Drift) -> None:
        self.engine, self.settings, self.drift = engine, settings, drift
        self.reader = Reader(engine.source, settings.max_pixels, settings.max_inputs)
        self.metrics = Metrics(drift, lambda: self.batcher.waiting if hasattr(self, "batcher") else 0)
        self.judges = () if engine.decider is None else (engine.decider,)

    def start(self) -> None:
        """Start the thread that owns the model."""
        s = self.settings
        self.batcher = Batcher(self._work, s.batch_size, s.batch_wait, s.max_waiting, self.metrics.batch)

    def _work(self, key: Any, rows: list[Inputs]) -> list[Any]:
        what, *settings = key
        if what == "assess":
            return self.engine.assess(rows, settings)
        return [self.engine.explain(row, *settings) for row in rows]

    async def rows(self, request: Request) -> list[Inputs]:
        """The inputs of a request."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        known = kind in ("application/json", "multipart/form-data", "application/octet-stream")
        if not known and not kind.startswith("image/"):
            raise Problem(415, f"expected the content type {TYPES}, got {kind[:80] or 'none'}; name it in Content-Type")
        body = await request.body()
        if kind == "application/json":
            return await run_in_threadpool(self._json, body)
        files = await _uploaded(request, self.settings) if kind == "multipart/form-data" else [body]
        return await run_in_threadpool(self.reader.files, files)

    def _json(self, body: bytes) -> list[Inputs]:
        try:
            items = schemas.Body.model_validate_json(body).inputs
        except ValidationError as error:
            raise of_input(_first(error.errors(include_url=False, include_context=False))) from None
        return self.reader.items(items)

    async def answer(self, request: Request, *key: Any) -> tuple[list[Inputs], list[Any]]:
        """The inputs of a request and what the thread makes of them, within the time that it may take."""
        late = Problem(
            408,
            f"expected the request within {self.settings.timeout:g} s, got a part; send it again",
            {"Connection": "close"},
        )
        try:
            async with asyncio.timeout(self.settings.timeout):
                rows = await self.rows(request)
                late = Problem(
                    504,
                    f"expected an answer within {self.settings.timeout:g} s, but the model was not done with "
                    f"{len(rows)} inputs; send fewer at once, try later, or allow more (--timeout)",
                )
                found = await asyncio.wrap_future(self.batcher.submit(key, rows))
        except TimeoutError:
            raise late from None
        except Full:
            raise Problem(
                503, "expected a free place, but too many inputs are waiting; try again later", {"Retry-After": "1"}
            ) from None
        except Closed:
            raise ending() from None
        self.metrics.inputs.labels(request.url.path).inc(len(rows))
        return rows, found

    async def decided(self, results: Any) -> None:
        """Count what the policy said, and let the monitor see it."""
        made = [one.decision for one in results if one.decision is not None]
        for one in made:
            self.metrics.decisions.labels(one.advice).inc()
        scores = [one.score for one in made if one.score is not None]
        if scores and self.drift.monitor is not None:
            await run_in_threadpool(self.drift.update, scores)


def _routes(app: FastAPI, service: _Service, guard: list[Guard]) -> None:
    engine = service.engine
    errors: dict[int | str, dict[str, Any]] = {
        code: {"model": schemas.Refused, "description": words}
        for code, (_, words) in KINDS.items()
        if code not in (404, 405)
    }
    gets: dict[int | str, dict[str, Any]] = {code: errors[code] for code in (401, 421, 500)}
    posts: dict[str, Any] = {"responses": errors, "openapi_extra": {"requestBody": BODY}}

    @app.post("/predict", summary="The answer to each input, and how doubtful it is", **posts)
    async def predict(
        request: Request,
        top: Annotated[int, Query(ge=1, le=1000, description="How many of the likeliest classes to name")] = 5,
    ) -> schemas.Predictions:
        _, found = await service.answer(request, "assess", *service.judges)
        results = answers.predicted(engine, found, top)
        await service.decided(results)
        note = answers.SINGLE if found[0].samples == 1 else None
        return schemas.Predictions(results=results, note=note)

    known = Literal[tuple(engine.methods)]  # type: ignore[valid-type]

    @app.post("/score", summary="How uncertain the model is of each input, by one or several methods", **posts)
    async def score(
        request: Request,
        method: Annotated[
            list[known] | None,  # type: ignore[valid-type]
            Query(description="Methods, each ?method=NAME; all that are served where none is named"),
        ] = None,
    ) -> schemas.Scores:
        wanted = tuple(dict.fromkeys(method or engine.methods))
        _, found = await service.answer(request, "assess", *dict.fromkeys((*wanted, *service.judges)))
        results = answers.scored(engine, found, wanted)
        await service.decided(results)
        return schemas.Scores(results=results)

    @app.post("/explain", summary="Which part of each input causes its doubt", **posts)
    async def explain(
        request: Request,
        of: Annotated[_Of | None, Query(description="The part of the doubt; epistemic, or total alone")] = None,
        method: Annotated[Literal[MAPS], Query(description="How it is found")] = "ua_backprop",  # type: ignore[valid-type]
        show: Annotated[_Show, Query(description="A picture, numbers, or both")] = "both",
    ) -> schemas.Explanations:
        rows, found = await service.answer(request, "explain", of, method)
        results = await run_in_threadpool(_explained, engine, rows, found, show)
        first = found[0][1]
        return schemas.Explanations(results=results, of=first.of, method=first.method, about=first.about)

    @app.get("/health", summary="Whether the service works, and what it serves", responses={**gets, 503: errors[503]})
    async def health(request: Request) -> schemas.Health:
        if not service.batcher.alive:
            raise ending()
        if not guard[0].authorized(dict(request.headers.raw)):
            return schemas.Health(status="ok", version=__version__)
        return schemas.Health(
            status="ok",
            version=__version__,
            model=engine.source.about,
            takes=service.reader.expected,
            preprocess=None if engine.source.preprocess is None else str(engine.source.preprocess),
            classes=None if engine.source.classes is None else list(engine.source.classes),
            methods=list(engine.methods),
            policy=None if engine.policy is None else str(engine.policy),
            drift=str(service.drift),
        )

    plain: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get("/metrics", summary="Counts and times for Prometheus", response_class=Response, responses=gets | plain)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=service.metrics.content_type)


def _documents(app: FastAPI, engine: Engine, settings: Settings) -> None:
    """The description for programs, with the body that routes read themselves, and the page for people."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = plain()
            body = schemas.Body.model_json_schema(ref_template="#/components/schemas/{model}")
            shapes = found["components"]["schemas"]
            shapes |= {**body.pop("$defs"), "Body": body}
            if settings.token is not None:
                found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                for path, operations in found["paths"].items():
                    for operation in operations.values():
                        operation["security"] = [] if path == "/health" else [{"token": []}]
        return app.openapi_schema or {}

    app.openapi = described  # type: ignore[method-assign]

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        served = {"model": engine.source.about, "methods": ", ".join(engine.methods)}
        served |= {} if engine.policy is None else {"policy": str(engine.policy)}
        told = "" if settings.token is not None else facts(served)
        base = f"{request.url.scheme}://{request.url.netloc}"
        return HTMLResponse(page(described(), base, told, engine.kind, settings.token is not None))


def _explained(engine: Engine, rows: list[Inputs], found: list[Any], show: str) -> list[schemas.Explained]:
    results = []
    for row, (known, one) in zip(rows, found, strict=True):
        names = drawing.places(engine.source, row)
        uncertainty, map_ = float(one.uncertainty[0]), one.maps[0]
        picture = drawing.overlay(map_, row, one.of, uncertainty, names) if show in ("overlay", "both") else None
        results.append(
            schemas.Explained(
                answer=answers.answer(engine, known),
                decision=answers.decision(engine, known),
                uncertainty=uncertainty,
                residual=float(one.residual[0]),
                shape=list(map_.shape),
                map=map_.tolist() if show in ("numbers", "both") else None,
                overlay=picture,
                places=names,
            )
        )
    return results


async def _uploaded(request: Request, settings: Settings) -> list[bytes]:
    """The files of a form, all in memory: nothing that was sent is written to the disk."""
    parser = MultiPartParser(
        request.headers, request.stream(), max_files=settings.max_inputs, max_fields=16, max_part_size=2**16
    )
    parser.spool_max_size = math.inf  # type: ignore[assignment]
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        many = "Too many files" in str(error)
        raise Problem(
            413 if many else 422,
            f"expected a form with at most {settings.max_inputs} files, got one that cannot be read ({error}); "
            "send it as curl -F file=@picture.png does",
        ) from None
    files = [await value.read() for _, value in form.multi_items() if not isinstance(value, str)]
    await form.close()
    if not files:
        raise of_input("expected at least one file in the form, got none; send it as curl -F file=@picture.png does")
    return files


def _problem(error: Exception) -> Problem:
    if isinstance(error, RequestValidationError):
        return of_input(_first(error.errors()))
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return Problem(404, "expected /predict, /score, /explain, /health, /metrics or /docs, got another path")
    if error.status_code == 405:
        return Problem(405, f"expected the method {headers.get('Allow')} here, got another; see /docs", headers)
    return Problem(error.status_code, str(error.detail), headers)


def _first(errors: Any) -> str:
    """What a validator found first, and how many things more."""
    first, more = errors[0], len(errors) - 1
    where = ".".join(str(part) for part in first["loc"]) or "the body"
    others = f" (and {more} more)" if more else ""
    return f"{where}: {first['msg']}{others}; /docs shows what is expected"
