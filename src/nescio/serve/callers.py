"""Who may ask, by what a browser says of itself: pages of other sites may not use a service through their visitors.

A browser sends the page's own address as Origin with every request that a page of another site makes, and with every
POST. Programs send none, and are answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from nescio.serve.errors import Problem
from nescio.serve.settings import Settings


def check(headers: Sequence[tuple[bytes, bytes]], settings: Settings) -> None:
    """A Problem for whoever names a foreign host, or comes from a foreign page."""
    host = dict(headers).get(b"host", b"")
    if settings.token is None and not settings.addressed(host):
        raise Problem(
            421,
            "expected this machine as host (127.0.0.1 or localhost), got another name; use that address",
        )
    for name, value in headers:
        if (
            name == b"origin"
            and not _same_host(value, host)
            and value.decode("latin-1").lower() not in settings.origins
        ):
            raise Problem(
                403,
                "expected a page of this service, or one that may use it, got the Origin of another; whoever runs "
                "`nescio serve` can allow it (--allow-origin)",
            )


def _same_host(origin: bytes, host: bytes) -> bool:
    """Whether a page comes from the host that it asks; its scheme may be that of a proxy before us."""
    scheme, separator, place = origin.lower().partition(b"://")
    usual = {b"http": b":80", b"https": b":443"}.get(scheme, b"")
    return bool(separator and place) and place.removesuffix(usual) == host.lower().removesuffix(usual)
