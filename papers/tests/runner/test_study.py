from statistics import fmean

import pytest

from nescio.types import InputError
from nescio_papers.reproduce import get, studies
from nescio_papers.runner import scale as scales
from nescio_papers.runner.methods import ENSEMBLE, made
from nescio_papers.runner.study import METRICS, pairs, paper_table

PARTS = [(name, part) for name, study in studies().items() for part in study.parts]


def test_every_table_and_question_is_declared():
    names = list(studies())
    assert names[:10] == [f"table{number}" for number in range(1, 11)]
    assert {"copies", "defaults", "depth", "even", "no-gradient"} <= set(names[10:])
    assert {"kyl-moons", "kyl-polytopes", "kyl-scaling"} <= set(names[10:])


@pytest.mark.parametrize(("name", "part"), PARTS, ids=lambda value: value if isinstance(value, str) else value.title)
def test_declarations_hold_together(name, part):
    labels = [row.label for row in part.rows]
    assert len(set(labels)) == len(labels)
    assert not part.reference or part.reference in labels
    assert set(part.metrics) <= set(METRICS)
    assert not part.paper or {row.paper for row in part.rows if row.paper} == set(part.paper)
    keys = {column.key for column in part.columns}
    for line in part.paper.values():
        for column, cell in line.items():
            assert column == "avg" or (column in keys and len(cell) <= len(part.metrics))  # our own metrics come last
    for row in part.rows:
        for column in part.columns:
            for scale in scales.SCALES.values():
                if row.method not in (ENSEMBLE, "random") and part.task != "program":  # a program has its own methods
                    made(row, column.known, scale, seed=0, layers=("a", "b", "c"))


@pytest.mark.parametrize("place", [("table1", 0), ("table1", 1), ("table2", 0), ("table3", 0)])
def test_the_papers_averages_come_out_of_the_copied_numbers(place):
    """A slip in copying a number would show here: the paper prints the averages beside them."""
    part = studies()[place[0]].parts[place[1]]
    for label, line in part.paper.items():
        cells = [cell for column, cell in line.items() if column != "avg"]
        groups = [[n for cell in cells for n in cell]] if part.averages == "joint" else list(zip(*cells, strict=True))
        for at, (numbers, (printed, _)) in enumerate(zip(groups, line["avg"], strict=True)):
            last = 0.01 if part.metrics[at] in ("auroc", "acc") else 0.001
            assert fmean(mean for mean, _ in numbers) == pytest.approx(printed, abs=0.51 * last), (label, at)


def test_the_better_norm_is_a_choice_and_both_readings_are_rows():
    rows = studies()["table1"].parts[0].rows
    assert [row.label for row in rows if row.choice == "ExGrad"] == ["ExGrad, L1", "ExGrad, L2"]
    star = {row.settings["power"]: row for row in rows if row.paper == "REGrad*"}
    assert set(star) == {1, 2} and star[2].ranked and not star[1].ranked
    assert star[2].settings_for("cifar100")["layer_decay"] == 0.4
    turned = [row for row in rows if row.label.startswith("GradNorm")]
    assert [bool(row.settings.get("as_published")) for row in turned] == [True, True, False, False]


def test_paper_tables_are_read_and_refused():
    table = paper_table("m | a | avg\nX | 1.5±.25 -2 | 3s")
    assert table == {"X": {"a": ((1.5, 0.25), (-2.0, None)), "avg": ((3.0, None),)}}
    with pytest.raises(InputError, match="expected 2 cells in the paper's row 'X', got 1"):
        paper_table("m | a | avg\nX | 1")
    with pytest.raises(InputError, match=r"expected a number such as 98.19±0.02, got '1,5'"):
        paper_table("m | a\nX | 1,5")


def test_columns_and_unknown_names():
    one, two = pairs("cifar10→svhn mnist", model="vit-")
    assert (one.key, one.label, one.plan) == ("cifar10→svhn", "C10→SVHN", "vit-cifar10")
    assert (two.foreign, two.label) == (None, "MNIST")
    with pytest.raises(InputError, match=r"expected one of the studies table1, .* got 'table11'"):
        get("table11")
    with pytest.raises(InputError, match="expected a scale of smoke, small, quick, paper, got 'huge'"):
        scales.get("huge")


def test_samples_are_filled_in_and_bounded():
    smoke, quick, paper = (scales.get(name) for name in ("smoke", "quick", "paper"))
    assert paper.samples({"samples": "N"}) == {"samples": 100}
    assert quick.samples({"samples": "N"}) == {"samples": "auto"}
    assert smoke.samples({"samples": 100, "copies": 64}) == {"samples": 10, "copies": 10}
    assert smoke.samples({"samples": 0}) == {"samples": 0}
    assert (quick.pictures_of("mnist"), quick.pictures_of("cifar100"), paper.pictures_of("mnist")) == (2000, 1000, None)
    assert quick.seeds_of("cifar100") == (0,) and quick.seeds_of("cifar100", (4, 5)) == (4, 5)
