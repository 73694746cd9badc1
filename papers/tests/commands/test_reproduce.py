import argparse
import json

import pytest

from nescio.cli.interrupting import Interrupted
from nescio.types import InputError
from nescio_papers import reproduce
from nescio_papers.commands import reproduce as command
from papers.tests.runner.test_page import results


def call(*arguments):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
    args = parser.parse_args(["reproduce", *map(str, arguments)])
    return args.run(args)


@pytest.fixture
def small(monkeypatch, tiny, models, tmp_path):
    real = reproduce.run
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "run", lambda study, scale, **more: real(tiny, scale, **more))
    return ["--scale", "smoke", "--models", models, "--work", "work", "--device", "cpu", "--seeds", "0"]


def test_the_list(capsys):
    assert call("--list") == 0
    lines = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    assert [lines[0][0], lines[0][1].strip()] == ["table1", "Out-of-distribution detection"]
    assert len({len(line[0] + line[1]) - len(line[1].strip()) for line in lines}) == 1  # one column under another


def test_a_study_is_run_and_written_under_a_new_name(small, tmp_path, capsys):
    assert call("table1", *small) == 0
    assert call("table1", *small) == 0
    place = tmp_path / "papers" / "results"
    names = sorted(path.name for path in place.iterdir())
    assert names == [f"tiny-smoke-{n}.{end}" for n in (1, 2) for end in ("html", "json", "md")]
    out, err = capsys.readouterr()
    assert "digits, seed 0: " in err and "Detection: A test of the machinery" in out and "tiny-smoke-2.json" in out
    assert call("page", place / "tiny-smoke-1.json", place / "tiny-smoke-2.json", "--out", "both.html") == 0
    both = (tmp_path / "both.html").read_text()
    assert both.count("tiny: A tiny study") == 1 and "joined with runs of" in both


def test_an_interrupt_says_how_to_go_on(small, monkeypatch):
    def interrupted(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "run", interrupted)
    with pytest.raises(Interrupted, match="what is finished lies in work: the same command goes on from there"):
        call("table1", *small)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected a study"),
        (["table99", "--scale", "smoke"], "expected one of the studies"),
        (["table1", "x.json"], "expected results only with `page`"),
        (["page"], "expected the files of results"),
        (["page", "x.json", "--out", "page.pdf"], "ends in .html or .md"),
        (["page", "none.json"], "cannot be read"),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        call(*arguments)


def test_a_page_in_markdown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.json").write_text(json.dumps(results()))
    assert call("page", "r.json", "--out", "r.md") == 0
    assert (tmp_path / "r.md").read_text().startswith("## table1: Out & in")


@pytest.mark.usefixtures("tiny")
def test_table1_at_the_smoke_scale(tmp_path):
    work = tmp_path / "work"
    assert call("table1", "--scale", "smoke", "--work", work, "--out", tmp_path / "out", "--device", "cpu") == 0
    found = reproduce.load(tmp_path / "out" / "table1-smoke-1.json")
    assert found["complete"] and all("metrics" in cell for part in found["parts"] for cell in part["cells"])
