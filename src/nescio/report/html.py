"""The shell of a page: one file with its style and its script inside, which asks for nothing from outside."""

from __future__ import annotations

import html
from collections.abc import Mapping
from importlib.resources import files

# The browser itself holds the page to its word: nothing is loaded from anywhere.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def document(title: str, body: str) -> str:
    """A whole HTML page around `body`, for light and dark and for any width."""
    room = files("nescio.report").joinpath("templates")
    style = room.joinpath("page.css").read_text(encoding="utf-8")
    script = room.joinpath("page.js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
{body}
<script>
{script}</script>
</body>
</html>
"""


def escape(text: object) -> str:
    """Text for the inside of an element or of a quoted attribute."""
    return html.escape(str(text), quote=True)


def facts(pairs: Mapping[str, str]) -> str:
    """A two-column table of names and what holds for them."""
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in pairs.items()
    )
    return f'<div class="scroll"><table class="facts"><tbody>\n{rows}\n</tbody></table></div>'
