"""The pages of the commands: `python docs/building/commands.py [NAME …]` writes what their examples print.

The examples are run one page after the other, each in a folder with the files of docs/commands/index.md, and what they
print is written between the markers of the page. A command that does not end by itself is asked once and then stopped.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

from nescio import cli

PAGES = Path(__file__).resolve().parents[1] / "commands"
BLOCK = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"<!-- output:begin -->.*?<!-- output:end -->", re.DOTALL)
PROGRESS = re.compile(
    r"nescio: (getting ready;|still at work after|this takes long \(|[^:]+ will take about [^:]+ more: "
    r"|[^:]+: [\d,]+( of [\d,]+)? \w+ after )"
)
STAYS, SECONDS, MOST = ("serve", "app"), 600, 40


def helps() -> dict[str, str]:
    """The help of the program, under "nescio", and of every command, as they print it."""
    with mock.patch.dict(os.environ, {"COLUMNS": "88", "NO_COLOR": "1"}):
        whole = cli.parser()
        (found,) = (
            action for action in whole._actions if isinstance(action, argparse._SubParsersAction)
        )
        return {
            "nescio": whole.format_help(),
            **{name: one.format_help() for name, one in found.choices.items()},
        }


def with_help(page: str) -> str:
    """The page with the help that it asks for; a command that there is not is an error."""

    def shown(found: re.Match[str]) -> str:
        called = "nescio" if found[1] == "nescio" else f"nescio {found[1]}"
        return f"## `{called} --help`\n\n```text\n{made[found[1]].rstrip()}\n```"

    if "<!-- help:" not in page:
        return page
    made = helps()
    return re.sub(r"<!-- help: (\w+) -->", shown, page)


def prepare(folder: Path) -> None:
    """Make the files of the examples."""
    for _, title, text in BLOCK.findall((PAGES / "index.md").read_text()):
        if title:
            (folder / title).write_text(text)
        elif "nescio" in text:
            (folder / "_prepare.py").write_text(text)
    subprocess.run([sys.executable, "_prepare.py"], cwd=folder, check=True)


def printed(command: str, folder: Path) -> str:
    """What a command prints; of one that stays, what it prints first."""
    words = [sys.executable, "-m", "nescio", *command.replace("\\\n", " ").split()[1:]]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    with (folder / "_printed").open("w") as file:
        running = subprocess.Popen(
            words, cwd=folder, stdout=file, stderr=subprocess.STDOUT, env=environment
        )
        began = time.monotonic()
        while running.poll() is None:
            time.sleep(0.2)
            if words[3] in STAYS and (
                "http://" in (folder / "_printed").read_text() or time.monotonic() - began > SECONDS
            ):
                time.sleep(1)
                running.terminate()
                running.wait()
    if words[3] not in STAYS and running.returncode != 0:
        raise RuntimeError(f"{command}: {(folder / '_printed').read_text()}")
    return (folder / "_printed").read_text()


def tidy(text: str) -> str:
    """Without progress, which depends on the machine, without the folder's name, and not too long."""
    lines = [line.rpartition("\r")[2].rstrip() for line in text.strip().splitlines()]
    lines = [line for line in lines if not PROGRESS.match(line)]
    if len(lines) > MOST:
        lines = [*lines[: MOST - 1], f"… and {len(lines) - MOST + 1} more lines"]
    return "\n".join(lines)


def written(page: str, folder: Path) -> str:
    """The page with what its commands print."""
    parts = []
    for language, _, text in BLOCK.findall(page):
        if language == "sh":
            for command in text.replace("\\\n", " ").strip().splitlines():
                parts.append(tidy(printed(command, folder).replace(f"{folder}/", "")))
    shown = "\n\n".join(part for part in parts if part)
    return OUTPUT.sub(
        lambda _: f"<!-- output:begin -->\n```text\n{shown}\n```\n<!-- output:end -->", page
    )


def main() -> None:
    """Run the examples of the pages that are named, or of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names
    for path in sorted(PAGES.glob("*.md")):
        if path.stem != "index" and (not names or path.stem in names):
            with tempfile.TemporaryDirectory() as folder:
                prepare(Path(folder))
                path.write_text(written(path.read_text(), Path(folder)))
            print(path.stem, flush=True)


if __name__ == "__main__":
    main()
