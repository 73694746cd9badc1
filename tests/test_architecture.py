"""The drawing of the architecture shows the rooms and the imports of the sources as they are."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
AGAIN = "the drawing is old: run `python docs/building/architecture.py`"


@pytest.fixture(scope="module")
def architecture() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs" / "building"))
    try:
        import architecture
    finally:
        sys.path.pop(0)
    return architecture


def test_the_committed_drawing_has_the_rooms_and_the_arrows_of_the_sources(architecture: ModuleType) -> None:
    drawn = architecture.FIGURE.read_text(encoding="utf-8")
    counts = architecture.imports()
    edges = architecture.arrows(counts)
    assert set(re.findall(r'data-edge="(\w+) (\w+)"', drawn)) == set(edges), AGAIN
    rooms = {room for pair in counts for room in pair} - set(architecture.ENTRANCES)
    assert set(re.findall(r'data-(?:room|floor)="(\w+)"', drawn)) == rooms, AGAIN
    assert "prefers-color-scheme: dark" in drawn


def test_the_table_of_rooms_names_those_that_there_are() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    package = ROOT / "src" / "nescio"
    rooms = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(named) == sorted(rooms - {"__init__", "__main__"})


def test_arrows_that_a_longer_way_implies_are_left_out_and_the_floor_too(architecture: ModuleType) -> None:
    counts = {("scores", "models"): 1, ("scores", "trace"): 2, ("trace", "models"): 3, ("trace", "types"): 9}
    assert architecture.arrows(counts) == {("models", "trace"): 3, ("trace", "scores"): 2}


def test_a_circle_and_a_floor_that_looks_up_are_refused(architecture: ModuleType) -> None:
    with pytest.raises(ValueError, match="no circle among the rooms, but got one through scores, trace"):
        architecture.arrows({("scores", "trace"): 1, ("trace", "scores"): 1})
    with pytest.raises(ValueError, match="the floor to import nothing from above"):
        architecture.arrows({("types", "trace"): 1})


def test_the_drawing_does_not_depend_on_the_order_of_the_files_and_no_boxes_meet(architecture: ModuleType) -> None:
    counts = {("scores", "models"): 1, ("scores", "trace"): 2, ("trace", "models"): 3, ("guard", "scores"): 1}
    counts |= {("guard", "data"): 1, ("attribution", "trace"): 4, ("cli", "guard"): 2, ("cli", "attribution"): 1}
    assert architecture.svg(counts) == architecture.svg(dict(reversed(counts.items())))
    boxes = list(architecture.place(architecture.arrows(counts)).boxes.values())
    for at, (x, y) in enumerate(boxes):
        for left, top in boxes[:at]:
            assert abs(x - left) >= architecture.WIDTH or abs(y - top) >= architecture.HEIGHT


def repeated_names(files: list[Path]) -> dict[str, list[str]]:
    """Return the files that share a name, by that name, without those that CONTRIBUTING.md lets repeat."""
    by_name: dict[str, list[str]] = {}
    for file in files:
        if file.name not in ("__init__.py", "base.py", "convolution.py") and file.parent.name != "cli":
            by_name.setdefault(file.name, []).append(file.as_posix())
    return {name: paths for name, paths in by_name.items() if len(paths) > 1}


def test_no_two_files_have_one_name_but_those_that_contributing_names() -> None:
    assert repeated_names(sorted((ROOT / "src" / "nescio").rglob("*.py"))) == {}
    assert repeated_names(
        [Path("data/rows.py"), Path("trace/rows.py"), Path("cli/rows.py"), Path("scores/base.py")]
    ) == {"rows.py": ["data/rows.py", "trace/rows.py"]}
