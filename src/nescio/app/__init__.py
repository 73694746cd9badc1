"""A web page over a model: drop a picture or write a text, and see the answer, its doubt, why, and what to do.

    desk = nescio.app.bundled()                    # digits, with no set-up at all; or opened(source, rows, known)
    nescio.app.run(desk, Settings(port=7860))      # until Ctrl-C, on this machine alone

    input ─► opinion ─► verdict ─► cards ─► page
             plain data  policy    HTML     Gradio
             against the scale
             of known inputs (reference)

Gradio is loaded by `run` alone; all else works and is tested without it.
"""

from nescio.app.bundled import bundled
from nescio.app.desk import Desk
from nescio.app.opened import opened
from nescio.app.opinion import Opinion, Verdict, mapped, opinion, verdict
from nescio.app.page import application, run
from nescio.app.reference import Scale, measured
from nescio.serve.settings import Settings

__all__ = [
    "bundled", "opened", "run", "application", "Desk", "Settings", "opinion", "mapped", "verdict", "measured",
    "Opinion", "Verdict", "Scale",
]  # fmt: skip
