"""Data moves one way: a room imports only the rooms that the table allows, and core loads with torch and numpy alone.

The sources are read with `ast`, so imports inside functions, under TYPE_CHECKING, relative ones and
`import_module("nescio.…")` all count for the arrow.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import nescio

PACKAGE = Path(nescio.__file__).parent

# room -> the rooms that it may import (itself always)
ARROW: dict[str, set[str]] = {
    "notebook": set(),
    "types": set(),
    "_common": {"types"},
    "progress": set(),
    "inputs": {"types"},
    "modes": {"types"},
    "models": {"types", "inputs", "modes"},
    "plugins": set(),
    "data": {"types", "inputs", "plugins"},
    "trace": {"types", "inputs", "modes", "models"},
    "training": {"types", "inputs", "modes", "progress", "models", "data"},
    "posteriors": {"types", "inputs", "modes", "progress", "models", "data", "trace", "training"},
    "quantities": {"types", "inputs", "modes", "models", "trace", "progress", "posteriors"},
    "scores": {"types", "quantities"},
    "evaluate": {"types"},
    "decide": {"types", "data"},
    "plots": {"types", "evaluate", "decide"},
    "report": {"types", "evaluate", "plots"},
    "zoo": {"types", "inputs", "modes", "progress", "models", "data", "training", "plugins"},
}
ARROW["attribution"] = {*ARROW["posteriors"], "posteriors", "scores"}
ARROW["mitigate"] = {*ARROW["attribution"], "attribution", "evaluate"}
ARROW["guard"] = {*ARROW["quantities"], "quantities", "scores", "decide", "data"}
ARROW["dense"] = {*ARROW["guard"], "guard"}
ARROW["scoring"] = {*ARROW["quantities"], "quantities", "scores", "dense"}
ARROW["specs"] = {*ARROW["dense"], "dense", "plugins", "zoo"}
ARROW["batch"] = {*ARROW["specs"], "specs", "scoring", "attribution", "evaluate", "plots"}
ARROW["findings"] = {*ARROW["guard"], "guard", "dense", "scoring", "attribution", "evaluate", "report"}
ARROW["demo"] = {*ARROW["findings"], "findings", "zoo"}
ARROW["limits"] = set(ARROW) - {"specs", "batch", "findings", "demo"}
ARROW["serve"] = set(ARROW) - {"batch", "findings", "demo"}
ARROW["app"] = set(ARROW) - {"batch", "findings", "demo"}
ARROW["doors"] = set(ARROW) - {"serve", "app"}  # to other libraries
ARROW["sklearn"] = ARROW["lightning"] = {"doors"}  # the names of two doors, loaded on demand
ARROW["cli"] = set(ARROW)
ARROW["__main__"] = {"cli"}
ARROW["__init__"] = set(ARROW) - {"__main__"}  # the public names, loaded on demand
for room in set(ARROW) - {"notebook", "types", "_common"}:
    ARROW[room].add("_common")
for room in set(ARROW) - {"notebook"}:
    ARROW[room].add("notebook")

# the stages of the engine: each may import those before it
STAGES = ("runtime", "backward", "norms", "rules", "probe", "estimate")

CORE = {
    *("types", "_common", "inputs", "progress", "modes", "models", "trace", "training", "posteriors", "quantities"),
    *("scores", "scoring", "dense", "guard", "evaluate", "decide", "specs", "batch", "cli"),
}
CORE_MAY_LOAD = sys.stdlib_module_names | {"torch", "numpy", "nescio"}

# module -> what it may load besides: kernels are written in Triton's own decorators, so it cannot wait for a function.
# The module itself is loaded on demand (`trace.backward.pull.kernels`), and does without Triton.
MAY_LOAD_TOO = {"trace/runtime/kernels/base.py": {"triton"}}

OPTIONAL = [
    "sklearn",
    "scipy",
    "matplotlib",
    "PIL",
    "pyarrow",
    "pandas",
    "safetensors",
    "torchvision",
    "tqdm",
    "timm",
    "transformers",
    "datasets",
    "ray",
    "onnx",
    "onnx2torch",
    "onnxruntime",
    "skorch",
    "lightning",
    "pytorch_lightning",
    "pytorch_ood",
]


def sources(package: Path) -> Iterator[tuple[str, str, ast.Module]]:
    """Gives (room, module path, syntax tree) of every source file of the package."""
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package)
        room = path.parts[0].removesuffix(".py")
        yield room, path.as_posix(), parsed(file.read_text(encoding="utf-8"), str(file))


parsed = cache(ast.parse)


def imported_modules(tree: ast.AST, path: str) -> Iterator[tuple[int, str]]:
    """Gives (line, absolute dotted name) of everything that is imported anywhere in the tree.

    `from a import b` gives `a.b`: b may be a module.
    """
    parents = ["nescio", *Path(path).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0]
            if (
                function in {"import_module", "__import__"}
                and isinstance(name, ast.Constant)
                and isinstance(name.value, str)
            ):
                yield node.lineno, name.value


def room_of(name: str, arrow: dict[str, set[str]]) -> str | None:
    """The room that a dotted name reaches into: None outside nescio, `__init__` for the package's own names."""
    parts = name.split(".")
    if parts[0] != "nescio" or name == "nescio.__version__":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in arrow else "__init__"


