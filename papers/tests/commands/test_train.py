"""`nescio train` as a user runs it."""

from pathlib import Path

import pytest

from nescio.cli import main


def test_a_plan_is_trained_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    command = ["train", "digits", "--epochs", "1", "--limit", "200", "--out", str(tmp_path / "models"), "--seed", "2"]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert "digits, seed 2" in first and "% of the test pictures right, 1 epochs" in first
    assert main(command) == 0 and capsys.readouterr().out == first  # found, not trained again


def test_the_list_of_plans(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--list"]) == 0
    assert "the paper's ResNet18 and schedule" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected the name of a plan, got none; known: mnist"),
        (["mnits"], "got 'mnits'"),
        (["digits", "--epochs", "0"], "--epochs: expected a larger number"),
        (["mnist", "--data", "nowhere"], "mnist train"),
    ],
)
def test_what_cannot_be_trained(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", *arguments, "--out", str(tmp_path / "models")]) == 2
    assert words in capsys.readouterr().err
