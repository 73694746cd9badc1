"""Formulas in running text: p_c^s becomes p with c below and s above. Code, links and formulas of their own stay."""

from __future__ import annotations

import re

# What is left alone: fenced and indented blocks, code, targets of links and pictures, comments and tags.
LEFT = re.compile(
    r"^```[\s\S]*?^```$|^    .*$|`[^`\n]*`|\]\([^)]*\)(?:\{[^}]*\})?|<!--[\s\S]*?-->|<[^>\n]+>",
    re.MULTILINE,
)
BRACES = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
BELOW = re.compile(rf"_(?:{BRACES}|(\([^()]*\)|[^\W_ᵀ]+))")
ABOVE = re.compile(rf"\^(?:{BRACES}|\(([^()]*)\)|([−-]?[^\W_ᵀ]+(?:/\d)?))")


def raised(page: str) -> str:
    """The page with its indices and exponents as such."""
    parts, at = [], 0
    for found in LEFT.finditer(page):
        parts += [_set(page[at : found.start()]), found[0]]
        at = found.end()
    return "".join([*parts, _set(page[at:])])


def _set(text: str) -> str:
    text = BELOW.sub(lambda m: f"<sub>{_set(m[1] or m[2])}</sub>", text)
    return ABOVE.sub(lambda m: f"<sup>{_set(m[1] or m[2] or m[3])}</sup>", text)
