"""What of Gradio's interface the page needs, and nothing else of it, with limits.

Gradio takes a path or an address where a component expects a file, and copies it into its folder before the component
sees it; in a mounted app it asks nobody. So each call is looked at here first: it may name files in the folder of
uploads, and no others. Calls that the page never makes (Gradio's other ways to run a function, proxies, recordings) are
not there at all. The browser is told by a policy of its own to ask nobody else.
"""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path

from nescio.app.backend import MAX_BYTES
from nescio.serve import callers
from nescio.serve.bodies import Application, Body, Budget, Message, Receive, Send, Share, announced
from nescio.serve.errors import Problem
from nescio.serve.settings import Settings

OUTSIDE = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; media-src 'self' blob:; "
    "worker-src 'self' blob:; manifest-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
API = "/gradio_api"
PAGES = ("/", "/config", "/config/", "/favicon.ico", "/manifest.json", "/robots.txt", "/theme.css")
PARTS = ("/assets/", "/static/", "/svelte/", "/pwa_icon", f"{API}/heartbeat/")
CALLS = (f"{API}/queue/data", f"{API}/upload_progress", f"{API}/theme.css", f"{API}/startup-events", f"{API}/app_id")
FILE, UPLOAD, JOIN = f"{API}/file=", f"{API}/upload", f"{API}/queue/join"
LARGEST = {UPLOAD: MAX_BYTES + 100_000, JOIN: 200_000, f"{API}/cancel": 10_000, f"{API}/reset": 10_000}
"""What may be posted, and bytes of it."""
AT_ONCE = 10 * MAX_BYTES
"""Bytes that are being sent, of all callers together."""
KEPT_BYTES = 20 * MAX_BYTES
"""Bytes of uploads on the disk; the oldest are deleted for others."""
LEAST = 65_536
"""Bytes that a file counts for at least: many small ones fill a disk too."""
POLICY = [
    (b"content-security-policy", OUTSIDE.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


class Sealed:
    """An ASGI application around Gradio's; folder: where it keeps uploads."""

    def __init__(self, app: Application, settings: Settings, folder: Path) -> None:
        self.app, self.settings, self.folder = app, settings, folder
        self._budget = Budget(AT_ONCE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request, or the application's lifespan."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            share = Share(self._budget)
            try:
                await self._http(scope, receive, send, share)
            finally:
                share.give_back()

    async def _http(self, scope: Message, receive: Receive, send: Send, share: Share) -> None:
        begun = False

        async def sealed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", []), *POLICY]
            await send(message)

        path = str(scope["path"])
        body = Body(receive, LARGEST.get(path, 0), share)
        try:
            callers.check(scope["headers"], self.settings)
            if scope["method"] in ("GET", "HEAD"):
                self._shown(path)
                await self.app(scope, receive, sealed)
                return
            if scope["method"] != "POST" or path not in LARGEST:
                raise _nothing()
            announced(dict(scope["headers"]), LARGEST[path])
            async with asyncio.timeout(self.settings.timeout):
                if path == UPLOAD:
                    await asyncio.to_thread(make_room, self.folder, KEPT_BYTES - MAX_BYTES)
                    await self.app(scope, body, sealed)
                else:
                    data = await body.whole()
                    await asyncio.to_thread(self._called, data)
                    await self.app(scope, _again(data, receive), sealed)
        except asyncio.CancelledError:  # the ending server has waited for this as long as it may: an open page
            if begun:
                await send({"type": "http.response.body", "body": b""})
        except (Problem, TimeoutError) as error:
            if begun:
                raise
            slow = Problem(408, f"expected the request within {self.settings.timeout:g} s, got a part; send it again")
            problem = error if isinstance(error, Problem) else slow
            if problem.status == 413:
                await body.drain(self.settings.timeout)
            headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
            headers.append((b"content-type", b"text/plain; charset=utf-8"))
            await sealed({"type": "http.response.start", "status": problem.status, "headers": headers})
            await send({"type": "http.response.body", "body": problem.message.encode() + b"\n"})

    def _shown(self, path: str) -> None:
        """A Problem for what the page does not show."""
        if path.startswith(FILE):
            if not uploaded(path.removeprefix(FILE), self.folder):
                raise _nothing()
        elif path not in (*PAGES, *CALLS) and not path.startswith(PARTS):
            raise _nothing()

    def _called(self, data: bytes) -> None:
        """A Problem for a call that names a file which was not given."""
        try:
            call = json.loads(data or b"null")
        except (ValueError, RecursionError) as error:
            raise Problem(
                422, "expected a call of the page in JSON, got something else; load the page again"
            ) from error
        for path in _paths(call):
            if not isinstance(path, str) or not uploaded(path, self.folder):
                raise Problem(403, "expected a file that was given on this page, got another; give it again")


def uploaded(path: str, folder: Path) -> bool:
    """Whether the path is that of an ordinary file in the folder of uploads, wherever links lead."""
    try:
        place = Path(path).resolve(strict=True)
        return place.is_relative_to(folder.resolve()) and stat.S_ISREG(place.lstat().st_mode)
    except (OSError, ValueError):
        return False


def make_room(folder: Path, most: int) -> None:
    """Delete the oldest files until those that are left take at most so many bytes."""
    files = []
    for path in folder.rglob("*"):
        try:
            known = path.lstat()
        except OSError:  # deleted by now
            continue
        if stat.S_ISREG(known.st_mode):
            files.append((known.st_mtime, max(known.st_size, LEAST), path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most:
            return
        path.unlink(missing_ok=True)
        total -= size


def _paths(value: object) -> Iterator[object]:
    """What is named "path" anywhere in a call."""
    if isinstance(value, dict):
        yield from (inner for name, inner in value.items() if name == "path")
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _paths(inner)


def _again(data: bytes, receive: Receive) -> Receive:
    """Receive for a body that was read already."""
    whole: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]

    async def given() -> Message:
        return whole.pop() if whole else await receive()

    return given


def _nothing() -> Problem:
    return Problem(404, "expected what the page needs, got something else; open the page at /")
