"""What is wrong with a request, in one shape for all: a status, a kind for programs, a sentence for people.

``{"error": {"status": 422, "kind": "bad_input", "message": "expected …, got …; do …"}}``
"""

from __future__ import annotations

from typing import Any

from nescio.types import InputError, ModelError

KINDS: dict[int, tuple[str, str]] = {
    400: ("bad_request", "the request cannot be understood"),
    401: ("unauthorized", "a token is missing or wrong"),
    403: ("foreign_page", "a browser asked for a page of another site"),
    404: ("not_found", "there is nothing at this path"),
    405: ("method_not_allowed", "the path is there, but not for this method"),
    408: ("slow_request", "the request did not arrive in time"),
    409: ("no_guard", "the service has no guard, so it cannot check"),
    413: ("too_large", "more bytes, pixels or inputs than are allowed"),
    415: ("unsupported_type", "a content type that is not known here"),
    421: ("wrong_host", "the service was addressed by a foreign name"),
    422: ("bad_input", "the input cannot be used"),
    500: ("unforeseen", "something went wrong here"),
    503: ("busy", "too much is waiting or held in memory, or the service is ending"),
    504: ("timeout", "the answer was not ready in time"),
}


class Problem(Exception):
    """Refuse a request.

    Args:
        status: The status of HTTP.
        message: What was expected, what came, and what to do.
        headers: Further headers of the answer.
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}

    @property
    def kind(self) -> str:
        """Return one word for programs."""
        return KINDS.get(self.status, ("refused", ""))[0]

    def body(self) -> dict[str, Any]:
        """Return what is sent."""
        return {"error": {"status": self.status, "kind": self.kind, "message": self.message}}


def of_input(message: object) -> Problem:
    """Return the refusal of an input that cannot be used."""
    return Problem(422, " ".join(str(message).split()))


def of_failure(error: BaseException) -> Problem:
    """Return the refusal for whoever sent an input that the work on it failed for."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InputError | ModelError):
        return of_input(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Problem(503, "expected enough memory for this input, got too little; send less at once, or try later")
    return unforeseen(error)


def unforeseen(error: BaseException) -> Problem:
    """Return the refusal after a mistake of ours; its text may hold parts of the input and is kept back."""
    return Problem(
        500, f"expected to answer this, but something unforeseen happened ({type(error).__name__}); please report it"
    )


def ending() -> Problem:
    """Return the refusal of requests that come too late."""
    return Problem(503, "expected a running service, but it is ending; try again later", {"Retry-After": "5"})
