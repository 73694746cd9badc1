"""Draw the rooms of the package from its real imports: `python docs/building/architecture.py` writes the figure anew.

A room is a folder or file directly below `src/nescio`. An import counts wherever it stands: at the top of a file, in a
function or under TYPE_CHECKING. An arrow leads from a room to one that imports it, and is thicker the more imports
there are. Left out are arrows that a longer way implies, and those from the rooms of `FLOOR`, which all may import.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "nescio"
FIGURE = ROOT / "docs" / "figures" / "architecture.svg"
FLOOR = ("notebook", "types", "_common", "inputs", "modes", "progress", "plugins")
"""The rooms that all others stand on."""
ENTRANCES = ("__init__", "__main__", "sklearn", "lightning")
"""Files that hand on what others define."""
ABOUT: Mapping[str, str] = {
    "notebook": "cards",
    "types": "errors, results",
    "_common": "checks, formatting, chunks",
    "inputs": "batches",
    "modes": "change and put back",
    "progress": "bars",
    "plugins": "what others add",
    "models": "any model: x → logits",
    "data": "files and tables",
    "evaluate": "metrics on arrays",
    "trace": "the gradient engine",
    "training": "one training loop",
    "posteriors": "over the weights",
    "decide": "rules with promises",
    "dense": "pixels and tokens",
    "quantities": "what methods need",
    "scores": "one file a method",
    "scoring": "score() and fit()",
    "guard": "foreign or not?",
    "attribution": "maps of doubt",
    "mitigate": "acting on maps",
    "limits": "far from the data",
    "plots": "figures of results",
    "report": "offline pages",
    "zoo": "small architectures",
    "specs": "what to open",
    "findings": "what a report says",
    "batch": "large data, in parts",
    "demo": "the demonstration",
    "doors": "to other libraries",
    "serve": "HTTP service",
    "app": "web page",
    "cli": "the command line",
}
WIDTH, HEIGHT, GAP, SPACE = (
    138,
    52,
    22,
    44,
)  # of a box, between the boxes of a layer, between layers
MARGIN, SWEEPS = 24, 24
Edge = tuple[str, str]
STYLE = """
  svg { --paper: #fbfbf9; --card: #ffffff; --text: #20242c; --quiet: #5b6270; --line: #c3c9d2; --accent: #0072b2; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #14161a; --card: #1f232a; --text: #e8eaee; --quiet: #a3abb8; --line: #454c58; --accent: #4fb3f0; }
  }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--text); }
  .name { font-size: 17px; font-weight: 600; } .about { font-size: 12px; fill: var(--quiet); }
  .paper { fill: var(--paper); } .box { fill: var(--card); stroke: var(--line); }
  .edge { fill: none; stroke: var(--accent); stroke-opacity: 0.55; stroke-linecap: butt; }
  .head { fill: var(--accent); fill-opacity: 0.8; }
"""


@dataclass(frozen=True)
class Drawing:
    """Where everything stands: the upper left corner of each box, and the points that each arrow goes through."""

    boxes: Mapping[str, tuple[float, float]]
    arrows: Mapping[Edge, Sequence[tuple[float, float]]]
    width: float
    height: float


def imports(package: Path = PACKAGE) -> Counter[Edge]:
    """Count the imports of each room from each other, as (importing, imported)."""
    rooms = {
        path.stem
        for path in package.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    counts: Counter[Edge] = Counter()
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package)
        room = path.parts[0].removesuffix(".py")
        for module in _modules(
            ast.parse(file.read_text(encoding="utf-8")), (package.name, *path.parts[:-1])
        ):
            top, _, rest = module.partition(".")
            other = rest.partition(".")[0]
            if top == package.name and other in rooms and other != room:
                counts[room, other] += 1
    return counts


def _modules(tree: ast.Module, parents: Sequence[str]) -> Iterable[str]:
    """The modules that a file imports, by their whole names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            yield from (
                (f"{module}.{alias.name}" for alias in node.names)
                if "." not in module
                else (module,)
            )


