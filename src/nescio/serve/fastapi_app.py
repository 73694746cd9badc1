"""The application: the routes over one engine, one batcher and one set of metrics, and their description.

This module is loaded when a service is made (`nescio.serve.application`): its functions are typed with FastAPI's own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from nescio import __version__
from nescio.serve import schemas
from nescio.serve.bodies import Application
from nescio.serve.engine import Engine
from nescio.serve.errors import Problem, of_input
from nescio.serve.gate import Gate
from nescio.serve.interface_page import page
from nescio.serve.metrics import Drift
from nescio.serve.routes import add_routes
from nescio.serve.service import Service, first
from nescio.serve.settings import Settings
from nescio.serve.watch import Watch

ABOUT = "How sure a classifier is of each input, what kind of doubt it is, why, and what to do."
LAST = 1.0
"""Seconds that an ended service waits for the model to stop; nobody waits for its answers by then."""


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
    add_routes(app, service)
    _documents(app, engine, settings)
    return app


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
