"""The outermost layer: who may ask, how much may be sent, what was counted; nothing unforeseen gets past it.

Errors are logged by their type and place alone, for their text may hold parts of an input.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import Any

from nescio._common.lazy_imports import need
from nescio.serve import callers
from nescio.serve.bodies import Application, Body, Budget, Message, Receive, Send, Share, announced
from nescio.serve.errors import Problem, ending, of_failure
from nescio.serve.metrics import Metrics
from nescio.serve.settings import Settings

OPEN = ("/health", "/docs", "/openapi.json")
"""What needs no token."""
ENDPOINTS = ("/check", "/predict", "/score", "/explain", "/metrics", *OPEN)
SHARE = "nescio.share"
"""Where a request's scope has its share of the memory."""

log = logging.getLogger("nescio.serve")


class Gate:
    """An ASGI application around another."""

    def __init__(self, app: Application, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.budget = Budget(settings.max_memory)
        self.broken_off = 0
        """Requests that had begun and were not answered when the service ended."""
        self._gone: Any = need("starlette.requests", "serve").ClientDisconnect
        self._response: Any = need("starlette.responses", "serve").JSONResponse

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request, or the application's lifespan."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-content-type-options", b"nosniff")]
            await send(message)

        share = scope[SHARE] = Share(self.budget)
        body = Body(receive, self.settings.max_body, share)
        try:
            self._check(scope)
            await self.app(scope, body, noted)
        except self._gone:
            status = status or 499  # nobody is there to be answered
        except asyncio.CancelledError:  # the ending server has waited for this as long as it may
            self.broken_off += 1
            self.metrics.errors.labels(ending().kind).inc()
            if status == 0:
                await self._refuse(ending(), scope, body, noted)
        except Exception as error:
            problem = of_failure(error)
            if problem.status == 500:
                log.error("unforeseen %s in %s", type(error).__name__, _place(error))
            self.metrics.errors.labels(problem.kind).inc()
            if status == 0:
                await body.drain(self.settings.timeout)
                await self._refuse(problem, scope, body, noted)
        finally:
            share.give_back()
            path = scope["path"]
            self.metrics.answered(path if path in ENDPOINTS else "other", status, time.perf_counter() - start)

    def authorized(self, headers: dict[bytes, bytes]) -> bool:
        """Whether the token is right, or none is needed."""
        token = self.settings.token
        kind, _, sent = headers.get(b"authorization", b"").strip().partition(b" ")
        if token is None:
            return True
        return secrets.compare_digest(sent.strip(), token.encode()) and kind.lower() == b"bearer"

    async def _refuse(self, problem: Problem, scope: Message, receive: Receive, send: Send) -> None:
        response = self._response(problem.body(), problem.status, headers=problem.headers)
        await response(scope, receive, send)

    def _check(self, scope: Message) -> None:
        headers = dict(scope["headers"])
        callers.check(scope["headers"], self.settings)
        if scope["path"] not in OPEN and not self.authorized(headers):
            raise Problem(
                401,
                "expected the header 'Authorization: Bearer TOKEN' with the token of this service, got "
                + ("another" if b"authorization" in headers else "none")
                + "; ask whoever runs it",
                {"WWW-Authenticate": "Bearer"},
            )
        announced(headers, self.settings.max_body)


def _place(error: BaseException) -> str:
    """File and line where an error was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return "?" if last is None else f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
