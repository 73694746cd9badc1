"""The page: Gradio's components around a `Backend`, and the server that shows it.

Nothing is loaded from outside: fonts are the system's, telemetry is off, and `doors` lets in what the page needs alone.
What people give lies in a folder of its own while the server runs, and is deleted.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from nescio._common.lazy_imports import need
from nescio.app import cards
from nescio.app.backend import MAX_BYTES, NOUNS, Backend
from nescio.app.doors import Sealed
from nescio.app.opinion import Opinion
from nescio.serve.server import address, listening, server
from nescio.serve.settings import Settings
from nescio.types import NescioError

T = TypeVar("T")
TAKES = {
    "pictures": "Drop a picture here, or choose an example.",
    "texts": "Write a text, or choose an example.",
    "numbers": "Write numbers with commas, or choose an example.",
}
PICK = """element.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  element.querySelectorAll("button").forEach(other => other.setAttribute("aria-pressed", other === button));
  trigger("click", {place: Number(button.dataset.place)});
  if (window.innerWidth < 768) document.querySelector("#verdict").scrollIntoView({behavior: "smooth"});
});"""
"""What a click on an example does in the browser."""
KEPT = 3600
"""Seconds that what people gave is kept at most."""
SESSIONS, WAITING = 100, 50
"""Open pages whose last opinion is kept, and calls that may wait for the model."""
ENDING = 2.0
"""Seconds that an ending server waits: every open page holds a connection, and what it waits for is shown to nobody."""


def gradio() -> Any:
    """Import Gradio with its telemetry off."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    for package in ("PIL", "matplotlib"):
        need(package, "app")
    return need("gradio", "app")


def blocks(backend: Backend) -> Any:
    """Return the page as Gradio's Blocks."""
    return _looped(lambda: _blocks(gradio(), backend))


def _looped(make: Callable[[], T]) -> T:
    """What `make` gives while an event loop is running: where none is, Gradio makes some and leaves them open."""

    async def made() -> T:
        return make()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(made())
    return make()


