"""The page of evidence says what results say, also where only some of a study was run and where hypotheses fail."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("nescio_papers")
pytest.importorskip("matplotlib")

from nescio_papers import reproduce
from nescio_papers.regrad.acquisition import FEW, ROWS, SIX
from nescio_papers.regrad.label_charts import twice_sure
from nescio_papers.runner.run import _declaration

ROOT = Path(__file__).parents[1]
RESULTS, BUILDING = ROOT / "papers" / "results", ROOT / "docs" / "building"
STAR, OURS = "REGrad*, k = 2", "UA-Backprop + FullGrad"
FIRST = {
    "acquisition": 5, "hundred": 0, "readings": 1, "schedules": 1, "ua-signs": 2, "ua-attention": 5,
    "table2": 4, "table4": 4, "table6": 4, "ua-table1": 3, "ua-table2": 1,
}  # fmt: skip
"""So many committed runs of a study are taken here at the scale quick; in the place of later ones come made-up ones."""
Numbers = Callable[[int, str, str, int], Mapping[str, float] | None]


class Page:
    """The page made of the committed results and of made-up ones."""

    def __init__(self, evidence: ModuleType, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.evidence, self.folder, self.patch = evidence, folder, patch
        self.results = folder / "results"
        self.results.mkdir()
        for path in RESULTS.glob("*.json"):
            study, scale, number = path.stem.rsplit("-", 2)
            if scale != "quick" or int(number) <= FIRST.get(study, int(number)):
                (self.results / path.name).symlink_to(path)
        self.template = json.loads((RESULTS / "readings-quick-1.json").read_text())

    def add(
        self,
        study: str,
        columns: Sequence[str],
        seeds: Sequence[Any],
        numbers: Numbers,
        rows: Sequence[str] | None = None,
        **more: Any,
    ) -> None:
        """Add a run: what has no numbers was not asked for."""
        parts = []
        for at, part in enumerate(reproduce.studies()[study].parts):
            cells: list[dict[str, Any]] = []
            for column in part.columns:
                for row in part.rows:
                    place = {"row": row.label, "column": column.key}
                    asked = column.key in columns and (rows is None or row.label in rows)
                    found = {seed: numbers(at, row.label, column.key, seed) for seed in seeds} if asked else {}
                    done = {seed: metrics for seed, metrics in found.items() if metrics is not None}
                    cells += [{**place, "seed": seed, "metrics": metrics} for seed, metrics in done.items()]
                    cells += [] if done else [{**place, "seed": "all", "reason": "not run"}]
            parts.append(_declaration(part, cells))
        run = {**self.template, "study": study, "parts": parts, "models": [], "started": "2027-01-01T00:00:00+00:00"}
        reproduce.save({**run, **more}, self.results)

    def made(self, figures: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
        """Make the page; return its claims by what they claim, and its text. Figures are drawn if some are expected."""
        if not figures:
            self.patch.setattr(self.evidence, "figures", cache(lambda: {}))
        self.evidence.main(self.results, self.folder)
        claims = {claim.claim: claim for claim in self.evidence.claims()}
        for claim in claims.values():
            assert len(claim.claim) <= 42 and len(claim.ours) <= 48, "the table is meant for one screen"
        text = (self.folder / "evidence.md").read_text()
        for figure in figures:
            assert f"figures/{figure}.svg" in text and (self.folder / "figures" / f"{figure}.svg").exists()
        return claims, text


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    sys.path.insert(0, str(BUILDING))
    names = {path.stem for path in BUILDING.glob("*.py")}
    try:
        yield Page(importlib.import_module("evidence"), tmp_path, monkeypatch)
    finally:
        sys.path.remove(str(BUILDING))
        for name in names:
            sys.modules.pop(name, None)


def learned(known: str, gains: Mapping[str, float], off: float = 0.0) -> Numbers:
    """Accuracies that are so many points over random choice, a little else for each seed; `off` the sure line."""
    classes = 100 if known == "cifar100" else 10

    def numbers(part: int, row: str, column: str, seed: int) -> Mapping[str, float]:
        wiggle = 0.004 * ((7 * seed + len(row)) % 3 - 1)
        gain = 0.0 if row == "Random" else gains.get(row, 0.0) / 100 + wiggle
        accuracy = 0.4 + 0.01 * seed + gain
        sure = twice_sure(accuracy, classes) + off
        return {"gain": gain} if part else {"acc": accuracy, "twice": sure, "nll": 2.9}

    return numbers


def columns(claim: Any) -> list[tuple[str, ...]]:
    """The columns of a claim's table."""
    return list(zip(*claim.table, strict=True))


