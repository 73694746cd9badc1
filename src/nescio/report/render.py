"""From the content of a page to HTML: Jinja2 templates, in which every text is escaped.

Templates lie in the folder `templates` of their package. A page is one file with its style and its script inside: it
loads nothing from outside, and its Content-Security-Policy has the browser hold it to that.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from nescio._common.formatting import chance, number, percentage

if TYPE_CHECKING:
    from jinja2 import Environment

SHARED = "nescio.report"
"""The package whose templates all others may extend and import."""


def render(template: str, package: str = SHARED, **content: object) -> str:
    """Fill a template with the content of a page.

    Args:
        template: The file name of the template.
        package: The package that has it; `nescio.report`'s templates can be extended and imported in each.
        content: What the template names.

    Returns:
        The HTML. Texts of the content are escaped, so none of them can become markup.

    Examples:
        >>> print(render("facts.html.j2", pairs={"class": "<b>"}).splitlines()[1])
        <tr><th scope="row">class</th><td>&lt;b&gt;</td></tr>
    """
    return _environment(package).get_template(template).render(content)


def render_macro(template: str, macro: str, *content: object, package: str = SHARED) -> str:
    """Fill one macro of a template, for a part of a page.

    Args:
        template: The file name of the template.
        macro: The name of the macro.
        content: What the macro takes, in its order.
        package: The package that has the template.

    Returns:
        The HTML. Texts of the content are escaped.

    Examples:
        >>> render_macro("macros.html.j2", "items", ["a < b"]).strip()
        '<ul><li>a &lt; b</li></ul>'
    """
    return str(getattr(_environment(package).get_template(template).module, macro)(*content))


@cache
def _environment(package: str) -> Environment:
    """The templates of a package and the shared ones; a name that the content does not have is an error."""
    import jinja2

    loaders = [jinja2.PackageLoader(name) for name in dict.fromkeys((package, SHARED))]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percentage,
        "number": number,
        "chance": chance,
        "whole": _whole_number,
        "words": _words,
    }
    return environment


def _whole_number(count: int) -> str:
    return f"{count:,}"


def _words(text: str) -> str:
    """A text in which a number and its percent sign stay on one line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")