def violations(package: Path, arrow: dict[str, set[str]]) -> list[str]:
    """Gives a line for every module outside the table and for every import against the arrow."""
    found = []
    for room, path, tree in sources(package):
        if room not in arrow:
            found.append(f"{path}: the room {room!r} is not in the table")
            continue
        for line, name in imported_modules(tree, path):
            target = room_of(name, arrow)
            if target is not None and target != room and target not in arrow[room]:
                found.append(f"{path}:{line}: {room} may not import {target} ({name})")
    return found


def stage_violations(package: Path) -> list[str]:
    """Gives a line for every import of a stage of the engine that comes later, or of what is outside of all stages."""
    lines = []
    for room, path, tree in sources(package):
        stage = Path(path).parts[1] if room == "trace" else ""
        if stage not in STAGES:
            continue
        for line, name in imported_modules(tree, path):
            if not name.startswith("nescio.trace."):
                continue
            target = name.split(".")[2]
            if target not in STAGES[: STAGES.index(stage) + 1]:
                lines.append(f"{path}:{line}: {stage} may not import {target} ({name})")
    return lines


def loaded_with_module(tree: ast.Module) -> Iterator[ast.stmt]:
    """Gives the import statements that run when the module is loaded: not those in functions or under TYPE_CHECKING."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            todo.extend(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))


def heavy_imports(package: Path, rooms: set[str]) -> list[str]:
    """Gives a line for every import in these rooms that loads more than torch and numpy with the module."""
    found = []
    for room, path, tree in sources(package):
        if room in rooms:
            for statement in loaded_with_module(tree):
                for line, name in imported_modules(statement, path):
                    if name.split(".")[0] not in CORE_MAY_LOAD | MAY_LOAD_TOO.get(path, set()):
                        found.append(f"{path}:{line}: {name} must be imported inside the function that uses it")
    return found


def test_every_import_follows_the_arrow() -> None:
    assert violations(PACKAGE, ARROW) == []


def test_the_library_does_not_know_the_papers() -> None:
    importers = [
        f"{path}:{line}"
        for _, path, tree in sources(PACKAGE)
        for line, name in imported_modules(tree, path)
        if name.split(".")[0] == "nescio_papers"
    ]
    assert importers == []


def test_the_table_has_no_circle() -> None:
    for room, allowed in ARROW.items():
        for other in allowed:
            assert room not in ARROW[other], f"{room} and {other} may import each other"


def test_the_stages_of_the_engine_import_only_those_before_them() -> None:
    assert stage_violations(PACKAGE) == []


def test_core_loads_with_torch_and_numpy_alone() -> None:
    assert heavy_imports(PACKAGE, CORE) == []


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A made-up package that keeps the rules; each test below breaks one of them."""
    write(tmp_path, "types.py", "import math\nimport torch\n")
    write(tmp_path, "scores/__init__.py", "from nescio.types import Score\nfrom .entropy import Entropy\n")
    write(tmp_path, "scores/entropy.py", "from ..types import Score\nfrom nescio import __version__\n")
    write(tmp_path, "batch/streaming.py", "from nescio import scores, types\n\ndef plot():\n    import matplotlib\n")
    return tmp_path


def write(package: Path, path: str, text: str) -> None:
    file = package / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def test_a_house_in_order_passes(house: Path) -> None:
    assert violations(house, ARROW) == []
    assert heavy_imports(house, CORE) == []


@pytest.mark.parametrize(
    "text",
    [
        "import nescio.batch.streaming\n",
        "from nescio import batch\n",
        "from nescio.batch import streaming\n",
        "from ..batch.streaming import score\n",
        "from .. import batch\n",
        "def late():\n    from nescio.batch import streaming\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nescio.batch\n",
        "import importlib\nimportlib.import_module('nescio.batch')\n",
    ],
)
def test_an_import_against_the_arrow_is_found(house: Path, text: str) -> None:
    write(house, "scores/bad.py", text)
    (line,) = violations(house, ARROW)
    assert line.startswith("scores/bad.py:")
    assert "scores may not import batch" in line


def test_a_stage_that_imports_a_later_one_is_found(house: Path) -> None:
    write(house, "trace/rules/good.py", "from nescio.trace import norms\nfrom nescio.trace.rules import base\n")
    write(house, "trace/api.py", "from nescio.trace.estimate import table\n")
    assert stage_violations(house) == []
    write(house, "trace/rules/bad.py", "def late():\n    from nescio.trace.probe import graph\n")
    write(house, "trace/norms/bad.py", "from nescio.trace import api\n")
    assert [line.split(":")[0] for line in stage_violations(house)] == ["trace/norms/bad.py", "trace/rules/bad.py"]