LABELS, RANDOM, NLL = "REGrad* chooses best what to label", "Random choice is as good", "NLL in active learning"


def test_learning_on_one_more_set(page: Page) -> None:
    page.add("acquisition", ["svhn"], range(5), learned("svhn", {}), SIX)
    claims, text = page.made()
    assert claims[LABELS].ours.endswith("of 5") and "SVHN (5 seeds)" in columns(claims[LABELS])[0]
    assert "hold 0 on MNIST and SVHN: so it is" in claims[LABELS].why and claims[LABELS].verdict == "not reproduced"
    assert claims[RANDOM].verdict == "holds" and "above random choice: so it is" in claims[RANDOM].why
    assert "CIFAR-10 5 methods" not in claims[RANDOM].why and "none of 5 methods" in claims[RANDOM].why
    assert (
        "for each of 13 / 6 rows" in claims[NLL].why
        and "0.15 / 0.02 of" in claims[NLL].why
        and "and NLL not: so it is" in claims[NLL].why
    )
    assert "- Active learning with the paper's protocol on CIFAR-10 and CIFAR-100." in text
    assert "missing are 7 of 12 on SVHN." in text


def test_learning_where_expectations_fail(page: Page) -> None:
    page.add("acquisition", ["svhn"], range(5), learned("svhn", {STAR: 4}, off=0.1), SIX)
    page.add("acquisition", ["cifar10"], range(3), learned("cifar10", {"UNGrad, L2": -3}), SIX)
    claims, _ = page.made()
    assert claims[LABELS].verdict == "holds under conditions"
    assert "that fails on SVHN, and holds on MNIST and CIFAR-10" in claims[LABELS].why
    assert columns(claims[LABELS])[-1] == ("certainly ahead of", "5 of 11", "4 of 4", "1 of 4")
    why = claims[RANDOM].why
    assert claims[RANDOM].verdict == "does not hold" and "that fails for REGrad* on SVHN (+" in why
    assert "above random choice: that fails for REGrad*; the most is +" in why
    assert "within 1.5 points of random choice: that fails" in why and "UNGrad on CIFAR-10" in why
    assert "What was expected came out on MNIST and failed on SVHN and CIFAR-10." in why
    assert "that fails on SVHN, and holds on MNIST and CIFAR-10. The line" in claims[NLL].why


def test_one_seed_ranks_nothing_and_few_do_not_count(page: Page) -> None:
    page.add("acquisition", ["cifar100"], [0], learned("cifar100", {STAR: 9}, off=0.01), FEW)
    page.add("acquisition", ["svhn"], range(5), learned("svhn", {}), SIX)
    rest = [row.label for row in ROWS if row.label not in SIX]
    page.add("acquisition", ["svhn"], [0, 1], learned("svhn", {"LA": 9}), rest)
    claims, text = page.made()
    assert claims[LABELS].paper.count("/") == 1 and "CIFAR-100 has no place" in claims[LABELS].why
    assert "CIFAR-100" not in claims[RANDOM].why and "+9" not in claims[RANDOM].why
    assert "0.15 / 0.02 / 0.02 of" in claims[NLL].why and "and NLL not: so it is" in claims[NLL].why
    assert "- Active learning with five seeds on CIFAR-100 (one was run)." in text
    assert "7 of 12 on SVHN and 9 of 12 on CIFAR-100" in text
    page.add("acquisition", ["svhn"], [2], learned("svhn", {"LA": 9}), rest)
    claims, text = page.made()
    assert "SVHN (5 seeds, some methods 3)" in columns(claims[LABELS])[0] and "LA on SVHN" in claims[RANDOM].why
    assert "that fails for LA; the most is +" in claims[RANDOM].why and "missing are 9 of 12 on CIFAR-100." in text


