"""The page of the interface, made from the OpenAPI description: plain HTML, which needs nothing from outside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nescio.report.html import document, escape
from nescio.serve.errors import KINDS

FILE = "curl -F file=@picture.png '{base}{path}'"
JSON = "curl -H 'Content-Type: application/json' \\\n  -d '{\"inputs\": [{one}, {one}]}' '{base}{path}'"
ITEMS = {"pictures": '{"image": "BASE64"}', "texts": '{"text": "so so"}'}
WORDS = (
    "One or several inputs are sent as files of a form, as JSON, or one picture as it is. Results come in the order of "
    "the inputs, and are the same whatever else is asked at that time."
)


def page(schema: dict[str, Any], base: str, facts: str, kind: str | None, token: bool) -> str:
    """The whole page; base: the address for examples; facts: HTML of what is served; kind: what an input is."""
    info = schema["info"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])} {escape(WORDS)}</p>",
        facts,
        '<p>For programs: <a href="/openapi.json" style="color: var(--accent)">/openapi.json</a> (OpenAPI).</p>',
    ]
    if token:
        parts.append("<p>Every request needs the header <code>Authorization: Bearer TOKEN</code>.</p>")
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(path, method, operation, base, kind))
    rows = [(str(status), word, meaning) for status, (word, meaning) in KINDS.items()]
    shape = escape('{"error": {"status": 422, "kind": "bad_input", "message": "expected …, got …; do …"}}')
    parts += ["<h2>Errors</h2>", f"<pre>{shape}</pre>", _table(("status", "kind", "meaning"), rows), "<h2>Shapes</h2>"]
    for name, shown in schema.get("components", {}).get("schemas", {}).items():
        text = escape(json.dumps(shown, indent=1, ensure_ascii=False))
        parts.append(f"<details><summary><code>{escape(name)}</code></summary><pre>{text}</pre></details>")
    return document(f"{info['title']}: the interface", "\n".join(parts))


def _operation(path: str, method: str, operation: dict[str, Any], base: str, kind: str | None) -> str:
    parts = [f"<h2><code>{method.upper()} {escape(path)}</code></h2>", f"<p>{escape(operation['summary'])}.</p>"]
    if "requestBody" in operation:
        one = ITEMS.get(str(kind), '{"numbers": [0.1, 0.2]}')
        for example in ([FILE] if kind in (None, "pictures") else []) + [JSON]:
            text = example.replace("{one}", one).replace("{base}", base).replace("{path}", path)
            parts.append(f"<pre>{escape(text)}</pre>")
    if operation.get("parameters"):
        rows = [(f"?{p['name']}=", p.get("description", ""), _choices(p["schema"])) for p in operation["parameters"]]
        parts.append(_table(("setting", "what it is", "values"), rows))
    kinds = ", ".join(f"<code>{escape(one)}</code>" for one in operation.get("requestBody", {}).get("content", ()))
    takes = f"Takes {kinds}; gives" if kinds else "Gives"
    parts.append(f"<p>{takes} <code>{escape(_shape(operation['responses']['200']))}</code>.</p>")
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    top = "".join(f'<th scope="col" style="text-align: left">{escape(cell)}</th>' for cell in head)
    body = "\n".join(
        f'<tr><th scope="row">{escape(first)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    return f'<div class="scroll"><table class="facts"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _choices(schema: dict[str, Any]) -> str:
    """The values that a parameter may have, in words."""
    inner = [part.get("items", part) for part in schema.get("anyOf", [schema])]
    options = [str(word) for part in inner for word in part.get("enum", [part["const"]] if "const" in part else [])]
    kind = ", ".join(options or [str(part["type"]) for part in inner if part.get("type") not in (None, "null")])
    return kind if schema.get("default") is None else f"{kind} (default: {schema['default']})"


def _shape(response: dict[str, Any]) -> str:
    """The name of what is given."""
    for kind, content in response.get("content", {}).items():
        return content.get("schema", {}).get("$ref", "").rpartition("/")[2] or str(kind)
    return ""
