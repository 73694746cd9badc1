"""A server around the application: one socket, one process, until SIGTERM or Ctrl-C; what has begun is finished."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

from nescio.serve.engine import Engine
from nescio.serve.settings import Settings
from nescio.types import InputError, need

GRACE = 5
"""Seconds beyond the timeout of a request that an ending server waits for those it is answering."""

SWITCH = 0.0005
"""Seconds that a thread may keep Python to itself; with the usual 0.005 a request waits for the model at each step."""


def listening(settings: Settings) -> socket.socket:
    """The socket, which is listening when this returns; an InputError where it cannot."""
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
    """Where the socket can be reached from this machine."""
    host, port = place.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server(app: Any, settings: Settings) -> Any:
    """A uvicorn server for the application, which logs no request."""
    uvicorn = need("uvicorn", "serve")
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(settings.timeout) + GRACE,
    )
    return uvicorn.Server(config)


def run(engine: Engine, settings: Settings | None = None, *, drift_path: str | Path | None = None) -> None:
    """Serve until the process is told to end; a KeyboardInterrupt then tells that it was."""
    from nescio.serve import application

    settings = settings or Settings()
    app = application(engine, settings, drift_path=drift_path)
    with listening(settings) as place:
        if wrong := engine.warm_up():
            warnings.warn(wrong, UserWarning, stacklevel=2)
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
        finally:
            sys.setswitchinterval(before)
