"""What a service allows, and how it joins requests."""

from __future__ import annotations

from dataclasses import dataclass

from nescio.types import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Settings:
    """Where it listens, who may ask, what is too much, and how long anything may take."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0: any free one."""
    token: str | None = None
    """What callers send as ``Authorization: Bearer TOKEN``; None: anybody may ask."""
    max_body: int = 10_000_000
    """Bytes of a request."""
    max_pixels: int = 25_000_000
    """Pixels of all pictures of a request together, counted before any is decoded."""
    max_inputs: int = 128
    """Inputs of a request."""
    timeout: float = 30.0
    """Seconds that a request may take."""
    batch_size: int = 32
    """Inputs that are handled together."""
    batch_wait: float = 0.005
    """Seconds that an input waits for others."""
    max_waiting: int = 1024
    """Inputs that may wait for the model; further requests are sent away."""

    def __post_init__(self) -> None:
        for name in ("max_body", "max_pixels", "max_inputs", "timeout", "batch_size", "max_waiting"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: expected a number above 0, got {getattr(self, name)!r}")
        if self.batch_wait < 0:
            raise InputError(f"batch_wait: expected at least 0 seconds, got {self.batch_wait!r}")
        if not 0 <= self.port < 2**16:
            raise InputError(f"port: expected a number from 0 to 65535, got {self.port!r}")
        if self.token is not None and not self.token.strip():
            raise InputError("token: expected some characters, got none; leave it out for a service without one")

    @property
    def on_loopback(self) -> bool:
        """Whether this machine alone can reach it."""
        return self.host in LOOPBACK or self.host.startswith("127.")

    def addressed(self, host: bytes) -> bool:
        """Whether a request that names this host may be answered.

        On this machine alone: a page of the web that gave its own name the address of this machine is not.
        """
        given = host.decode("latin-1").lower()
        name = given.rpartition(":")[0] if given.rpartition(":")[2].isdigit() else given
        return not self.on_loopback or name.strip("[]") in (*LOOPBACK, self.host)
