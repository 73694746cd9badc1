"""A model behind HTTP: answers, scores and maps for whoever can send a picture, numbers or a text.

    source = nescio.specs.open_source(ModelSpec("torchvision:resnet18", "w.safetensors"))
    engine = Engine(source, ["regrad", "entropy"], policy=policy)
    run(engine, Settings(port=8000, token="…"))                        # until SIGTERM or Ctrl-C
    application(engine, Settings())                                    # the ASGI application, for a server of one's own

    request ─► gate  ─► reading ─► batching ─► engine ─► answers
               token,   bytes to   requests    probabilities, doubt,
               limits   rows       joined      scores, maps

One thread owns the model. What a request gets does not depend on the requests that it is joined with (see `engine`).
Nothing of what is sent is logged or kept, and nothing is fetched from outside.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nescio._common.lazy_imports import need
from nescio.serve.engine import Engine
from nescio.serve.server import Ended, listening, run
from nescio.serve.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["Ended", "Engine", "Settings", "application", "listening", "run"]


def application(
    engine: Engine,
    settings: Settings | None = None,
    *,
    drift_path: str | Path | None = None,
    watch_path: str | Path | None = None,
) -> FastAPI:
    """Return the ASGI application; its lifespan starts and ends the thread that owns the model.

    Args:
        engine: The model, with what it is asked by.
        settings: What the service allows; None means the usual.
        drift_path: Where the monitor of the policy keeps what it has seen; None: it is forgotten at the end.
        watch_path: Where the watch of the guard keeps what it has seen; None: it is forgotten at the end.

    Returns:
        The application, for a server of your own.

    Raises:
        MissingExtra: If FastAPI or another package of the extra "serve" is not installed.

    Examples:
        >>> from nescio.models.sources import Numbers, Source
        >>> source = Source(nescio.Classifier(torch.nn.Linear(4, 3)), Numbers(), "a layer", ("a", "b", "c"))
        >>> nescio.serve.application(nescio.serve.Engine(source, ["entropy"])).title
        'nescio'
    """
    for package in ("fastapi", "prometheus_client", "python_multipart", "PIL"):
        need(package, "serve")
    from nescio.serve.fastapi_app import make  # its types are FastAPI's own, so it cannot be loaded without

    return make(engine, settings or Settings(), drift_path, watch_path)
