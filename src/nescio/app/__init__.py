"""A web page over a model: drop a picture or write a text, and see the answer, its doubt, why, and what to do.

    backend = nescio.app.bundled()                    # digits, with no set-up at all; or opened(source, rows, known)
    nescio.app.run(backend, Settings(port=7860))      # until Ctrl-C, on this machine alone

    input ─► opinion ─► ruling ─► cards ─► page
             plain data  policy   HTML     Gradio
             with the guard's verdict, and
             scores beside those of known inputs (reference)

Gradio is loaded by `run` alone; all else works and is tested without it.
"""

from nescio.app.backend import Backend
from nescio.app.bundled_page import bundled
from nescio.app.doubt_scale import Scale, measured
from nescio.app.from_model import opened
from nescio.app.opinion import Opinion, Ruling, mapped, opinion, ruling
from nescio.app.page import application, run
from nescio.serve.settings import Settings

__all__ = [
    "bundled", "opened", "run", "application", "Backend", "Settings", "opinion", "mapped", "ruling", "measured",
    "Opinion", "Ruling", "Scale",
]  # fmt: skip