def arrows(counts: Mapping[Edge, int]) -> dict[Edge, int]:
    """The arrows of the drawing, from imported to importing: no floor, no entrance, none that a longer way implies."""
    left_out = {*FLOOR, *ENTRANCES}
    if wrong := [pair for pair in counts if pair[0] in FLOOR and pair[1] not in FLOOR]:
        raise ValueError(f"expected the floor to import nothing from above, but got {wrong}")
    every = {(b, a): count for (a, b), count in counts.items() if not {a, b} & left_out}
    after: dict[str, set[str]] = {}
    for start, end in every:
        after.setdefault(start, set()).add(end)

    def reached(start: str, seen: set[str]) -> set[str]:
        for room in after.get(start, set()) - seen:
            seen |= {room}
            reached(room, seen)
        return seen

    beyond = {room: reached(room, set()) for room in after}
    if circles := sorted(room for room, others in beyond.items() if room in others):
        raise ValueError(
            f"expected no circle among the rooms, but got one through {', '.join(circles)}"
        )
    return {
        (start, end): count
        for (start, end), count in sorted(every.items())
        if not any(end in beyond.get(between, ()) for between in after[start] - {end})
    }


def layers(edges: Iterable[Edge]) -> dict[str, int]:
    """The layer of each room: right of all that it imports, and no further left than its arrows ask for."""
    edges = list(edges)
    rooms = sorted({room for edge in edges for room in edge})
    layer = dict.fromkeys(rooms, 0)
    for _ in rooms:
        for start, end in edges:
            layer[end] = max(layer[end], layer[start] + 1)
    for _ in rooms:
        for room in rooms:
            ends = [end for start, end in edges if start == room]
            starts = [start for start, end in edges if end == room]
            if ends and len(ends) >= len(starts):
                layer[room] = min(layer[end] for end in ends) - 1
    return layer


def place(edges: Mapping[Edge, int]) -> Drawing:
    """Find places for boxes and arrows: a long arrow gets a place of its own in each layer that it crosses."""
    layer = layers(edges)
    chains = {edge: [edge[0], *_between(edge, layer), edge[1]] for edge in edges}
    at = layer | {
        name: layer[edge[0]] + k for edge, chain in chains.items() for k, name in enumerate(chain)
    }
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    order = _ordered(
        [sorted(name for name in at if at[name] == k) for k in range(max(at.values()) + 1)], links
    )
    sizes = {name: float(HEIGHT) if name in layer else 8.0 for name in at}
    middle = _heights(order, links, sizes)
    left = {name: MARGIN + at[name] * (WIDTH + SPACE) for name in at}
    boxes = {room: (left[room], middle[room] - HEIGHT / 2) for room in sorted(layer)}
    paths = {}
    for edge, chain in chains.items():
        points = [(left[edge[0]] + WIDTH, middle[edge[0]])]
        for name in chain[1:-1]:
            points += [(left[name], middle[name]), (left[name] + WIDTH, middle[name])]
        paths[edge] = [*points, (left[edge[1]], middle[edge[1]])]
    width = 2 * MARGIN + len(order) * (WIDTH + SPACE) - SPACE
    return Drawing(boxes, paths, width, max(middle.values()) + HEIGHT / 2 + MARGIN)


def _between(edge: Edge, layer: Mapping[str, int]) -> list[str]:
    return [f"{edge[0]}>{edge[1]}>{k}" for k in range(layer[edge[0]] + 1, layer[edge[1]])]


def _ordered(order: list[list[str]], links: Sequence[Edge]) -> list[list[str]]:
    """The order with the fewest crossings among those that sweeps by the mean of the neighbours go through."""
    best, fewest = order, _crossings(order, links)
    for sweep in range(SWEEPS):
        rank = {name: k for names in order for k, name in enumerate(names)}
        forward = sweep % 2 == 0
        for k in range(len(order)) if forward else range(len(order) - 1, -1, -1):
            near: dict[str, list[int]] = {}
            for start, end in links:
                near.setdefault(*((end, []) if forward else (start, []))).append(
                    rank[start if forward else end]
                )
            order = [*order]
            order[k] = sorted(
                order[k], key=lambda name: (_mean(near.get(name, [rank[name]])), name)
            )
            rank |= {name: at for at, name in enumerate(order[k])}
        if (crossings := _crossings(order, links)) < fewest:
            best, fewest = order, crossings
    return best


