"""What README and documentation show is so: code runs, commands parse, links lead somewhere, tutorials hold.

Blocks of a page run in order, in one namespace and one folder of their own. In front of a block may stand:

    <!-- run -->              a shell block whose `nescio` commands are run, and not only parsed
    <!-- not run: why -->     a Python block that is only compiled

A page may say which packages it needs, `<!-- needs: skorch lightning -->`: it is skipped where one is missing, and what
they warn of themselves is no failure. A Python block with a title, ```python title="file.py", is that file.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import nescio
from nescio import cli
from nescio_papers import reproduce

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
BUILDING = ("notebook", "tables", "formulas", "commands", "reference")
BUILDING += ("results", "claims", "claims_labels", "claims_propositions", "claims_limits", "claims_maps")
BUILDING += ("claims_networks", "claims_signs", "claims_pixels", "not_run", "contradictions", "evidence")
REPOSITORY = "https://github.com/nescio-uq/nescio"
LANGUAGES = {"python", "sh", "text"}
GENERATED = {*(f"tutorials/{path.stem}.md" for path in TUTORIALS)}


@dataclass(frozen=True)
class Block:
    """Code of a page: its language, its title, the remark in front of it, and the line it begins on."""

    language: str
    title: str
    remark: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    pattern = r"(?:<!-- (run|not run: [^>]+?) -->\n)?^```(\w*)(?: title=\"(.+?)\")?\n(.*?)^```$"
    found = [
        Block(m[2], m[3] or "", m[1] or "", m[4], page[: m.start(4)].count("\n") + 1)
        for m in re.finditer(pattern, page, re.MULTILINE | re.DOTALL)
    ]
    assert 2 * len(found) == len(re.findall("^ *```", page, re.MULTILINE)), "a block that cannot be read"
    return found


def commands(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def check(words: list[str], parser: Any) -> None:
    """A command of a shell block exists and has the arguments that are shown."""
    program, *rest = words
    if program == "nescio":
        if "--help" not in rest:  # which would print, and leave
            parser.parse_args(rest)
    elif program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
    elif program == "pip":
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert rest[0] == "install", words
        for extras in re.findall(r"\[(.+)\]", rest[1]):
            assert set(extras.split(",")) <= set(known), words
    elif program == "python":
        assert (ROOT / rest[0]).is_file(), words
    else:
        assert program == "curl", words


@pytest.fixture(scope="module")
def parser() -> Any:
    return cli.parser()


def run(page: str, name: str, parser: Any, given: dict[str, Any]) -> int:
    """Run the Python blocks of a page and check its commands; gives the number of blocks.

    Every block finds the given names as they are, and others as the blocks before it left them.
    """
    found, names = blocks(page), dict[str, Any]()
    for block in found:
        names |= given
        where = f"{name}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: expected one of {LANGUAGES}, got {block.language!r}"
        if block.language == "sh":
            for words in commands(block.text):
                try:
                    check(words, parser)
                except SystemExit:
                    pytest.fail(f"{where}: {shlex.join(words)} does not parse")
                if block.remark == "run":
                    assert cli.main(words[1:]) == 0, f"{where}: {shlex.join(words)}"
        elif block.language == "python":
            tree = ast.parse(block.text, where)
            if block.title:
                Path(block.title).write_text(block.text)
            elif not block.remark:
                exec(compile("\n" * block.line + block.text, where, "exec"), names)
            else:
                assert block.remark.startswith("not run: ") and tree.body, where
    return len(found)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory in which modules are found, and forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(1)
    before = set(sys.modules)
    yield tmp_path
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]
    importlib.invalidate_caches()
    torch.set_rng_state(state)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_blocks_of_a_page(path: Path, folder: Path, parser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = path.read_text()
    needed = [name for names in re.findall(r"^<!-- needs: (.+) -->$", page, re.MULTILINE) for name in names.split()]
    for name in needed:
        pytest.importorskip(name, reason=f"the page needs {name}")
    with warnings.catch_warnings():
        for name in needed:
            warnings.filterwarnings("ignore", module=rf"{name}\b")
        if path.parent.name == "commands" and path.stem != "index":
            run((path.parent / "index.md").read_text(), "index.md", parser, {"__name__": "__main__"})
        run(page, path.name, parser, {"__name__": "__main__"})
    assert "\t" not in page


def test_blocks_of_the_readme(folder: Path, parser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)

    def network(features: int = 25) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(features, 4), nn.ReLU(), nn.Linear(4, 3))

    x, y = torch.rand(2, 1, 5, 5), torch.arange(2)  # few and small: an audit goes away from each along each pixel
    train = [(torch.rand(30, 1, 5, 5), torch.arange(30) % 3) for _ in range(2)]
    posterior = nescio.posteriors.InsertedDropout(network(), samples=3)
    doubt_held_out = nescio.decompose(posterior.predict(torch.rand(200, 1, 5, 5)))
    given: dict[str, Any] = {
        "nescio": nescio,
        **{"model": network(), "model_a": network(), "model_b": network(), "model_c": network()},
        **{"net": network(75), "pictures": torch.rand(2, 3, 5, 5)},
        **{"x": x, "labels": y, "direction": torch.ones(1, 5, 5), "loader": [(x, y)], "train_loader": train},
        **{"u": torch.arange(2.0), "u_held_out": torch.arange(200.0), "correct": torch.arange(200) < 190},
        "reference": torch.rand(400, 1, 5, 5),
        **{"posterior": posterior, "doubt_held_out": doubt_held_out, "p_new": torch.full((4, 3), 1 / 3)},
    }
    assert run((ROOT / "README.md").read_text(), "README.md", parser, given) >= 6


def test_a_block_that_fails_is_found(folder: Path, parser: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        run("```python\n1 / 0\n```\n", "page", parser, {})
    with pytest.raises(pytest.fail.Exception, match="does not parse"):
        run("```sh\nnescio score --no-such-thing\n```\n", "page", parser, {})
    with pytest.raises(AssertionError, match="expected one of"):
        run("```\nplain\n```\n", "page", parser, {})
    with pytest.raises(AssertionError, match="cannot be read"):
        run("```python\n1\n", "page", parser, {})
    for line in ("pip install '.[nothing]'", "make nothing", "python nothing.py", "rm -rf /"):
        with pytest.raises(AssertionError):
            run(f"```sh\n{line}\n```\n", "page", parser, {})


def links(page: str) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "`code`", text)
    return [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r"^\[\w+\]: (\S+)$", text, re.MULTILINE)]


def anchors(page: str) -> set[str]:
    """Of the headings, as the site names them, and of what the reference documents."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}
    return slugs | set(re.findall(r"^::: (\S+)$", page, re.MULTILINE))


