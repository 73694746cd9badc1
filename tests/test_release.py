"""What a release needs: one version, links, and files for GitHub that name what is really here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import nescio

ROOT = Path(__file__).parents[1]
HOME = "https://github.com/nescio-uq/nescio"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def project(folder: Path = ROOT) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text())


def test_the_version_of_nescio_stands_in_one_place():
    described = project()
    assert "version" not in described["project"]
    assert described["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "nescio.__version__"}


def test_what_must_repeat_the_version_has_the_same():
    assert project(ROOT / "papers")["project"]["version"] == nescio.__version__
    assert read(ROOT / "CITATION.cff")["version"] == nescio.__version__
    newest = re.search(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == nescio.__version__


def test_a_package_index_is_told_whose_it_is_and_where():
    described = project()["project"]
    assert described["authors"] and described["license"] == read(ROOT / "CITATION.cff")["license"]
    assert {"Homepage", "Documentation", "Repository", "Issues", "Changelog"} <= set(described["urls"])
    assert described["urls"]["Repository"] == read(ROOT / "CITATION.cff")["repository-code"] == HOME


def test_the_pythons_that_are_promised_are_those_that_are_tested():
    promised = {c.rpartition(" ")[2] for c in project()["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)}
    jobs = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]
    assert set(jobs["python"]["strategy"]["matrix"]["python"]) == promised
    lowest = re.search(r"torch>=([\d.]+)", " ".join(project()["project"]["dependencies"]))
    assert lowest is not None and jobs["torch"]["strategy"]["matrix"]["torch"] == [f"{lowest[1]}.0", "newest"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_a_workflow_calls_targets_that_exist_and_may_do_no_more_than_it_must(path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = set(re.findall(r"\bmake ([a-z-]+)", path.read_text()))
    assert called and called <= targets
    assert read(path)["permissions"] == {"contents": "read"}


def test_a_release_keeps_no_password():
    publish = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"] == "pypi"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


@pytest.mark.parametrize("path", [f for f in FORMS if f.stem != "config"], ids=lambda p: p.stem)
def test_a_form_for_issues_asks_something_that_must_be_answered(path):
    form = read(path)
    assert {"name", "description", "body"} <= set(form)
    assert any(part.get("validations", {}).get("required") for part in form["body"])
    assert len({part["id"] for part in form["body"]}) == len(form["body"])


def test_commits_are_checked_by_the_version_of_ruff_that_the_tests_use():
    pinned = re.search(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    hooks = {repo["repo"].rpartition("/")[2]: repo["rev"] for repo in read(ROOT / ".pre-commit-config.yaml")["repos"]}
    assert pinned is not None and hooks["ruff-pre-commit"] == f"v{pinned[1]}"


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", ".github/pull_request_template.md"])
def test_pages_for_contributors_link_to_this_project_alone(name):
    text = (ROOT / name).read_text()
    assert all(link.startswith(HOME) for link in re.findall(r"https://[^\s)]+", text))
