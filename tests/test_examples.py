import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_none_is_forgotten():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "quickstart",
        "own_model",
        "several_methods",
        "preprocessing",
    }


def test_quickstart(capsys):
    out = run("quickstart", capsys)
    shares = [int(share) for share in re.findall(r"(\d+)% foreign", out)]
    assert shares[0] <= 12 and min(shares[1:]) > 80  # 300 new digits at a level of 5 %
    assert re.findall(r"^(\w+) +p = ", out, re.MULTILINE) == ["fine", "foreign", "foreign"]
    doubts = [float(u) for u in re.search(r"doubt: \[(.+)\]", out)[1].split(", ")]
    assert min(doubts[1:]) > doubts[0] > 0


def test_own_model(capsys):
    scores = [float(value) for value in re.findall(r"\): ([\d.e+-]+)$", run("own_model", capsys), re.MULTILINE)]
    assert len(scores) == 3
    assert scores[2] == max(scores)


@pytest.mark.slow
def test_several_methods(capsys):
    rows = run("several_methods", capsys).splitlines()
    assert [row.split()[0] for row in rows] == ["regrad", "exgrad", "entropy", "energy"]
    assert all(float(row.split()[2].rstrip("%")) > 60 for row in rows)


def test_preprocessing(capsys):
    assert len(re.findall(r"\d[\d.]*", run("preprocessing", capsys).partition(":")[2])) == 4
