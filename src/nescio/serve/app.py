"""The application: routes over one engine, one batcher and one set of metrics.

This module is loaded when a service is made (`nescio.serve.application`): its functions are typed with FastAPI's own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from nescio import __version__
from nescio.attribution.uncertainty import Of
from nescio.guard.promise import LEVEL, check_level
from nescio.inputs import Inputs
from nescio.serve import answers, drawing, schemas
from nescio.serve.bodies import Application
from nescio.serve.engine import MAPS, Assessed, Engine, Explained
from nescio.serve.errors import KINDS, Problem, ending, of_input
from nescio.serve.gate import Gate
from nescio.serve.metrics import Drift
from nescio.serve.page import page
from nescio.serve.service import Assess, Explain, Service, first, sent
from nescio.serve.settings import Settings
from nescio.serve.watch import Watch
from nescio.types import InputError

ABOUT = "How sure a classifier is of each input, what kind of doubt it is, why, and what to do."
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
LAST = 1.0
"""Seconds that an ended service waits for the model to stop; nobody waits for its answers by then."""
Route = TypeVar("Route", bound=Callable[..., Awaitable[Response]])
_Show = Literal["overlay", "numbers", "both"]


def make(
    engine: Engine,
    settings: Settings,
    drift_path: str | Path | None = None,
    watch_path: str | Path | None = None,
) -> FastAPI:
    """Return the application.

    Args:
        engine: The model, with what it is asked by.
        settings: What the service allows.
        drift_path: Where the monitor of the policy keeps what it has seen; None: it is forgotten at the end.
        watch_path: Where the watch of the guard keeps what it has seen; None: it is forgotten at the end.
    """
    service = Service(engine, settings, Drift(engine.policy, drift_path), Watch(engine.guard, watch_path))
    gate: list[Gate] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        app.state.gate, app.state.batcher = gate[0], service.batcher
        yield
        await run_in_threadpool(service.batcher.close, LAST)

    app = FastAPI(
        title="nescio", version=__version__, description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None
    )

    def gated(inner: Application) -> Gate:
        gate.append(Gate(inner, settings, service.metrics))
        return gate[0]

    app.add_middleware(gated)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.origins, allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )  # fmt: skip

    async def refused(request: Request, error: Exception) -> Response:
        raise _problem(error) from None  # the gate answers it, as it does every other

    for kind in (RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)
    _routes(app, service, gate)
    _documents(app, engine, settings)
    return app


def _routes(app: FastAPI, service: Service, gate: list[Gate]) -> None:
    engine = service.engine
    errors: dict[int | str, dict[str, Any]] = {
        code: {"model": schemas.Refused, "description": words}
        for code, (_, words) in KINDS.items()
        if code not in (404, 405)
    }
    gets: dict[int | str, dict[str, Any]] = {code: errors[code] for code in (401, 403, 421, 500)}

    def post(path: str, summary: str, answer: type[BaseModel]) -> Callable[[Route], Route]:
        body = {"requestBody": BODY}
        return app.post(path, summary=summary, response_model=answer, responses=errors, openapi_extra=body)

    @post("/check", "Whether each input is of the kind that the model is meant for", schemas.Verdicts)
    async def check(
        request: Request,
        level: Annotated[
            float | None,
            Query(gt=0, lt=1, description=f"The share of known inputs that may be called foreign; {LEVEL} where none"),
        ] = None,
    ) -> Response:
        if engine.guard is None or engine.level is None:
            raise Problem(409, answers.UNGUARDED)
        share, ranks = engine.level if level is None else level, engine.guard.fitted.ranks
        try:
            check_level(share, ranks)
        except InputError as error:
            raise of_input(f"query.level: {error}") from None

        def made(rows: list[Inputs], assessed: list[Assessed]) -> schemas.Verdicts:
            return schemas.Verdicts(results=answers.checked(engine, assessed, share), reference=ranks)

        verdicts = await service.answer(request, Assess(), made)
        await service.judged(verdicts.results)
        return await sent(verdicts)

    @post("/predict", "The answer to each input, and how doubtful it is", schemas.Predictions)
    async def predict(
        request: Request,
        top: Annotated[int, Query(ge=1, le=1000, description="How many of the likeliest classes to name")] = 5,
    ) -> Response:
        def made(rows: list[Inputs], assessed: list[Assessed]) -> schemas.Predictions:
            note = answers.SINGLE if assessed[0].samples == 1 else None
            return schemas.Predictions(results=answers.predicted(engine, assessed, top), note=note)

        predictions = await service.answer(request, Assess(service.judges), made)
        await service.decided(predictions.results)
        await service.judged([one.verdict for one in predictions.results if one.verdict is not None])
        return await sent(predictions)

    known = Literal[tuple(engine.methods)]  # type: ignore[valid-type]

    @post("/score", "How uncertain the model is of each input, by one or several methods", schemas.Scores)
    async def score(
        request: Request,
        method: Annotated[
            list[known] | None,  # type: ignore[valid-type]
            Query(description="Methods, each ?method=NAME; all that are served where none is named"),
        ] = None,
    ) -> Response:
        wanted = tuple(dict.fromkeys(method or engine.methods))

        def made(rows: list[Inputs], assessed: list[Assessed]) -> schemas.Scores:
            return schemas.Scores(results=answers.scored(engine, assessed, wanted))

        scores = await service.answer(request, Assess(tuple(dict.fromkeys((*wanted, *service.judges)))), made)
        await service.decided(scores.results)
        return await sent(scores)

    @post("/explain", "Which part of each input causes its doubt", schemas.Explanations)
    async def explain(
        request: Request,
        of: Annotated[Of | None, Query(description="The part of the doubt; epistemic, or total alone")] = None,
        method: Annotated[Literal[MAPS], Query(description="How it is found")] = "ua_backprop",  # type: ignore[valid-type]
        show: Annotated[_Show, Query(description="A picture, numbers, or both")] = "both",
    ) -> Response:
        def made(rows: list[Inputs], explained: list[Explained]) -> schemas.Explanations:
            results, one = _explained(engine, rows, explained, show), explained[0].attribution
            return schemas.Explanations(results=results, of=one.of, method=one.method, about=one.about)

        return await sent(await service.answer(request, Explain(of, method), made))

    @app.get("/health", summary="Whether the service works, and what it serves", responses={**gets, 503: errors[503]})
    async def health(request: Request) -> schemas.Health:
        if not service.batcher.alive:
            raise ending()
        if not gate[0].authorized(dict(request.headers.raw)):
            return schemas.Health(status="ok", version=__version__)
        return schemas.Health(
            status="ok",
            version=__version__,
            model=engine.about,
            takes=service.reader.expected,
            preprocess=None if engine.source.preprocess is None else str(engine.source.preprocess),
            classes=None if engine.source.classes is None else list(engine.source.classes),
            methods=list(engine.methods),
            policy=None if engine.policy is None else str(engine.policy),
            drift=str(service.drift),
            guard=engine.about_guard,
            stream=str(service.watch),
        )

    plain: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get("/metrics", summary="Counts and times for Prometheus", response_class=Response, responses=gets | plain)
    async def metrics() -> Response:
        text = await run_in_threadpool(service.metrics.text)  # a test of the latest inputs may take a moment
        return Response(text, media_type=service.metrics.content_type)


def _documents(app: FastAPI, engine: Engine, settings: Settings) -> None:
    """The description for programs, with the body that routes read themselves, and the page for people."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = plain()
            body = schemas.Body.model_json_schema(ref_template="#/components/schemas/{model}")
            shapes = schema["components"]["schemas"]
            shapes |= {**body.pop("$defs"), "Body": body}
            if settings.token is not None:
                schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                for path, operations in schema["paths"].items():
                    for operation in operations.values():
                        operation["security"] = [] if path == "/health" else [{"token": []}]
        return app.openapi_schema or {}

    app.openapi = described  # type: ignore[method-assign]

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        served = {"model": engine.about, "methods": ", ".join(engine.methods)}
        served |= {} if engine.policy is None else {"policy": str(engine.policy)}
        served |= {} if engine.about_guard is None else {"guard": engine.about_guard}
        secret = settings.token is not None
        base = f"{request.url.scheme}://{request.url.netloc}"
        return HTMLResponse(page(described(), base, None if secret else served, engine.kind, secret))


def _explained(engine: Engine, rows: list[Inputs], explained: list[Explained], show: _Show) -> list[schemas.Explained]:
    results = []
    for row, (known, one) in zip(rows, explained, strict=True):
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


def _problem(error: Exception) -> Problem:
    if isinstance(error, RequestValidationError):
        return of_input(first(error.errors()))
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return Problem(404, "expected /check, /predict, /score, /explain, /health, /metrics or /docs, got another path")
    if error.status_code == 405:
        return Problem(405, f"expected the method {headers.get('Allow')} here, got another; see /docs", headers)
    return Problem(error.status_code, str(error.detail), headers)
