"""The page of the interface, made from the OpenAPI description: plain HTML, which needs nothing from outside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nescio.report.render import render
from nescio.serve.errors import KINDS

Schema = Mapping[str, Any]
FILE = "curl -F file=@picture.png '{base}{path}'"
JSON = "curl -H 'Content-Type: application/json' \\\n  -d '{\"inputs\": [{one}, {one}]}' '{base}{path}'"
ITEMS = {"pictures": '{"image": "BASE64"}', "texts": '{"text": "so so"}'}


@dataclass(frozen=True)
class Operation:
    """One call: examples of it, its parameters (name, meaning, values), what it takes and what it gives."""

    method: str
    path: str
    summary: str
    examples: Sequence[str]
    parameters: Sequence[tuple[str, str, str]]
    takes: Sequence[str]
    gives: str


@dataclass(frozen=True)
class InterfacePage:
    """The whole page; `served` says which model answers, and is None where only those with a token may know."""

    title: str
    version: str
    description: str
    served: Mapping[str, str] | None
    token: bool
    operations: Sequence[Operation]
    errors: Sequence[tuple[int, str, str]]
    schemas: Mapping[str, str]


def page(schema: Schema, base: str, served: Mapping[str, str] | None, kind: str | None, token: bool) -> str:
    """Return the page of the interface.

    Args:
        schema: The OpenAPI description.
        base: The address of the service, for examples.
        served: What is served, by name; None to leave that out.
        kind: What an input is: pictures, texts or numbers; None where it is not known.
        token: Whether every request needs a token.

    Returns:
        The HTML.
    """
    info = schema["info"]
    content = InterfacePage(
        title=info["title"],
        version=info["version"],
        description=info["description"],
        served=served,
        token=token,
        operations=[
            _operation(path, method, operation, base, kind)
            for path, methods in schema["paths"].items()
            for method, operation in methods.items()
        ],
        errors=[(status, word, meaning) for status, (word, meaning) in KINDS.items()],
        schemas={
            name: json.dumps(shape, indent=1, ensure_ascii=False)
            for name, shape in schema.get("components", {}).get("schemas", {}).items()
        },
    )
    return render("interface.html.j2", "nescio.serve", page=content)


def _operation(path: str, method: str, operation: Schema, base: str, kind: str | None) -> Operation:
    examples = [] if "requestBody" not in operation else [FILE, JSON] if kind in (None, "pictures") else [JSON]
    one = ITEMS.get(str(kind), '{"numbers": [0.1, 0.2]}')
    return Operation(
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        examples=[text.replace("{one}", one).replace("{base}", base).replace("{path}", path) for text in examples],
        parameters=[
            (f"?{one['name']}=", one.get("description", ""), _choices(one["schema"]))
            for one in operation.get("parameters", ())
        ],
        takes=list(operation.get("requestBody", {}).get("content", ())),
        gives=_shape(operation["responses"]["200"]),
    )


def _choices(schema: Schema) -> str:
    """The values that a parameter may have, in words."""
    inner = [part.get("items", part) for part in schema.get("anyOf", [schema])]
    options = [str(word) for part in inner for word in part.get("enum", [part["const"]] if "const" in part else [])]
    kind = ", ".join(options or [str(part["type"]) for part in inner if part.get("type") not in (None, "null")])
    return kind if schema.get("default") is None else f"{kind} (default: {schema['default']})"


def _shape(response: Schema) -> str:
    """The name of what is given."""
    for kind, content in response.get("content", {}).items():
        return content.get("schema", {}).get("$ref", "").rpartition("/")[2] or str(kind)
    return ""
