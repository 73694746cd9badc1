"""What is sent, counted: bytes of one request, and bytes that all requests hold together.

Whoever sends too much is read to the end, up to a point, and nothing of it is kept: an answer to a sender who is still
sending would be lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from nescio.serve.errors import Problem

DRAINED = 4
"""So many times the allowed size is read before the connection is cut."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
"""An ASGI application."""


class Budget:
    """Bytes that requests may hold together; used from one event loop alone."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0


class Share:
    """What one request holds of a budget, until it is given back."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self._held = budget, 0

    def take(self, count: int) -> None:
        """Hold so many bytes more, or a Problem where others hold too much."""
        if self._budget.used + count > self._budget.most:
            raise Problem(
                503,
                f"expected at most {self._budget.most} bytes in all requests together, got more; try again later",
                {"Retry-After": "1"},
            )
        self._budget.used += count
        self._held += count

    def give_back(self) -> None:
        """All of it."""
        self._budget.used -= self._held
        self._held = 0


class Body:
    """What a sender sends, counted; stands where ASGI's receive does."""

    def __init__(self, receive: Receive, most: int, share: Share) -> None:
        self._receive, self._most, self._share, self._seen, self._whole = receive, most, share, 0, False

    async def __call__(self) -> Message:
        """The next part, or a Problem once there is too much."""
        message = await self._next()
        if self._seen > self._most:
            raise too_large(self._most, "more")
        self._share.take(len(message.get("body", b"")))
        return message

    async def whole(self) -> bytes:
        """All parts, one after the other."""
        parts = []
        while not self._whole:
            parts.append((await self()).get("body", b""))
        return b"".join(parts)

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


def announced(headers: dict[bytes, bytes], most: int) -> None:
    """A Problem where the sender says beforehand that it will be too much."""
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > most:
        raise too_large(most, str(int(length)))


def too_large(most: int, came: str) -> Problem:
    """For whoever sends more than is allowed."""
    return Problem(413, f"expected at most {most} bytes, got {came}; send less at once", {"Connection": "close"})
