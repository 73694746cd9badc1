"""The README says what is true now: its tables come from the registry and from committed results."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = ["README.md", "docs/choose.md", "docs/measured.md", "docs/index.md", "benchmarks/README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_numbers_are_up_to_date(readme: ModuleType, page: str) -> None:
    text = (ROOT / page).read_text()
    assert readme.render(text, page) == text, "run: python benchmarks/readme.py"


def test_no_page_is_forgotten(readme: ModuleType) -> None:
    pages = (ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    marked = [p for p in pages if ":begin -->" in p.read_text()]
    marked = [path for path in marked if path.parent.name != "commands"]  # filled by docs/building/commands.py
    assert {str(path.relative_to(ROOT)) for path in marked} == set(readme.PAGES) | {
        "docs/limits.md"
    }  # benchmarks/escape.py fills that one
    assert "| regrad |" in (ROOT / "docs" / "choose.md").read_text().replace("`", "")
    assert "ResNet18" in readme.speed()


def test_a_stale_number_is_found(readme: ModuleType) -> None:
    for page, right, wrong in (("README.md", "92.51", "93.51"), ("docs/choose.md", "entropy", "entrpy")):
        text = (ROOT / page).read_text()
        assert right in text
        assert readme.render(text.replace(right, wrong), page) != text.replace(right, wrong)


def test_what_is_said_of_the_guard_is_the_mean_of_its_cells(readme: ModuleType) -> None:
    """The same mean, straight from the cells of the file."""
    result = json.loads((ROOT / "papers" / "results" / "guard-quick-1.json").read_text())
    found: dict[str, dict[tuple[str, str], list[float]]] = {}
    for part in result["parts"]:
        if part["title"].endswith("AUROC of foreign pictures"):
            for cell in part["cells"]:
                if "metrics" in cell:  # others say why there is no number
                    of_row = found.setdefault(cell["row"], {})
                    of_row.setdefault((part["title"], cell["column"]), []).append(100 * cell["metrics"]["auroc"])
    summary = readme.guard_summary()
    for name in ("guard", "vim", "knn", "gen", "regrad"):
        pairs = [sum(values) / len(values) for values in found[name].values()]
        assert len(pairs) == summary["pairs"]
        assert summary[name] == pytest.approx(sum(pairs) / len(pairs), abs=1e-9)


def test_the_first_screen() -> None:
    text = (ROOT / "README.md").read_text()
    lines = text.splitlines()
    assert "make demo" in text and "make test" in text and "No single score wins" in text
    assert len(lines) <= 140
    assert [line for line in lines if len(line) > 120] == []
    assert "docs/figures/first-screen.png" in lines[7]
    assert (ROOT / "docs" / "figures" / "first-screen.png").stat().st_size < 400_000


def test_the_figure_tells_what_the_guard_said() -> None:
    result = json.loads((ROOT / "docs" / "figures" / "first-screen.json").read_text())
    assert all(row["foreign"] == (row["p_value"] <= result["level"]) for row in result["rows"])
    assert not {row["package"] for row in result["rows"]} & set(result["packages"])  # whole sources are new to it
    assert all(flagged <= count for flagged, count in result["caught"].values())


def _verdict(sentence: str) -> str:
    """Which witness is the loudest is left to the processor's last digits where all of them speak."""
    return re.sub(r"^.+ (unlike|unusual) .+$", r"\1", sentence)


def test_the_quick_start_prints_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    printed = [line.partition("  ")[2].strip() for line in capsys.readouterr().out.splitlines() if " p = " in line]
    printed = [re.sub(r"^.*p = [\d.]+ +", "", line) for line in printed]
    (shown,) = re.findall(r"^```text\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert [_verdict(line) for line in printed] == [_verdict(line) for line in shown.splitlines()]
