"""Connections that do nothing are closed: uvicorn waits for ever for a head that comes letter by letter.

A connection waits while no request of it is being answered. What waits longer than it may is cut, and so is a reader
who does not take the answer. Where too many are open, the one that has waited longest makes room; a connection whose
request is being answered is never cut for that.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from nescio._common.lazy_imports import need


class _Limited(asyncio.Protocol):
    """One connection; `protocol` adds what uvicorn does with it."""

    seconds: float
    """How long it may wait."""
    most: int
    """How many may be open."""
    connections: Any
    cycle: Any
    loop: Any
    transport: Any

    _timer: Any = None
    _stuck = False
    since = 0.0
    """When it began to wait."""

    @property
    def waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def connection_made(self, transport: Any) -> None:
        """It is open."""
        super().connection_made(transport)
        self.since = time.monotonic()
        if len(self.connections) > self.most:
            idle = [one for one in self.connections if one is not self and getattr(one, "waiting", False)]
            (min(idle, key=lambda one: one.since) if idle else self).transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """A part of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """A request was answered."""
        self._stop()
        self.since = time.monotonic()
        super().on_response_complete()  # type: ignore[misc]
        self._watch()

    def pause_writing(self) -> None:
        """The reader takes nothing."""
        super().pause_writing()
        self._stuck = True
        self._watch()

    def resume_writing(self) -> None:
        """The reader goes on."""
        super().resume_writing()
        self._stuck = False
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if not (self.waiting or self._stuck):
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def protocol(seconds: float, most: int) -> type:
    """The protocol of uvicorn for HTTP/1.1 with these limits: seconds of waiting, and connections that may be open."""
    plain: Any = need("uvicorn.protocols.http.h11_impl", "serve").H11Protocol
    return type("Limited", (_Limited, plain), {"seconds": seconds, "most": most})