def _crossings(order: Sequence[Sequence[str]], links: Sequence[Edge]) -> int:
    rank = {name: (column, k) for column, names in enumerate(order) for k, name in enumerate(names)}
    by_column: dict[int, list[tuple[int, int]]] = {}
    for start, end in links:
        by_column.setdefault(rank[start][0], []).append((rank[start][1], rank[end][1]))
    return (
        sum((a - c) * (b - d) < 0 for own in by_column.values() for a, b in own for c, d in own)
        // 2
    )


def _heights(
    order: Sequence[Sequence[str]], links: Sequence[Edge], sizes: Mapping[str, float]
) -> dict[str, float]:
    """The middle of each place: as near to its neighbours as the order and the gaps allow."""
    middle: dict[str, float] = {}
    for names in order:
        top = float(MARGIN)
        for name in names:
            middle[name] = top + sizes[name] / 2
            top += sizes[name] + GAP
    near: dict[str, list[str]] = {}
    for start, end in links:
        near.setdefault(start, []).append(end)
        near.setdefault(end, []).append(start)
    for _ in range(200):
        for names in order:
            wanted = {
                name: _mean([middle[other] for other in near.get(name, [name])]) for name in names
            }
            for name in names:
                middle[name] += 0.5 * (wanted[name] - middle[name])
            _apart(names, middle, sizes)
    top = min(middle[name] - sizes[name] / 2 for name in middle)
    return {name: round(value - top + MARGIN, 1) for name, value in middle.items()}


def _apart(names: Sequence[str], middle: dict[str, float], sizes: Mapping[str, float]) -> None:
    """Move neighbours of a layer apart until all gaps are wide enough, each of two as far as the other."""
    for _ in range(50):
        for upper, lower in pairwise(names):
            lacking = (sizes[upper] + sizes[lower]) / 2 + GAP - (middle[lower] - middle[upper])
            if lacking > 0:
                middle[upper] -= lacking / 2
                middle[lower] += lacking / 2


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def svg(counts: Mapping[Edge, int]) -> str:
    """The drawing as SVG, for light and dark."""
    edges = arrows(counts)
    drawing = place(edges)
    height = drawing.height + 74
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width:g} {height:g}" role="img" '
        'aria-label="The rooms of nescio, from left to right; arrows lead from a room to those that import it">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{drawing.width:g}" height="{height:g}" rx="12"/>',
    ]
    for edge, points in drawing.arrows.items():
        parts.append(_arrow(edge, points, min(6.0, 1.2 + 0.35 * edges[edge] ** 0.8)))
    for room, (x, y) in drawing.boxes.items():
        parts.append(
            f'<g data-room="{room}">{_box(x, y, WIDTH)}{_words(room, x + WIDTH / 2, y)}</g>'
        )
    whole, y = drawing.width - 2 * MARGIN, drawing.height + 4
    parts.append(_box(MARGIN, y, whole))
    for k, room in enumerate(FLOOR):
        parts.append(
            f'<g data-floor="{room}">{_words(room, MARGIN + (k + 0.5) * whole / len(FLOOR), y)}</g>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(x: float, y: float, width: float) -> str:
    return f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="8"/>'


def _words(room: str, x: float, y: float) -> str:
    lines = (("name", y + 22, room), ("about", y + 40, escape(ABOUT[room])))
    return "".join(
        f'<text class="{style}" x="{x:g}" y="{height:g}" text-anchor="middle">{text}</text>'
        for style, height, text in lines
    )


def _arrow(edge: Edge, points: Sequence[tuple[float, float]], width: float) -> str:
    """A smooth line through the points, level at each of them, with a head."""
    (x, y), *rest = points
    head = 5 + width
    end_x, end_y = rest[-1]
    path = f"M{x:g} {y:g}"
    for nx, ny in [*rest[:-1], (end_x - head + 1, end_y)]:
        half = (x + nx) / 2
        path += f" C{half:g} {y:g} {half:g} {ny:g} {nx:g} {ny:g}"
        x, y = nx, ny
    tip = f"M{end_x:g} {end_y:g}l{-head:g} {-head / 2:g}v{head:g}z"
    return (
        f'<g data-edge="{edge[0]} {edge[1]}"><path class="edge" stroke-width="{width:.1f}" d="{path}"/>'
        f'<path class="head" d="{tip}"/></g>'
    )


if __name__ == "__main__":
    FIGURE.write_text(svg(imports()), encoding="utf-8")
