"""Where PyTorch is not installed, one sentence says so, with the line that installs it."""

import subprocess
import sys

import pytest

from nescio._common.without_torch import WITHOUT_TORCH

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Blocked())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "code", ["import nescio; nescio.score", "from nescio import Guard", "import nescio; nescio.data"]
)
def test_the_first_use_says_so(code: str) -> None:
    done = run(code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {WITHOUT_TORCH}"
    assert "pip install torch" in WITHOUT_TORCH


@pytest.mark.parametrize(
    "command", [["methods"], ["serve"], ["demo"], ["score", "--model", "a:b", "--data", "x", "--out", "y.csv"]]
)
def test_a_command_says_so_in_one_line(command: list[str]) -> None:
    done = run(f"from nescio.cli import main; sys.exit(main({command!r}))")
    assert done.returncode == 2
    assert done.stderr == f"nescio: {WITHOUT_TORCH}\n"
    assert done.stdout == ""


def test_a_command_says_so_where_numpy_is_missing_too() -> None:
    done = run(
        "class Numpy:\n    def find_spec(self, name, path=None, target=None):\n        if name == 'numpy':\n"
        "            raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')\n"
        "sys.meta_path.insert(0, Numpy())\nfrom nescio.cli import main; sys.exit(main(['demo']))"
    )
    assert done.returncode == 2
    assert done.stderr == f"nescio: {WITHOUT_TORCH}\n"


def test_help_needs_no_torch() -> None:
    done = run("from nescio.cli import main; main(['score', '--help'])")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: nescio score")


def test_another_missing_package_is_not_taken_for_it() -> None:
    done = run(
        "sys.meta_path[0].__class__.find_spec = lambda self, name, path=None, target=None: "
        "(_ for _ in ()).throw(ModuleNotFoundError(name, name=name)) if name == 'numpy' else None\n"
        "import nescio; nescio.score"
    )
    assert done.returncode == 1
    assert "PyTorch is not installed" not in done.stderr
