"""Letters in running text: p_c^s becomes p with c below and s above. Code, links and what stands between dollars stay.

Formulas between dollars are set by KaTeX in the reader's browser (docs/assets/katex).
"""

from __future__ import annotations

import re

# What is left alone: fenced and indented blocks, formulas, code, targets of links and pictures, comments and tags.
LEFT = re.compile(
    r"^```[\s\S]*?^```$|^    .*$|^\$\$$[\s\S]*?^\$\$$|\$(?! )[^$\n]+\$|`[^`\n]*`"
    r"|\]\([^)]*\)(?:\{[^}]*\})?|<!--[\s\S]*?-->|<[^>\n]+>",
    re.MULTILINE,
)
TYPESET = re.compile(r"^\$\$\n([\s\S]*?)\n\$\$$|\$(?! )([^$\n]+)\$", re.MULTILINE)
BRACES = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
BELOW = re.compile(rf"_(?:{BRACES}|(\([^()]*\)|[^\W_ᵀ]+))")
ABOVE = re.compile(rf"\^(?:{BRACES}|\(([^()]*)\)|([−-]?[^\W_ᵀ]+(?:/\d)?))")


def typeset(page: str) -> list[str]:
    """The formulas of a page that KaTeX sets, those in blocks and those in lines."""
    code = re.sub(r"^```[\s\S]*?^```$|`[^`\n]*`", "", page, flags=re.MULTILINE)
    return [block or line for block, line in TYPESET.findall(code)]


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