def source(target: Path) -> str | None:
    """The text behind a link: a page, or, for one that is made, the headings of what makes it; None: no such file."""
    if target.is_file():
        return target.read_text() if target.suffix == ".md" else ""
    if target.suffix == ".md" and target.is_relative_to(DOCS) and str(target.relative_to(DOCS)) in GENERATED:
        program = target.with_suffix(".py")
        return re.sub("^# ", "", program.read_text(), flags=re.MULTILINE) if program.is_file() else ""
    return None


def broken(path: Path, page: str) -> list[str]:
    found = []
    for link in links(page):
        if (own := re.match(rf"{REPOSITORY}/(?:blob|tree)/main/(.+)", link)) is not None:
            if source(ROOT / own[1]) is None and not (ROOT / own[1]).is_dir():
                found.append(link)
            continue
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        text = page if not file else source((path.parent / file).resolve())
        if text is None or (anchor and anchor not in anchors(text)):
            found.append(link)
    return found


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_links(path: Path) -> None:
    assert broken(path, path.read_text()) == []


def test_a_broken_link_is_found() -> None:
    assert broken(
        DOCS / "index.md",
        f"[a](none.md) [b](choose.md#none) [c](choose.md#what-was-measured) `[d](e.md)`\n\n"
        f"[e]: {REPOSITORY}/blob/main/LICENSE\n[f]: {REPOSITORY}/blob/main/none",
    ) == ["none.md", "choose.md#none", f"{REPOSITORY}/blob/main/none"]


@pytest.fixture(scope="module")
def building() -> Iterator[dict[str, ModuleType]]:
    sys.path.insert(0, str(DOCS / "building"))
    try:
        yield {name: importlib.import_module(name) for name in BUILDING}
    finally:
        sys.path.remove(str(DOCS / "building"))
        for name in BUILDING:
            sys.modules.pop(name, None)


def test_every_method_is_in_the_table(building: dict[str, ModuleType]) -> None:
    tables = building["tables"]
    shown, settings = (DOCS / "choose.md").read_text(), tables.settings()
    for name in nescio.scores.names():
        assert f"| `{name}` |" in shown and f"| `{name}` |" in settings
    assert "`power=2`" in settings
    for page in PAGES:
        for name in re.findall(r"<!-- table: (\w+) -->", page.read_text()):
            assert tables.TABLES[name]().startswith(("|", "#", "On", "AUROC", "Norms")), name


