"""What MkDocs calls while it builds: tutorials are run, tables are made, and pages get what nobody types."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import commands
import formulas
import notebook
import reference
import tables

_done: dict[tuple[str, str], notebook.Executed] = {}  # `mkdocs serve` builds again and again


def on_files(files: Files, *, config: Any, **_: Any) -> Files:
    """Add the page, the pictures and the notebook of every tutorial."""
    folder = Path(config["docs_dir"]) / "tutorials"
    for path in sorted(folder.glob("*.py")):
        key = (path.name, path.read_text(encoding="utf-8"))
        if key not in _done:
            _done[key] = notebook.run(path)
        executed, name = _done[key], path.stem
        made: dict[str, str | bytes] = {
            f"{name}.md": executed.markdown(name) + _downloads(name),
            f"{name}.ipynb": json.dumps(executed.notebook(), indent=1, ensure_ascii=False),
        }
        made |= {f"{name}-{at}.png": picture for at, picture in enumerate(executed.pictures, 1)}
        for file, content in made.items():
            files.append(File.generated(config, f"tutorials/{file}", content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put tables and help where a page asks for them (a name that is not known is an error), and set formulas."""
    markdown = reference.functions(commands.with_help(markdown))
    markdown = re.sub(r"<!-- table: (\w+) -->", lambda found: tables.TABLES[found[1]](), markdown)
    return (
        formulas.raised(markdown)
        if page.file.src_uri.startswith(("mathematics/", "tutorials/", "limits.md"))
        else markdown
    )


def _downloads(name: str) -> str:
    return (
        "\n---\n\nThis page was run when the site was built. To run it yourself: "
        f"[{name}.ipynb]({name}.ipynb) for Jupyter, [{name}.py]({name}.py) for Python.\n"
    )
