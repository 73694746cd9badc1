"""What a service allows, and how it joins requests."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nescio.types import InputError

_POSITIVE = (
    *("max_body", "max_memory", "max_pixels", "max_inputs", "max_explained", "max_text", "max_waiting"),
    *("timeout", "explain_timeout", "idle_timeout", "grace", "max_connections", "batch_size"),
)
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Settings:
    """Say where a service listens, who may ask, what is too much, and how long anything may take.

    Attributes:
        host: The address that it listens on; this machine alone unless another is named.
        port: The port; 0 takes any free one.
        token: What callers send as ``Authorization: Bearer TOKEN``; None: anybody may ask.
        origins: Pages of other sites that may use it from a browser, such as "https://example.org".
        max_body: Bytes of a request.
        max_memory: Bytes that all requests hold together, as they came and as the model takes them. A request
            that would be too much is refused.
        max_pixels: Pixels of all pictures of a request together, counted before any is decoded.
        max_inputs: Inputs of a request.
        max_explained: Inputs of a request to /explain, which takes far longer.
        max_text: Characters of a text.
        timeout: Seconds that a request may take.
        explain_timeout: Seconds that a request to /explain may take.
        idle_timeout: Seconds that a connection may wait before the head of a request has come, or before an answer is
            taken.
        max_connections: Open connections; the one that has waited longest is closed for a further one.
        grace: Seconds that an ending service goes on with what has begun.
        batch_size: Inputs that are handled together.
        batch_wait: Seconds that an input waits for others.
        max_waiting: Inputs that may wait for the model; further requests are sent away.

    Raises:
        InputError: If a value is out of its range.

    Examples:
        >>> nescio.serve.Settings(port=0, token="secret").on_loopback
        True
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    origins: tuple[str, ...] = ()
    max_body: int = 10_000_000
    max_memory: int = 1_000_000_000
    max_pixels: int = 25_000_000
    max_inputs: int = 128
    max_explained: int = 8
    max_text: int = 100_000
    timeout: float = 30.0
    explain_timeout: float = 30.0
    idle_timeout: float = 15.0
    max_connections: int = 512
    grace: float = 10.0
    batch_size: int = 32
    batch_wait: float = 0.005
    max_waiting: int = 1024

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: expected a number above 0, got {getattr(self, name)!r}")
        if self.batch_wait < 0:
            raise InputError(f"batch_wait: expected at least 0 seconds, got {self.batch_wait!r}")
        if not 0 <= self.port < 2**16:
            raise InputError(f"port: expected a number from 0 to 65535, got {self.port!r}")
        if self.token is not None and not self.token.strip():
            raise InputError(
                "token: expected some characters, got none; leave it out, and NESCIO_TOKEN unset, for a service without"
            )
        if self.token is not None and (self.token != self.token.strip() or not self.token.isprintable()):
            raise InputError(
                "token: expected characters that a header can hold, got blanks around it or a control code"
            )
        for origin in self.origins:
            if not re.fullmatch(r"https?://[^/?#\s*]+", origin):
                raise InputError(
                    f"origins: expected the beginning of an address, such as https://example.org, got {origin!r}"
                )
        object.__setattr__(self, "origins", tuple(origin.lower() for origin in self.origins))

    @property
    def on_loopback(self) -> bool:
        """Whether this machine alone can reach it."""
        return self.host in LOOPBACK or self.host.startswith("127.")

    def addressed(self, host: bytes) -> bool:
        """Whether a request that names this host may be answered.

        On this machine alone: a page of the web that gave its own name the address of this machine is not.

        Args:
            host: What the request names as its host.

        Returns:
            True where it may be answered.
        """
        address = host.decode("latin-1").lower()
        name = address.rpartition(":")[0] if address.rpartition(":")[2].isdigit() else address
        return not self.on_loopback or name.strip("[]") in (*LOOPBACK, self.host)