def test_functions_are_shown_and_not_the_files_of_their_name(building: dict[str, ModuleType]) -> None:
    functions = building["reference"].functions
    assert (
        functions("::: nescio.score\n") == "::: nescio.score\n" and functions("::: nescio.Guard") == "::: nescio.Guard"
    )
    made = functions("text\n\n::: nescio.plots.roc\n")
    assert (
        made
        == "text\n\n::: nescio.plots.roc.roc\n    options:\n      heading: nescio.plots.roc\n      toc_label: roc\n"
    )
    for room in ("guard", "mitigate", "plots", "serve", "app"):
        assert f"::: nescio.{'Guard' if room == 'guard' else room}" in (DOCS / "api" / f"{room}.md").read_text()


def test_every_command_has_its_page(building: dict[str, ModuleType]) -> None:
    commands = building["commands"]
    helps = commands.helps()
    assert {path.stem for path in commands.PAGES.glob("*.md")} == {*helps, "index"} - {"nescio"}
    for name in helps:
        path = commands.PAGES / f"{'index' if name == 'nescio' else name}.md"
        page = commands.with_help(path.read_text())
        assert f"usage: nescio {'' if name == 'nescio' else name}" in page and "<!-- help" not in page
        assert name == "nescio" or re.search(r"<!-- output:begin -->\n```text\n\S", page), (
            f"run {commands.__file__} {name}"
        )
    with pytest.raises(KeyError):
        commands.with_help("<!-- help: nothing -->")


def test_the_evidence_is_what_the_files_say(building: dict[str, ModuleType]) -> None:
    evidence = building["evidence"]
    page = evidence.page()
    assert page == (DOCS / "evidence.md").read_text(), "run: python docs/building/evidence.py"
    studies = set(reproduce.studies())
    for claim in evidence.claims():
        assert claim.shown in studies | {"escape"} and claim.of in evidence.PAPERS
        assert len(claim.claim) <= 42 and len(claim.ours) <= 48, "the table is meant for one screen"
    assert not re.search(r"REGrad\*(?!\*)", page), "Markdown takes the star for the begin of something"
    for name, (_, alt, picture) in evidence.figures().items():
        assert f"![{alt}](figures/{name}.svg)" in page and (DOCS / "figures" / f"{name}.svg").exists()
        assert "var(" not in picture and "currentColor" not in picture, "a file of its own has no colours of a page"
    for one in evidence.contradictions():
        assert f"- {one}" in page
    (star,) = (claim for claim in evidence.claims() if claim.claim == "UNGrad is good on MNIST")
    cells = json.loads((ROOT / "papers" / "results" / "polarity-quick-1.json").read_text())["parts"][0]["cells"]
    found = [
        c["metrics"]["auroc"]
        for c in cells
        if c["row"] == "UNGrad, ε = 0.0001" and c["column"].startswith("normalised, bright")
    ]
    first, second = (100 * sum(found[at::2]) / len(found[at::2]) for at in (0, 1))
    assert f"{first:.1f} / {second:.1f}" in star.why


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert listed == {str(path.relative_to(DOCS)) for path in PAGES} | GENERATED


def test_a_notebook(building: dict[str, ModuleType], tmp_path: Path) -> None:
    path = tmp_path / "small.py"
    path.write_text(
        "# %% [markdown]\n# # Title\n#\n#     a = b\n\n# %%\na = 1\nprint(a)\na + 1\n\n# %% A line\n"
        "from matplotlib.figure import Figure\n\nFigure()\n"
    )
    executed = building["notebook"].run(path)
    assert executed.outputs[1].text == "1\n2" and executed.names["a"] == 1
    assert executed.pictures[0].startswith(b"\x89PNG")
    page = executed.markdown("small")
    assert (
        page.startswith("# Title\n\n    a = b\n")
        and "![A line](small-1.png){ width=614 }" in page
        and "```text\n1\n2\n```" in page
    )
    cells = json.loads(json.dumps(executed.notebook()))["cells"]
    assert [cell["cell_type"] for cell in cells] == ["code", "markdown", "code", "code"]
    assert cells[2]["outputs"][0]["text"] == ["1\n", "2"]
    assert set(cells[3]["outputs"][0]["data"]) == {"image/png"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Σ_c √p_c ‖g_c‖₂^k", "Σ<sub>c</sub> √p<sub>c</sub> ‖g<sub>c</sub>‖₂<sup>k</sup>"),
        ("U_{z_i^s} of S_(k)", "U<sub>z<sub>i</sub><sup>s</sup></sub> of S<sub>(k)</sub>"),
        ("e^−γα/2, e^(−γα), h_nᵀ", "e<sup>−γα/2</sup>, e<sup>−γα</sup>, h<sub>n</sub>ᵀ"),
        (
            "`mc_aa` [a_b](c_d.md)\n\n    x_i\n\n```text\nx_i\n```\n",
            "`mc_aa` [a<sub>b</sub>](c_d.md)\n\n    x_i\n\n```text\nx_i\n```\n",
        ),
        ("x_i $x_i$\n\n$$\nx_i\n$$\n", "x<sub>i</sub> $x_i$\n\n$$\nx_i\n$$\n"),
    ],
)
def test_formulas(building: dict[str, ModuleType], text: str, shown: str) -> None:
    assert building["formulas"].raised(text) == shown