@pytest.mark.parametrize("text", ["import nescio\n", "from nescio import score\n", "from .. import methods\n"])
def test_a_detour_over_the_public_names_is_found(house: Path, text: str) -> None:
    write(house, "scores/bad.py", text)
    (line,) = violations(house, ARROW)
    assert "scores may not import __init__" in line


def test_a_module_outside_the_table_is_found(house: Path) -> None:
    write(house, "utils.py", "")
    assert violations(house, ARROW) == ["utils.py: the room 'utils' is not in the table"]


@pytest.mark.parametrize(
    "text",
    [
        "import tqdm\n",
        "from torchvision.models import resnet18\n",
        "try:\n    import scipy\nexcept ImportError:\n    scipy = None\n",
        "class Lazy:\n    import pandas\n",
    ],
)
def test_a_heavy_import_in_core_is_found(house: Path, text: str) -> None:
    write(house, "scores/heavy.py", text)
    (line,) = heavy_imports(house, CORE)
    assert line.startswith("scores/heavy.py:")


def test_only_the_kernels_may_load_triton_and_nothing_else(house: Path) -> None:
    write(
        house,
        "trace/runtime/kernels/base.py",
        "try:\n    import triton\n    import triton.language as tl\nexcept ImportError:\n    pass\n",
    )
    assert heavy_imports(house, CORE) == []
    write(house, "trace/runtime/kernels/base.py", "import triton\nimport scipy\n")
    write(house, "trace/other.py", "import triton\n")
    write(house, "trace/rules/kernels.py", "import triton.language as tl\n")
    found = heavy_imports(house, CORE)
    assert sorted(line.split(":")[0] for line in found) == [
        "trace/other.py",
        "trace/rules/kernels.py",
        "trace/runtime/kernels/base.py",
    ]
    assert "scipy" in next(line for line in found if line.startswith("trace/runtime/kernels/base.py"))


def test_nothing_loads_the_kernels_with_itself() -> None:
    """So Triton is loaded on a GPU only."""
    importers = [
        (path, name)
        for _, path, tree in sources(PACKAGE)
        for statement in loaded_with_module(tree)
        for _, name in imported_modules(statement, path)
        if name.startswith("nescio.trace.runtime.kernels") and not path.startswith("trace/runtime/kernels/")
    ]
    assert importers == []


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a fresh interpreter in which the optional packages cannot be imported."""
    block = f"import sys\nfor name in {OPTIONAL!r}:\n    sys.modules[name] = None\n"
    return subprocess.run([sys.executable, "-W", "error", "-c", block + program], capture_output=True, text=True)


def test_core_works_without_the_optional_packages_and_on_a_cpu_without_kernels() -> None:
    program = """
import nescio.trace, torch
print([name for name in sys.modules if name == "nescio.trace.runtime.kernels" or name.partition(".")[0] == "triton"])
model = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.ReLU())
assert nescio.trace.class_gradients(model, torch.randn(2, 4)).norms.any()
print("nescio.trace.runtime.kernels" in sys.modules)  # Triton may be: torch.func itself loads it
from nescio import Classifier, ClassGradients, score
assert nescio.score is score and callable(nescio.methods)
for name in ("trace", "scores", "types", "models", "quantities", "batch"):
    getattr(nescio, name)
u = nescio.score(torch.nn.Linear(4, 3), torch.ones(2, 4))
assert u.shape == (2,) and u.dtype == torch.float64
for name in ["triton", *(name for name in sys.modules if name.startswith("triton."))]:
    sys.modules[name] = None
from nescio.trace.runtime import kernels
print(kernels.ready(torch.zeros(1)))  # they do without Triton
print("done")
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["[]", "False", "False", "done"]


def test_the_optional_packages_are_really_blocked() -> None:
    attempt = "    try: __import__(name)\n    except ModuleNotFoundError: print(name)\n"
    done = run(f"for name in {OPTIONAL!r}:\n{attempt}")
    assert done.returncode == 0 and done.stdout.split() == list(OPTIONAL), done.stderr


def test_import_of_nescio_loads_no_room() -> None:
    done = run(
        "import nescio\nprint([name for name in sys.modules if name.startswith('nescio.')], 'torch' in sys.modules)"
    )
    assert done.stdout.strip() == "[] False", done.stderr


def test_an_unknown_name_is_an_attribute_error_that_lists_the_names() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'scoer'; it has Guard, score, fit, methods"):
        nescio.scoer


def test_every_public_name_is_imported_for_type_checkers() -> None:
    """`__getattr__` gives Any, so a name that is not imported has no type for users."""
    tree = parsed((PACKAGE / "__init__.py").read_text(encoding="utf-8"), "__init__.py")
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    typed = {
        alias.asname or alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(nescio.__all__) - {"__version__"} == typed


def test_dir_shows_the_public_names() -> None:
    assert set(nescio.__all__) <= set(dir(nescio))


def test_the_version_is_that_of_the_installed_package() -> None:
    from importlib.metadata import version

    assert nescio.__version__ == version("nescio")