def test_learning_on_every_set(page: Page) -> None:
    for known, seeds in (("svhn", 5), ("cifar10", 3)):
        page.add("acquisition", [known], range(seeds), learned(known, {STAR: 1}))
    page.add("acquisition", ["cifar100"], [0], learned("cifar100", {}), FEW)
    claims, text = page.made(["acquisition", "nll-identity"])
    assert "for each of 13 / 13 / 13 / 4 rows" in claims[NLL].why and "0.15 / 0.02 / 0.02 / 0.02 of" in claims[NLL].why
    assert "CIFAR-10 (3 seeds)" in columns(claims[LABELS])[0] and "CIFAR-100 has no place" in claims[LABELS].why
    assert "On CIFAR-10 5 methods were expected within 1.5 points" in claims[RANDOM].why
    assert "none of 12 methods" in claims[RANDOM].why and "CIFAR-100" not in claims[RANDOM].why
    assert "protocol on" not in text and "with five seeds on CIFAR-10 (3 seeds were run) and CIFAR-100 (one" in text


def detected(values: Mapping[str, float], rest: float = 0.7) -> Numbers:
    """The same numbers on all pairs and seeds; none for a row that has None."""

    def numbers(part: int, row: str, column: str, seed: int) -> Mapping[str, float] | None:
        value = values.get(row, rest)
        return None if value is None else dict.fromkeys(("auroc", "aupr", "raulc"), value)

    return numbers


HUNDRED, NORMS = "Of 100 classes gradients know far more", "L1 or L2 matters little (100 classes)"
ENSEMBLE, ROW = "An ensemble knows no more (100 classes)", "Deep ensemble, mutual information"
COLUMNS = ("cifar100→svhn", "cifar100→scenes", "cifar100")


def test_a_hundred_classes(page: Page) -> None:
    _, text = page.made()
    assert "- L1 rows, a second seed and an ensemble for CIFAR-100." in text
    page.add("hundred", COLUMNS, range(3), detected({STAR: 0.9, ROW: 0.85}))
    claims, text = page.made()
    assert [claims[name].verdict for name in (HUNDRED, NORMS, ENSEMBLE)] == ["holds"] * 3
    assert "three ResNet18" in claims[HUNDRED].why and "L1 rows and a second seed of ResNet152" in text
    assert "Against scenes REGrad* has 90.0" in claims[HUNDRED].why and claims[ENSEMBLE].ours == "MI 85.0, REGrad* 90.0"


def test_a_hundred_classes_where_expectations_fail(page: Page) -> None:
    worse = {STAR: 0.8, "Entropy": 0.9, ROW: 0.95, "ExGrad, L1": 0.6}
    page.add("hundred", COLUMNS, range(3), detected(worse))
    claims, _ = page.made()
    assert claims[HUNDRED].verdict == "holds under conditions" and "that fails for entropy" in claims[HUNDRED].why
    assert claims[NORMS].ours == "-10.0 points, ExGrad" and claims[NORMS].verdict == "does not hold"
    assert claims[ENSEMBLE].verdict == "does not hold"


def test_a_hundred_classes_in_part(page: Page) -> None:
    some = [row.label for row in reproduce.studies()["hundred"].parts[0].rows if ", L1" not in row.label]
    page.add("hundred", ["cifar100→svhn"], [0], detected({ROW: None}), some)  # type: ignore[dict-item]
    claims, _ = page.made()
    assert NORMS not in claims and ENSEMBLE not in claims and "one ResNet18" in claims[HUNDRED].why


def test_the_papers_schedule(page: Page) -> None:
    name = "Training is not why CIFAR-10 differs"
    claims, text = page.made()
    assert name not in claims and "schedule for CIFAR-10 and CIFAR-100" in text
    network = {"plan": "own-cifar10", "seed": 0, "accuracy": 0.95, "seconds": 1.0, "about": ""}
    good = {STAR: 0.94, "Entropy": 0.93}
    page.add("schedules", ["cifar10→svhn", "cifar10→scenes"], [0], detected(good), models=[network])
    claims, text = page.made()
    assert claims[name].verdict == "holds" and claims[name].why.count("so it is") == 3
    assert "Against scenes" in claims[name].why and "schedule for CIFAR-100" in text
    worse = {STAR: 0.85, "Entropy": 0.93}
    page.add("schedules", ["cifar10→svhn"], [0], detected(worse), models=[{**network, "accuracy": 0.9}])
    claims, _ = page.made()
    assert claims[name].verdict == "does not hold" and claims[name].why.count("that fails") == 3
    page.add("schedules", ["cifar10→svhn"], [0], detected({STAR: 0.94, "Entropy": 0.8}), models=[network])
    claims, _ = page.made()
    assert (
        claims[name].verdict == "does not hold"
        and "were expected of both: that fails for entropy. So" in claims[name].why
    )


