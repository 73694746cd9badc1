"""The routes: what can be asked of a service, each from the request to its answer.

This module is loaded when a service is answer_of: its functions are typed with FastAPI's own.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from nescio import __version__
from nescio.attribution.uncertainty import Of
from nescio.guard.promise import LEVEL, check_level
from nescio.inputs import Inputs
from nescio.serve import answers, drawing, schemas
from nescio.serve.engine import MAPS, Assessed, Engine, Explained
from nescio.serve.errors import KINDS, Problem, ending, of_input
from nescio.serve.service import Assess, Explain, Service, sent
from nescio.types import InputError

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
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Refused, "description": words}
    for code, (_, words) in KINDS.items()
    if code not in (404, 405)
}
"""What a POST may be refused with."""
GETS: dict[int | str, dict[str, Any]] = {code: ERRORS[code] for code in (401, 403, 421, 500)}
"""What a GET may be refused with."""
Route = TypeVar("Route", bound=Callable[..., Awaitable[Response]])
_Show = Literal["overlay", "numbers", "both"]


def add_routes(app: FastAPI, service: Service) -> None:
    """Add all routes to the application, in the order in which they are described."""
    for add in (_check, _predict, _score, _explain, _health, _metrics):
        add(app, service)


def _post(app: FastAPI, path: str, summary: str, answer: type[BaseModel]) -> Callable[[Route], Route]:
    """A route that takes inputs."""
    body = {"requestBody": BODY}
    return app.post(path, summary=summary, response_model=answer, responses=ERRORS, openapi_extra=body)


def _check(app: FastAPI, service: Service) -> None:
    engine = service.engine

    @_post(app, "/check", "Whether each input is of the kind that the model is meant for", schemas.Verdicts)
    async def check(
        request: Request,
        level: Annotated[
            float | None,
            Query(gt=0, lt=1, description=f"The share of known inputs that may be called foreign; {LEVEL} where none"),
        ] = None,
        maps: Annotated[bool, Query(description="How foreign each region is, where the model answers at each")] = False,
    ) -> Response:
        if engine.guard is None or engine.level is None:
            raise Problem(409, answers.UNGUARDED)
        share, ranks = engine.level if level is None else level, engine.guard.fitted.ranks
        try:
            check_level(share, ranks)
        except InputError as error:
            raise of_input(f"query.level: {error}") from None

        def answer_of(rows: list[Inputs], assessed: list[Assessed]) -> schemas.Verdicts:
            return schemas.Verdicts(results=answers.verdicts(engine, assessed, share, maps), reference=ranks)

        verdicts = await service.answer(request, Assess(), answer_of)
        await service.judged(verdicts.results)
        return await sent(verdicts)


def _predict(app: FastAPI, service: Service) -> None:
    engine = service.engine

    @_post(app, "/predict", "The answer to each input, and how doubtful it is", schemas.Predictions)
    async def predict(
        request: Request,
        top: Annotated[int, Query(ge=1, le=1000, description="How many of the likeliest classes to name")] = 5,
    ) -> Response:
        def answer_of(rows: list[Inputs], assessed: list[Assessed]) -> schemas.Predictions:
            note = answers.SINGLE if assessed[0].samples == 1 else None
            return schemas.Predictions(results=answers.predicted(engine, assessed, top), note=note)

        predictions = await service.answer(request, Assess(service.judges), answer_of)
        await service.decided(predictions.results)
        await service.judged([one.verdict for one in predictions.results if one.verdict is not None])
        return await sent(predictions)


def _score(app: FastAPI, service: Service) -> None:
    engine = service.engine
    known = Literal[tuple(engine.methods)]  # type: ignore[valid-type]

    @_post(app, "/score", "How uncertain the model is of each input, by one or several methods", schemas.Scores)
    async def score(
        request: Request,
        method: Annotated[
            list[known] | None,  # type: ignore[valid-type]
            Query(description="Methods, each ?method=NAME; all that are served where none is named"),
        ] = None,
    ) -> Response:
        wanted = tuple(dict.fromkeys(method or engine.methods))

        def answer_of(rows: list[Inputs], assessed: list[Assessed]) -> schemas.Scores:
            return schemas.Scores(results=answers.scored(engine, assessed, wanted))

        scores = await service.answer(request, Assess(tuple(dict.fromkeys((*wanted, *service.judges)))), answer_of)
        await service.decided(scores.results)
        return await sent(scores)


def _explain(app: FastAPI, service: Service) -> None:
    engine = service.engine

    @_post(app, "/explain", "Which part of each input causes its doubt", schemas.Explanations)
    async def explain(
        request: Request,
        of: Annotated[Of | None, Query(description="The part of the doubt; epistemic, or total alone")] = None,
        method: Annotated[Literal[MAPS], Query(description="How it is found")] = "ua_backprop",  # type: ignore[valid-type]
        show: Annotated[_Show, Query(description="A picture, numbers, or both")] = "both",
    ) -> Response:
        def answer_of(rows: list[Inputs], explained: list[Explained]) -> schemas.Explanations:
            results, one = _explained(engine, rows, explained, show), explained[0].attribution
            return schemas.Explanations(results=results, of=one.of, method=one.method, about=one.about)

        return await sent(await service.answer(request, Explain(of, method), answer_of))


def _explained(engine: Engine, rows: list[Inputs], explained: list[Explained], show: _Show) -> list[schemas.Explained]:
    results = []
    for row, (known, one) in zip(rows, explained, strict=True):
        names = drawing.token_names(engine.source, row)
        uncertainty, map_ = float(one.uncertainty[0]), one.maps[0]
        picture = drawing.overlay(map_, row, one.of, uncertainty, names) if show in ("overlay", "both") else None
        results.append(
            schemas.Explained(
                answer=answers.answer(engine, known),
                decision=answers.decision(engine, known),
                uncertainty=uncertainty,
                residual=None if one.residual.isnan()[0] else float(one.residual[0]),
                shape=list(map_.shape),
                map=map_.tolist() if show in ("numbers", "both") else None,
                overlay=picture,
                places=names,
            )
        )
    return results


def _health(app: FastAPI, service: Service) -> None:
    engine = service.engine

    @app.get("/health", summary="Whether the service works, and what it serves", responses={**GETS, 503: ERRORS[503]})
    async def health(request: Request) -> schemas.Health:
        if not service.batcher.alive:
            raise ending()
        if not request.app.state.gate.authorized(dict(request.headers.raw)):
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


def _metrics(app: FastAPI, service: Service) -> None:
    plain: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get("/metrics", summary="Counts and times for Prometheus", response_class=Response, responses=GETS | plain)
    async def metrics() -> Response:
        text = await run_in_threadpool(service.metrics.text)  # a test of the latest inputs may take a moment
        return Response(text, media_type=service.metrics.content_type)
