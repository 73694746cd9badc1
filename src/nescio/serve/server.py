"""A server around an application: one socket, one process, until SIGTERM or Ctrl-C, and a while for what has begun."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

from nescio._common.lazy_imports import need
from nescio.serve.bodies import Application
from nescio.serve.connections import protocol
from nescio.serve.engine import Engine
from nescio.serve.settings import Settings
from nescio.types import InputError

SWITCH = 0.0005
"""Seconds that a thread may keep Python to itself; with the usual 0.005 a request waits for the model at each step."""


def listening(settings: Settings) -> socket.socket:
    """Return a socket that is listening.

    Args:
        settings: Host and port.

    Raises:
        InputError: The address cannot be used.

    Returns:
        The socket.

    Examples:
        >>> with nescio.serve.listening(nescio.serve.Settings(port=0)) as place:
        ...     address(place)
        'http://127.0.0.1:...'
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol has to be named: else asyncio does not switch Nagle's algorithm off, and every answer takes 40 ms.
    place = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((settings.host, settings.port))
        place.listen(1024)
        return place
    except OSError as error:
        place.close()
        raise InputError(
            f"expected to listen on {settings.host}, port {settings.port}, but: {error.strerror or error}; "
            "choose another port (--port 0 takes any free one) or host"
        ) from error


def address(place: socket.socket) -> str:
    """Return where the socket can be reached from this machine."""
    host, port = place.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server(app: Application, settings: Settings) -> Any:
    """Return a uvicorn server for the application; it logs no request."""
    uvicorn = need("uvicorn", "serve")
    config = uvicorn.Config(
        app,
        http=protocol(settings.idle_timeout, settings.max_connections),
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.idle_timeout,
        timeout_graceful_shutdown=settings.grace,
    )
    return uvicorn.Server(config)


class Ended(KeyboardInterrupt):
    """Report that the service was told to end, and has; its words say how.

    Args:
        broken_off: How many requests got no answer.
        busy: Whether the model is still at work for one of them.

    Examples:
        >>> print(nescio.serve.Ended(0, False))
        Ended; every request that had begun was answered.
    """

    def __init__(self, broken_off: int, busy: bool) -> None:
        super().__init__(
            "Ended; every request that had begun was answered."
            if not broken_off
            else f"Ended; {broken_off} requests that had begun were not answered in time, and were told so."
        )
        self.broken_off, self.busy = broken_off, busy
        """Requests without an answer; whether the model is still at work for one of them."""


def run(
    engine: Engine,
    settings: Settings | None = None,
    *,
    drift_path: str | Path | None = None,
    watch_path: str | Path | None = None,
) -> None:
    """Serve until the process is told to end, by Ctrl-C or SIGTERM. Others can connect once the model is ready.

    Args:
        engine: The model, with what it is asked by.
        settings: What the service allows; None means the usual.
        drift_path: Where the monitor of the policy keeps what it has seen; None: it is forgotten at the end.
        watch_path: Where the watch of the guard keeps what it has seen; None: it is forgotten at the end.

    Raises:
        Ended: The service has ended; it says how that went.

    Examples:
        >>> nescio.serve.run(engine, nescio.serve.Settings(port=8000))  # doctest: +SKIP
    """
    from nescio.serve import application

    settings = settings or Settings()
    app = application(engine, settings, drift_path=drift_path, watch_path=watch_path)
    if wrong := engine.warm_up():
        warnings.warn(wrong, UserWarning, stacklevel=2)
    with listening(settings) as place:
        url = address(place)
        print(f"Serving on {url} (the interface: {url}/docs). End with Ctrl-C.", file=sys.stderr, flush=True)
        if not settings.on_loopback and settings.token is None:
            warnings.warn(
                f"{settings.host} can be reached by other machines, and no token is asked for; give one with --token, "
                "or leave --host out",
                UserWarning,
                stacklevel=2,
            )
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        try:
            server(app, settings).run(sockets=[place])
        except KeyboardInterrupt:
            raise Ended(app.state.gate.broken_off, app.state.batcher.busy) from None
        finally:
            sys.setswitchinterval(before)