@pytest.mark.parametrize("apart", [False, True])
def test_readings_on_svhn(page: Page, apart: bool) -> None:
    turned = "GradNorm of the last weight, L1, sign turned"
    values = {"REGrad*, all three": 0.6, turned: 0.99} if apart else {}
    page.add("readings", ["svhn→cifar10", "svhn→cifar100"], range(3), detected(values, 0.9))
    claims, text = page.made()
    claim = claims["How the formulas are read matters little"]
    assert claim.verdict == ("does not hold" if apart else "holds") and "6 pairs of MNIST, CIFAR-10, SVHN" in claim.why
    assert ("point between them: that fails" in claim.why) == apart and "On SVHN λ = 0.3 gives 90.0 / 90.0" in claim.why
    assert "On SVHN it has 90.0 / 90.0" in claims["GradNorm is bad everywhere"].why
    assert "readings of the formulas on SVHN" not in text


def blurred(values: Mapping[str, float], rest: float = 0.3) -> Numbers:
    """Shares of the doubt that go; the area falls with them."""

    def numbers(part: int, row: str, column: str, seed: int) -> Mapping[str, float] | None:
        share = values.get(f"{row} {column.partition('→')[2].partition(',')[0]}", values.get(row, rest))
        lead = values[OURS] - share if part == 0 else 0.8 - share
        area = {"murr5": share, "urr5": 1 - share, "lead": lead}
        return None if share < 0 else {**area, "lead_low": lead - 0.01, "lead_high": lead + 0.01}

    return numbers


SIGNS, PLACES = "Signs decide the blurring test", "Which pictures decide its place"
HOLDS = {
    OURS: 0.25,
    f"{OURS} upper half": 0.4,
    f"{OURS}, signed": 0.8,
    "Random numbers, signed": 0.5,
    "Gradient × (x − blur x)": 0.9,
}


def cases(known: str, *how: str) -> list[str]:
    """The columns of a data set: all, or those of some ways of choosing."""
    every = [column.key for column in reproduce.studies()["ua-signs"].parts[0].columns if column.known == known]
    return [one for one in every if not how or one.partition("→")[2] in how]


def test_signs_on_every_set(page: Page) -> None:
    page.add("ua-signs", [*cases("mnist"), *cases("cifar10"), *cases("cifar100")], ["all"], blurred(HOLDS))
    page.add("acquisition", ["cifar100"], [0], learned("cifar100", {}), FEW)
    claims, text = page.made(["acquisition", "nll-identity", "signs"])
    assert claims[SIGNS].verdict == claims[PLACES].verdict == "holds" and "16 of 16" in claims[SIGNS].why
    assert "so it is in 8 of 8 cases" in claims[SIGNS].why and "(100 of CIFAR-10 and CIFAR-100)" in claims[SIGNS].why
    assert "2 of 2 widths on MNIST and 2 of 2 widths on CIFAR-10" in claims[PLACES].why
    assert "test of signs" not in text


def test_signs_where_hypotheses_fail(page: Page) -> None:
    fails = {OURS: 0.6, f"{OURS}, signed": 0.2, "Random numbers, signed": 0.1, "Gradient × (x − blur x)": 0.2}
    page.add("ua-signs", [*cases("mnist"), *cases("cifar10")], ["all"], blurred(fails))
    claims, text = page.made()
    assert claims[SIGNS].verdict == "holds under conditions" and claims[PLACES].verdict == "does not hold"
    assert "4 of 12 cases. It was expected in all, which fails" in claims[SIGNS].why
    assert "so it is in 0 of 4 cases" in claims[SIGNS].why and "and is in 4 of 12: that fails" in claims[SIGNS].why
    assert "- The test of signs on CIFAR-100:" in text and "signs on MNIST" not in text


def test_signs_in_part(page: Page) -> None:
    some = [*cases("cifar10", "most doubtful, σ = 1.5", "upper half, σ = 1.5")]
    page.add("ua-signs", some, ["all"], blurred({**HOLDS, "CLUE": -1.0, "CLUE, signed": -1.0}))
    claims, text = page.made()
    assert "so it is in 2 of 2 cases" in claims[SIGNS].why and "1 of 1 widths on CIFAR-10" in claims[PLACES].why
    assert "- The test of signs on CIFAR-10: most doubtful, σ = 3; upper half, σ = 3." in text
    assert "- The test of signs on the upper half of MNIST." in text


