"""Commands of other packages: each test installs a package of its own, as files on the path."""

import sys
from pathlib import Path

import pytest

from nescio.cli import main

GOOD = """
import argparse

def add(commands, common):
    command = commands.add_parser("greet", help="say hello", parents=[common])
    command.add_argument("name")
    command.set_defaults(run=run)

def run(args):
    print(f"hello, {args.name}")
    return 7
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package with one module and one command, without pip."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(command: str, source: str, package: str = "plugged_example") -> None:
        (tmp_path / f"{package}.py").write_text(source)
        facts = tmp_path / f"{package}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[nescio.commands]\n{command} = {package}\n")

    yield installed
    for module in ("plugged_example", "plugged_other"):
        sys.modules.pop(module, None)


def helped(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return what `nescio --help` prints, and its lines on standard error."""
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    return capsys.readouterr()


def test_a_command_of_another_package_is_listed_and_run(install, capsys) -> None:
    install("greet", GOOD)
    assert main(["greet", "you"]) == 7
    assert capsys.readouterr().out == "hello, you\n"
    out, err = helped(capsys)
    assert "say hello" in out and "compare every method" in out and err == ""


def test_a_plug_in_is_not_imported_for_other_commands(install, capsys) -> None:
    install("greet", "raise RuntimeError('imported')")
    assert main(["methods"]) == 0
    assert capsys.readouterr().err == ""
    assert "plugged_example" not in sys.modules


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('first line\\nlast line')", "RuntimeError: last line"),
        ("import a_package_that_is_not_there", "ModuleNotFoundError: No module named 'a_package_that_is_not_there'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("", "AttributeError: module 'plugged_example' has no attribute 'add'"),
    ],
)
def test_a_broken_plug_in_is_named_and_breaks_nothing(install, capsys, source: str, reason: str) -> None:
    install("greet", source)
    install("wave", GOOD.replace("greet", "wave"), "plugged_other")
    line = (
        f"nescio: the plug-in 'greet' of plugged_example cannot be used ({reason}); mend it, or remove it: "
        "pip uninstall plugged_example\n"
    )
    out, err = helped(capsys)
    assert "say hello" in out and err == line
    assert main(["greet", "you"]) == 2
    assert capsys.readouterr() == ("", line)
    assert main(["wave", "you"]) == 7
    assert capsys.readouterr() == ("hello, you\n", "")


def test_a_built_in_command_is_never_replaced(install, capsys) -> None:
    install("methods", GOOD.replace("greet", "methods"))
    line = "nescio: the command 'methods' of plugged_example is not used, because nescio has one of that name"
    assert main(["methods"]) == 0
    out, err = capsys.readouterr()
    assert "regrad" in out and err.startswith(line) and err.count("\n") == 1
    assert helped(capsys)[1].startswith(line)


@pytest.mark.parametrize("command", ["train", "reproduce"])
def test_the_papers_commands_say_what_to_install_where_they_are_missing(command, capsys, monkeypatch) -> None:
    monkeypatch.setattr("nescio.plugins.plugins", lambda group: {})
    assert main([command, "--list"]) == 2
    assert capsys.readouterr().err == (
        f"nescio: the command '{command}' belongs to the package nescio_papers, which is not installed; install it: "
        "pip install ./papers, in nescio's repository\n"
    )


def test_an_unknown_command_lists_those_of_plug_ins_too(install, capsys) -> None:
    install("greet", GOOD)
    with pytest.raises(SystemExit):
        main(["gret"])
    assert "'gret'" in (err := capsys.readouterr().err) and "greet" in err