KATEX = """
const katex = require(process.argv[1]), wrong = [];
for (const formula of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
  try { katex.renderToString(formula, {displayMode: true, strict: "error"}); } catch (e) { wrong.push(String(e)); }
}
console.log(JSON.stringify(wrong));
"""


def test_katex_sets_every_formula(building: dict[str, ModuleType]) -> None:
    if shutil.which("node") is None:
        pytest.skip("needs node")
    typeset, found = building["formulas"].typeset, []
    for path in PAGES:
        page = path.read_text()
        found += typeset(page)
        if path.parent.name == "mathematics" or path.stem == "limits":
            assert not re.search(r"^    \S", page, re.MULTILINE), f"{path}: a formula stands between $$, not in code"
    assert len(found) > 60

    def wrong(formulas: list[str]) -> list[str]:
        command = ["node", "-e", KATEX, str(DOCS / "assets" / "katex" / "katex.min.js")]
        told = subprocess.run(command, input=json.dumps(formulas), capture_output=True, text=True, check=True)
        return list(json.loads(told.stdout))

    assert wrong(found) == []
    assert len(wrong([r"\fraction{1}{2}", r"\frac12"])) == 1


def test_a_notebook_says_what_is_wrong(building: dict[str, ModuleType], tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import this\n# %%\n1\n")
    with pytest.raises(ValueError, match="every line in a cell"):
        building["notebook"].read(path)
    path.write_text("# %%\nfrom matplotlib.figure import Figure\nFigure()\n")
    with pytest.raises(ValueError, match="what the figure shows"):
        building["notebook"].run(path)


def claims(name: str, found: dict[str, Any]) -> list[bool]:
    """What the text of a tutorial says of its numbers."""
    if name == "mistakes":
        wrong = found["confidence"][~found["right"]].mean()
        return [found["accuracy"] > 0.93, bool(wrong > 0.5), min(found["auroc"].values()) > 0.7]
    if name == "calibration":
        figures = found["figures"]
        before, after = figures(found["before"]), figures(found["after"])
        return [
            found["scaled"].temperature > 1,
            after["NLL"] < before["NLL"] and after["ECE"] < before["ECE"],
            after["accuracy"] == before["accuracy"],
            found["confident"]["after"] > 0.5,
        ]
    if name == "which-doubt":
        errors = {n: parts["errors"]["total"] for n, parts in found["aurocs"].items()}
        return [
            min(errors.values()) > 0.85,
            min(found["correlation"].values()) > 0.7,
            found["by_distance"]["foreign"] > 0.8,
        ]
    if name == "pixels":
        seen = {
            kind: (found["auroc"](found["entropy"][kind], where), found["auroc"](1 - p.map((48, 48)), where))
            for kind, where, p in ((k, found["inside"][k], found["verdict"][k]) for k in found["inside"])
        }
        return [
            found["of_digits"] > 0.6,
            seen["letters"][0] > 0.85 and seen["letters"][0] > seen["tiles"][0] + 0.05,
            seen["tiles"][1] > 0.75,
            float(found["missed"].mean()) < 0.1,
            bool(found["verdict"]["tiles"].unknown(0.05)[found["shown"][2][1]]),
        ]
    assert name == "newsroom"
    return [
        found["policy"].threshold is not None,
        found["wrong_share"] <= 0.1 < found["checked_share"],
        found["missed_share"] > 0.2,
        found["verdict"].alarm,
        [words.advice for words in found["words"]] == ["accept", "ask a person", "ask a person"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorials(path: Path, building: dict[str, ModuleType], folder: Path) -> None:
    executed = building["notebook"].run(path)
    assert executed.pictures and all(claims(path.stem, executed.names)), claims(path.stem, executed.names)
    assert not list(folder.iterdir())  # a tutorial leaves nothing behind


@pytest.mark.slow
def test_the_site_is_built_and_asks_nobody(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the site needs the extra docs: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        outside = re.findall(
            r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^\s\">]+", page.read_text()
        )
        assert [tag for tag in outside if "canonical" not in tag] == [], page
    for sheet in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"(?:@import|url\()[\s\"']*(?:https?:)?//", sheet.read_text()), sheet
    shutil.rmtree(tmp_path / "site")