ATTENTION = "Attention maps do the same as flat ones"
GRAD, RANDOM_MAPS = "Grad, range", "Random attention, range"


def attended(apart: Mapping[str, float], printed: float = 0.0, slope: float = 1.0) -> Numbers:
    """Losses that fall with the factor, of which rows are so far from their control, a little else in each run."""

    def numbers(part: int, row: str, column: str, seed: int) -> Mapping[str, float]:
        wiggle = 0.01 * ((3 * seed + len(row)) % 5 - 2)
        flat = row.removesuffix(", flat")
        factor = {"No attention": 1.0, f"{OURS}, as printed": 1.01}.get(row, 1.5 + 0.1 * len(flat))
        nll = 3 - slope * 0.3 * factor + wiggle + (printed if "printed" in row else 0)
        tempered = 1 + wiggle + (apart.get(row, 0.0) if "flat" not in row else 0.0)
        return {"acc": 0.5, "nll": nll, "tempered": tempered, "factor": factor}

    return numbers


def rows_of(*words: str) -> list[str]:
    """The rows of the study of attention whose names begin so."""
    part = reproduce.studies()["ua-attention"].parts[0]
    return [row.label for row in part.rows if row.label.startswith(words)]


FEW_MAPS = (OURS, "Random attention", "No attention")


def test_attention_on_new_sets_is_judged_by_itself(page: Page) -> None:
    claims, text = page.made()
    assert claims[ATTENTION].verdict == "holds under conditions" and "so this is undecided" in claims[ATTENTION].why
    assert "temperature scaling on SVHN and CIFAR-10." in text
    page.add("ua-attention", ["svhn"], range(5), attended({}))
    page.add("ua-attention", ["cifar10"], range(5), attended({RANDOM_MAPS: 0.2}), rows_of(*FEW_MAPS))
    claims, text = page.made()
    why = claims[ATTENTION].why
    assert (
        "SVHN and CIFAR-10: of 12 pairs 1 differs after scaling (Random attention, range on CIFAR-10: there the" in why
    )
    assert (
        "Expected was that at most 1 does: so it is." in why and claims[ATTENTION].verdict == "holds under conditions"
    )
    assert (
        "MNIST: of 8 pairs 1 differs" in why
        and why.count("so it is.") == 3
        and "2 of 20 maps worse" in claims[ATTENTION].ours
    )
    assert "flat controls and temperature scaling on" not in text and "maps of Grad and IG on CIFAR-10." in text


def test_attention_where_hypotheses_fail(page: Page) -> None:
    apart = {GRAD: 0.2, RANDOM_MAPS: -0.2}
    page.add("ua-attention", ["svhn"], range(5), attended(apart, printed=0.5, slope=-1.0))
    page.add("ua-attention", ["cifar10"], range(4), attended({}), rows_of(*FEW_MAPS))  # five runs were asked for
    claims, text = page.made()
    why = claims[ATTENTION].why
    assert claims[ATTENTION].verdict == "does not hold" and claims[ATTENTION].ours == "3 of 16 maps differ from flat"
    assert "SVHN: of 8 pairs 2 differ" in why and "in 1 the map is worse" in why and "more would in 6 % of cases" in why
    assert "Certainly better than its control is Random attention, range on SVHN." in why
    assert why.count("that fails on SVHN") == 2 and "temperature scaling on CIFAR-10." in text


def test_files_are_read_in_the_order_of_their_numbers(page: Page) -> None:
    page.add("hundred", COLUMNS, [0], detected({}))
    for row in reproduce.studies()["hundred"].parts[0].rows[:9]:  # each has a number of its own
        page.add("hundred", COLUMNS, [0], detected({}), rows=[row.label])
    _, text = page.made()
    assert "| `hundred-quick-1`, 2, 3, 4, 5, 6, 7, 8, 9, 10 |" in text


def test_files_whose_numbers_were_all_measured_again_are_not_named(page: Page) -> None:
    page.add("hundred", COLUMNS, [0, 1], detected({}))
    page.add("hundred", COLUMNS, [1], detected({}))
    _, text = page.made()
    assert "| `hundred-quick-1`, 2 |" in text
    page.add("hundred", COLUMNS, [0, 1], detected({}))
    _, text = page.made()
    assert "| `hundred-quick-3` |" in text


