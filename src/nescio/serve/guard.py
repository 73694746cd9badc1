"""The outermost layer: who may ask, how much may be sent, what was counted; nothing unforeseen gets past it.

Whoever sends too much is read to the end, up to a point, and nothing of it is kept: an answer to a sender who is still
sending would be lost. Errors are logged by their type and place alone, for their text may hold parts of an input.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from nescio.serve.errors import Problem, of_failure
from nescio.serve.metrics import Metrics
from nescio.serve.settings import Settings
from nescio.types import need

OPEN = ("/health", "/docs", "/openapi.json")
"""What needs no token."""
ENDPOINTS = ("/predict", "/score", "/explain", "/metrics", *OPEN)
DRAINED = 4
"""So many times the allowed size is read before the connection is cut."""

log = logging.getLogger("nescio.serve")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: Any, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
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
            await send(message)

        body = _Body(receive, self.settings.max_body)
        try:
            self._check(scope)
            await self.app(scope, body, noted)
        except self._gone:
            status = status or 499  # nobody is there to be answered
        except Exception as error:
            problem = of_failure(error)
            if problem.status == 500:
                log.error("unforeseen %s in %s", type(error).__name__, _place(error))
            self.metrics.errors.labels(problem.kind).inc()
            if status == 0:
                await body.drain(self.settings.timeout)
                response = self._response(problem.body(), problem.status, headers=problem.headers)
                await response(scope, body, noted)
        finally:
            path = scope["path"]
            self.metrics.answered(path if path in ENDPOINTS else "other", status, time.perf_counter() - start)

    def authorized(self, headers: dict[bytes, bytes]) -> bool:
        """Whether the token is right, or none is needed."""
        token = self.settings.token
        kind, _, given = headers.get(b"authorization", b"").strip().partition(b" ")
        if token is None:
            return True
        return secrets.compare_digest(given.strip(), token.encode()) and kind.lower() == b"bearer"

    def _check(self, scope: Message) -> None:
        headers = dict(scope["headers"])
        if self.settings.token is None and not self.settings.addressed(headers.get(b"host", b"")):
            raise Problem(
                421,
                "expected this machine as host (127.0.0.1 or localhost), got another name; use that address, or give "
                "the service a token (--token)",
            )
        if scope["path"] not in OPEN and not self.authorized(headers):
            raise Problem(
                401,
                "expected the header 'Authorization: Bearer TOKEN' with the token of this service, got "
                + ("another" if b"authorization" in headers else "none")
                + "; ask whoever runs it",
                {"WWW-Authenticate": "Bearer"},
            )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.settings.max_body:
            raise _too_large(self.settings.max_body, str(int(length)))


class _Body:
    """What a sender sends, counted."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._seen, self._whole = receive, most, 0, False

    async def __call__(self) -> Message:
        """The next part, or a Problem once there is too much."""
        message = await self._next()
        if self._seen > self._most:
            raise _too_large(self._most, "more")
        return message

    async def drain(self, seconds: float) -> None:
        """Read what is still to come, and forget it."""
        until = time.monotonic() + seconds
        with suppress(TimeoutError):
            while not self._whole and self._seen <= DRAINED * self._most:
                await asyncio.wait_for(self._next(), until - time.monotonic())

    async def _next(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        self._whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message


def _too_large(most: int, came: str) -> Problem:
    return Problem(413, f"expected at most {most} bytes, got {came}; send less at once", {"Connection": "close"})


def _place(error: BaseException) -> str:
    """File and line where an error was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return "?" if last is None else f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