def _blocks(gr: Any, backend: Backend) -> Any:
    answers = Answers(backend)
    with gr.Blocks(title="nescio", analytics_enabled=False, delete_cache=(KEPT // 4, KEPT), fill_width=False) as page:
        gr.HTML(cards.header(backend.engine.about, backend.notes), elem_classes="nescio", js_on_load=None)
        with gr.Row():
            with gr.Column(scale=2, min_width=300):
                given, send = _input_blocks(gr, backend)
                examples = _examples(gr, backend)
            with gr.Column(scale=5, min_width=320):
                shown = [
                    gr.HTML(value, elem_id=name, elem_classes="nescio", js_on_load=None)
                    for name, value in zip(("verdict", "maps", "doubts", "methods"), answers.welcome(), strict=True)
                ]
                chosen = _settings(gr, backend)
        opinion = gr.State(None, time_to_live=KEPT)
        settings: dict[str, Any] = {"outputs": [opinion, *shown], "api_visibility": "private"}
        settings |= {"show_progress": "minimal", "trigger_mode": "always_last"}
        settings |= {"concurrency_limit": 1, "concurrency_id": "model"}
        for event in send:
            event(answers.given, [given, *chosen], **settings)
        if backend.kind == "pictures":
            given.clear(answers.cleared, None, [opinion, *shown], api_visibility="private")
        if examples is not None:

            def picked(event: Any, *chosen: str) -> Iterator[Any]:
                for one in answers.example(int(event.place), *chosen):
                    yield [*one, None]  # not gr.update, which would make the box anew, without our way of reading

            picked.__annotations__["event"] = gr.EventData  # Gradio looks here for what to pass
            examples.click(picked, chosen, **{**settings, "outputs": [*settings["outputs"], given]})
            page.load(answers.first, chosen, **settings)
        for control in chosen:
            control.input(
                answers.decided, [opinion, *chosen], [shown[0]], show_progress="hidden", api_visibility="private"
            )
    return page


class Answers:
    """What the page calls: from what was given to the HTML of its right side."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def welcome(self) -> list[str]:
        """Before anything was given."""
        return [cards.welcome_card(self.backend.engine.about, TAKES[self.backend.kind]), "", "", ""]

    def cleared(self) -> list[Any]:
        """When what was given is taken away."""
        return [None, *self.welcome()]

    def given(self, value: Any, *chosen: str | None) -> Iterator[list[Any]]:
        """A picture file or a text."""
        if value is None and self.backend.kind == "pictures":  # taken away: Gradio calls that an input too
            yield self.cleared()
            return
        of = self.backend.of_picture if self.backend.kind == "pictures" else self.backend.of_text
        yield from self._all(lambda: of(value), *chosen)  # Gradio looks whether this is a generator itself

    def example(self, place: int, *chosen: str | None) -> Iterator[list[Any]]:
        """An example that was clicked."""
        yield from self._all(lambda: self.backend.of_example(place), *chosen)

    def first(self, *chosen: str | None) -> Iterator[list[Any]]:
        """The example that is chosen when the page opens."""
        yield from self.example(0, *chosen)

    def decided(self, opinion: Opinion | None, *chosen: str | None) -> str:
        """The first card again, with other settings."""
        if opinion is None:
            return self.welcome()[0]
        try:
            return self._verdict(opinion, *chosen)
        except NescioError as error:
            return cards.message_card(" ".join(str(error).split()))

    def _verdict(self, opinion: Opinion, level: str | None, policy: str | None, by: str | None) -> str:
        ruling = self.backend.ruling(opinion, level, policy, by)
        return cards.verdict_card(opinion, self.backend.level(level), ruling, NOUNS[self.backend.kind])

    def _all(self, opinions: Callable[[], Iterator[Opinion]], *chosen: str | None) -> Iterator[list[Any]]:
        try:
            for opinion in opinions():
                yield [
                    opinion,
                    self._verdict(opinion, *chosen),
                    cards.maps_card(opinion.maps, opinion),
                    cards.doubt_card(opinion, self.backend.scale),
                    cards.methods_card(opinion),
                ]
        except NescioError as error:
            yield [None, cards.message_card(" ".join(str(error).split())), "", "", ""]
        except Exception as error:  # its text may hold parts of what was given
            print(f"nescio: unforeseen {type(error).__name__}: {error}", file=sys.stderr)
            words = f"Something unforeseen happened ({type(error).__name__}); the terminal of nescio app says more."
            yield [None, cards.message_card(words), "", "", ""]


def application(backend: Backend, settings: Settings) -> Sealed:
    """Return the page as an ASGI application.

    Args:
        backend: What the page stands on.
        settings: Where it is reached.

    Returns:
        The application, for a server of your own.

    Raises:
        MissingExtra: If a package of the extra "app" is not installed.

    Examples:
        >>> from nescio.models.sources import Numbers, Source
        >>> source = Source(nescio.Classifier(torch.nn.Linear(4, 3)), Numbers(), "a layer")
        >>> backend = nescio.app.opened(source, methods=["entropy"])
        >>> app = nescio.app.application(backend, nescio.app.Settings())
    """
    return _looped(lambda: _application(gradio(), backend, settings))


def _application(gr: Any, backend: Backend, settings: Settings) -> Sealed:
    fastapi = need("fastapi", "app")
    page = _blocks(gr, backend)
    theme = gr.themes.Base(
        font=["system-ui", "-apple-system", "Segoe UI", "Roboto", "Arial", "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "Consolas", "monospace"],
    )
    page.state_session_capacity = SESSIONS
    page.queue(max_size=WAITING, api_open=False)
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    gr.mount_gradio_app(
        app, page, path="/", server_name=settings.host, server_port=settings.port, footer_links=[],
        run_history=False, show_error=False, max_file_size=MAX_BYTES, ssr_mode=False, pwa=False, mcp_server=False,
        enable_monitoring=False, theme=theme, css=files("nescio.app").joinpath("app.css").read_text(encoding="utf-8"),
    )  # fmt: skip
    page.has_launched = True  # a mounted app never says so, and then Gradio takes any path for a file that was given
    return Sealed(app, settings, Path(need("gradio.utils", "app").get_upload_folder()))


def run(backend: Backend, settings: Settings) -> None:
    """Show the page until the process is told to end.

    Args:
        backend: What the page stands on.
        settings: Where it listens.

    Examples:
        >>> nescio.app.run(nescio.app.bundled(), nescio.app.Settings(port=7860))  # doctest: +SKIP
    """
    with own_folder():
        app = application(backend, settings)
        with listening(settings) as place:
            print(f"The page is at {address(place)} – end with Ctrl-C.", file=sys.stderr, flush=True)
            if not settings.on_loopback:
                print(
                    f"nescio: warning: {settings.host} can be reached by other machines, and anybody there can use the "
                    "model; leave --host out for this machine alone",
                    file=sys.stderr,
                    flush=True,
                )
            threading.Thread(target=backend.warm, daemon=True).start()
            server(app, replace(settings, grace=ENDING)).run(sockets=[place])


@contextmanager
def own_folder() -> Iterator[None]:
    """Make a folder for what people give, and delete it at the end of the block."""
    before = os.environ.get("GRADIO_TEMP_DIR")
    with tempfile.TemporaryDirectory(prefix="nescio-app-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                os.environ.pop("GRADIO_TEMP_DIR", None)
            else:
                os.environ["GRADIO_TEMP_DIR"] = before


def _input_blocks(gr: Any, backend: Backend) -> tuple[Any, list[Any]]:
    """What people give their input to, and the events that send it."""
    if backend.kind == "pictures":
        box = gr.Image(label="A picture", type="filepath", sources=["upload", "clipboard"], height=200, elem_id="given",
                       buttons=[])  # fmt: skip
        box.preprocess = lambda payload: None if payload is None else payload.path  # read by us, with our own limits
        return box, [box.input]
    label, hint = ("A text", "Write here …") if backend.kind == "texts" else ("Numbers", "0.1, 2, -3.5 …")
    box = gr.Textbox(label=label, placeholder=hint, lines=3, elem_id="given")
    button = gr.Button("What does it make of this?", variant="primary", elem_id="send")
    return box, [box.submit, button.click]


def _settings(gr: Any, backend: Backend) -> list[Any]:
    """What may be chosen, below everything: the level of the guard, and a policy for answers."""
    levels, names = list(backend.levels), backend.policies.names
    with gr.Accordion("Settings", open=False, elem_id="settings", visible=len(levels) > 1 or len(names) > 1):
        return [
            gr.Dropdown(levels, label="Foreign: more unusual than all but", elem_id="level", visible=bool(levels)),
            gr.Dropdown(names, label="Policy: which answers may be used", elem_id="policy", visible=len(names) > 1),
            gr.Dropdown(backend.policies.judges, label="judged by", elem_id="by", visible=len(names) > 1),
        ]


def _examples(gr: Any, backend: Backend) -> Any:
    if not backend.examples:
        return None
    return gr.HTML(cards.examples_card(backend.examples), elem_id="examples", elem_classes="nescio", js_on_load=PICK)