def test_a_commit_that_was_not_recorded(page: Page) -> None:
    _, text = page.made()
    assert "with 906b05d |" in text and "the commit that brought the file in" in text and "not recorded*" not in text
    page.add("hundred", COLUMNS, [7], detected({}), git=None)
    _, text = page.made()
    assert "| NVIDIA H200 | 272 s | not recorded |" in text and "; *not recorded*: the sources" in text
    page.add("hundred", COLUMNS, [8], detected({}), git=None, came_with="abcdef0")
    _, text = page.made()
    assert "| not recorded, with abcdef0 |" in text


def test_what_was_run_again(page: Page) -> None:
    _, text = page.made()
    assert "that fails for LA on MNIST in `table2` (0.968 → 0.976). The others moved by at most" in text
    assert "not recorded: `table2`, `table4` and `table6` on CIFAR-10 and CIFAR-100; `ua-table1` on CIFAR-10;" in text
    old = {path.name for path in page.results.glob("table*-[34].json")} | {
        "ua-table1-quick-2.json",
        "ua-table1-quick-3.json",
    }
    for name in old:
        (page.results / name).unlink()
    _, text = page.made()
    assert "were run again on" not in text and "`ua-table1` and `ua-table2` on MNIST, CIFAR-10 and SVHN." in text
    same = json.loads((page.results / "ua-table1-quick-1.json").read_text())
    page.results.joinpath("ua-table1-quick-2.json").write_text(
        json.dumps({**same, "started": "2027-01-01T00:00:00+00:00"})
    )
    _, text = page.made()
    assert (
        "So `ua-table1` was run again on MNIST, CIFAR-10 and SVHN" in text
        and "so it is. They moved by at most 0 (MURR)" in text
    )


def test_of_many_that_moved_the_furthest_is_named(page: Page) -> None:
    again = sys.modules["runs_again"]
    moves = [again.Move("table2", f"row {i}", "mnist", "raulc", 0.9, 0.8 - i / 10) for i in range(3)]
    assert again.told(moves, 20) == "3 of 20 in `table2` (furthest: row 2 on MNIST, rAULC 0.900 → 0.600)"
    assert again.told(moves[:1], 20) == "row 0 on MNIST in `table2` (0.900 → 0.800)"


def test_times_beside_other_work_are_named(page: Page) -> None:
    claims, _ = page.made()
    assert "SVHN (on MNIST and SVHN beside other work on the same machine)" in claims["Maps are cheap and add up"].why
    for path in page.results.glob("*.json"):
        if "ua-table1" not in path.name and json.loads(path.read_text())["started"].startswith("2026-11-19T2"):
            path.unlink()
    (page.results / "ua-table1-quick-3.json").unlink()
    claims, _ = page.made()
    assert "beside other work" not in claims["Maps are cheap and add up"].why


def test_every_file_that_was_read_is_named_with_its_command_commit_and_time(page: Page) -> None:
    page.add("hundred", COLUMNS, [0], detected({}), git={"commit": "0123456789", "dirty": True}, seconds=7200.0)
    _, text = page.made()
    assert "| `nescio reproduce hundred` | `hundred-quick-1` | NVIDIA H200 | 7,200 s | 0123456+ |" in text
    runs = text.partition("## Runs")[2]
    for path in sys.modules["results"].read():
        study, scale, number = path.stem.rsplit("-", 2)
        (line,) = (one for one in runs.splitlines() if f"`{study}-{scale}-{number}`" in one or _counts(one, path.stem))
        assert f"| `nescio reproduce {study}{'' if scale == 'quick' else f' --scale {scale}'}` |" in line
    with_names = {one for one in text.split("`") if one.startswith("nescio reproduce ") and "NAME" not in one}
    assert all(f"| `{one}` |" in runs for one in with_names)


def _counts(line: str, name: str) -> bool:
    """Whether a line names a file by its number alone, after others of its study."""
    start, _, number = name.rpartition("-")
    files = line.split("|")[2].split(",") if line.startswith("| `") else []
    return bool(files) and files[0].strip().startswith(f"`{start}-") and number in [one.strip() for one in files[1:]]
