"""Methods by name, by object and as a table; errors by their words; a new file is found."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import nescio
from nescio import scores
from nescio.quantities import Logits
from nescio.scores import registry
from nescio.types import InputError


def test_a_name_gives_the_method_with_its_settings() -> None:
    assert scores.get("regrad") == scores.REGrad()
    assert scores.get("regrad", power=1, layer_decay=0) == scores.REGrad(power=1, layer_decay=0.0)
    assert scores.get(scores.REGrad, power=1) == scores.REGrad(power=1)
    assert scores.get(scores.REGrad(power=1), seed=4) == scores.REGrad(power=1, seed=4)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("regard", "regrad"), ("REGrad", "regrad"), ("mc-aa", "mc_aa"), ("MCAA", "mc_aa"), ("entrpy", "entropy")],
)
def test_a_misspelt_name_is_met_with_the_right_one(wrong: str, right: str) -> None:
    with pytest.raises(
        InputError,
        match=rf"expected the name of a method, got '{wrong}'; did you mean '{right}'\? known: negrad, ungrad",
    ):
        scores.get(wrong)


def test_a_name_like_no_other_gets_the_list() -> None:
    with pytest.raises(InputError, match=r"got 'zzz'; known: .*max_probability, energy, gen"):
        scores.get("zzz")


def test_an_unknown_setting_is_met_with_the_methods_own() -> None:
    with pytest.raises(
        InputError,
        match=r"a setting of 'regrad', got 'layerdecay'; did you mean 'layer_decay'\? known: layer_decay, sigma",
    ):
        scores.get("regrad", layerdecay=0.3)
    with pytest.raises(InputError, match="expected a setting of 'entropy', got 'sigma'; it has none; leave it out"):
        scores.get("entropy", sigma=0.1)
    with pytest.raises(InputError, match="expected a setting of 'gen', got 'power'; known: gamma, top"):
        scores.get(scores.GEN(), power=1)


@pytest.mark.parametrize("strange", [None, 3, 1.5, {"regrad"}, dict])
def test_what_is_no_method_is_refused(strange: object) -> None:
    with pytest.raises(
        InputError, match=r"expected a method's name or an object such as nescio\.scores\.REGrad\(\), got"
    ):
        scores.get(strange)


BAD = [
    ("regrad", {"sigma": -0.1}, "expected sigma to be a finite number of at least 0, got -0.1"),
    ("regrad", {"sigma": float("nan")}, "expected sigma to be a finite number of at least 0, got nan"),
    ("regrad", {"sigma": "0.1"}, "expected sigma to be a finite number of at least 0, got '0.1'"),
    ("regrad", {"samples": -1}, "expected samples to be a whole number of at least 0, got -1"),
    ("regrad", {"samples": 1.5}, "expected samples to be a whole number of at least 0, got 1.5"),
    ("regrad", {"samples": True}, "expected samples to be a whole number of at least 0, got True"),
    ("regrad", {"norm": 3}, "expected norm to be 1 or 2, got 3"),
    ("regrad", {"norm": True}, "expected norm to be 1 or 2, got True"),
    ("regrad", {"power": 3}, "expected power to be 1 or 2, got 3; leave it out for the default, power=2"),
    ("regrad", {"layer_decay": -1}, "expected layer_decay to be a finite number of at least 0, got -1"),
    ("regrad", {"layers": "tensors"}, "expected layers to be 'module' or 'tensor', got 'tensors'"),
    ("regrad", {"variant": "square"}, "expected variant to be 'squares' or 'literal', got 'square'"),
    ("regrad", {"smoothing": "sum"}, "expected smoothing to be 'log' or 'mean', got 'sum'"),
    ("regrad", {"select": []}, "expected select to be None, or at least one name or pattern"),
    ("regrad", {"select": [3]}, "expected select to be None, or at least one name or pattern"),
    ("regrad", {"seed": -1}, "expected seed to be a whole number of at least 0, got -1"),
    ("gradnorm", {"as_published": 1}, "expected as_published to be True or False, got 1"),
    ("perturb_x", {"sigma": 0}, "expected sigma to be a finite number above 0, got 0"),
    ("perturb_theta", {"samples": 0}, "expected samples to be a whole number of at least 1, got 0"),
    ("perturb_theta", {"sigma": -1.0}, "expected sigma to be a finite number above 0, got -1.0"),
    ("mc_aa", {"a": 0.0}, "expected a to be a finite number above 0, got 0.0"),
    ("inserted_dropout", {"rate": 0}, "expected rate to be a finite number above 0 and below 1, got 0"),
    ("inserted_dropout", {"rate": 1.0}, "expected rate to be a finite number above 0 and below 1, got 1.0"),
    ("inserted_dropout", {"layer": 3}, "expected layer to be None or the name of a module, got 3"),
    ("energy", {"temperature": 0.0}, "expected temperature to be a finite number above 0, got 0.0"),
    ("gen", {"gamma": -1}, "expected gamma to be a finite number above 0, got -1"),
    ("gen", {"top": 0}, "expected top to be a whole number of at least 1, got 0"),
    ("relative_mahalanobis", {"shrinkage": 2}, "expected shrinkage to be 'auto' or a number from 0 to 1, got 2"),
    ("vim", {"dimension": 0}, "expected dimension to be a whole number of at least 1, got 0"),
    ("nnguide", {"k": 0}, "expected k to be a whole number of at least 1, got 0"),
    ("react", {"percentile": 100}, "expected percentile to be a finite number above 0 and below 100, got 100"),
    ("ash", {"percentile": -1}, "expected percentile to be a finite number of at least 0 and below 100, got -1"),
    ("ash", {"variant": "x"}, "expected variant to be 's', 'b' or 'p', got 'x'"),
    ("scale", {"percentile": 100}, "expected percentile to be a finite number of at least 0 and below 100, got 100"),
    ("odin", {"temperature": 0}, "expected temperature to be a finite number above 0, got 0"),
    ("odin", {"epsilon": -1}, "expected epsilon to be a finite number of at least 0, got -1"),
    ("shift_entropy", {"pixels": 0}, "expected pixels to be a whole number of at least 1, got 0"),
]


@pytest.mark.parametrize(("name", "settings", "words"), BAD)
def test_a_bad_setting_is_refused_in_words(name: str, settings: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        scores.get(name, **settings)
    assert str(caught.value).startswith(f"{name}: {words}") and "; leave it out for the default, " in str(caught.value)


def test_settings_are_plain_values_so_that_equal_ones_are_equal_requests() -> None:
    numpy = pytest.importorskip("numpy")
    odd = scores.ExGrad(sigma=numpy.float32(0.5), samples=numpy.int64(3), select="fc", norm=2)
    assert odd == scores.ExGrad(sigma=0.5, samples=3, select=["fc"]) and hash(odd)
    assert odd.needs == scores.UNGrad(sigma=0.5, samples=3, select=("fc",)).needs


def test_the_label_names_what_is_not_the_default() -> None:
    assert scores.REGrad().label == "regrad"
    assert scores.REGrad(power=1, sigma=0.02).label == "regrad(sigma=0.02, power=1)"


def test_the_table_prints_aligned_and_converts() -> None:
    table = nescio.methods()
    lines = str(table).splitlines()
    assert [row.name for row in table] == scores.names() and len(table) == len(scores.names())
    assert lines[0].split() == ["method", "needs", "cost", "paper", "sign"] and set(lines[1]) == {"-", " "}
    columns = [lines[0].index(word) for word in lines[0].split()]
    for line, row in zip(lines[2:], table, strict=False):
        cells = [line[a:b].strip() for a, b in zip(columns, [*columns[1:], None], strict=True)]
        assert cells == [row.name, row.needs, row.cost, row.paper, row.sign]
    assert "C classes" in lines[-1] and repr(table) == str(table)
    assert table[0] == next(iter(table)) and [r.name for r in table[1:3]] == scores.names()[1:3]
    markdown = table.to_markdown().splitlines()
    assert markdown[0].startswith("| method | what it is |") and len(markdown) == len(table) + 4
    assert all(line.count("|") == markdown[0].count("|") for line in markdown[: len(table) + 2])
    entry = next(d for d in table.to_dicts() if d["name"] == "gen")
    assert entry["settings"] == {"gamma": 0.1, "top": 100} and entry["needs_training_data"] is False


def test_the_table_says_what_has_to_be_given() -> None:
    needs = {row.name: row.needs for row in nescio.methods()}
    assert needs["entropy"] == "forward" and needs["knn"] == "forward, training data"
    assert needs["laplace"] == "draws, training data" and needs["mutual_information"] == "posterior"
    assert {row.name: row.settings for row in nescio.methods()}["knn"]["k"] == 50


@dataclass(frozen=True, kw_only=True)
class Own(scores.Score):
    """A score of one's own."""

    name = "own"
    summary = "The largest logit, negated."
    requires = "forward"
    cost = "1"
    paper = "none"

    @property
    def needs(self) -> tuple[Logits]:
        return (Logits(),)

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        return -logits.amax(-1)


def test_a_registered_score_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))
    assert scores.register(Own) is Own
    assert "own" in scores.names() and scores.get("own") == Own()
    x = torch.randn(4, 3)
    torch.testing.assert_close(nescio.score(torch.nn.Identity(), x, "own"), -x.amax(1).double())
    with pytest.raises(TypeError, match="expected a name of its own for Other, but 'own' is Own; rename it"):
        scores.register(type("Other", (Own,), {}))


def test_a_score_without_its_card_is_refused() -> None:
    bare = type("Bare", (scores.Score,), {"name": "bare", "summary": "x", "cost": "1"})
    with pytest.raises(TypeError, match="expected Bare to state requires, paper; add it as a class attribute"):
        scores.register(bare)


def test_an_object_that_keeps_the_protocol_is_a_method_without_being_registered() -> None:
    class Foreign:
        name = "foreign"
        needs = (Logits(),)

        def __call__(self, logits: torch.Tensor) -> torch.Tensor:
            return logits[:, 0]

    own = Foreign()
    assert scores.get(own) is own
    with pytest.raises(InputError, match="expected no settings beside the object 'foreign', got sigma; set them on it"):
        scores.get(own, sigma=1)


NEWCOMER = """
from dataclasses import dataclass
from nescio.scores.base import Score
from nescio.scores.registry import register
from nescio.quantities import Logits

@register
@dataclass(frozen=True, kw_only=True)
class Newcomer(Score):
    name = "newcomer"
    summary = "The first logit."
    requires = "forward"
    cost = "1"
    paper = "none"
    needs = (Logits(),)

    def __call__(self, logits):
        return logits[:, 0]
"""


def test_a_new_file_in_the_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "newcomer.py").write_text(NEWCOMER)
    folders = [*scores.__path__, str(tmp_path)]
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))
    monkeypatch.setattr(scores, "__path__", folders)
    assert "newcomer" not in scores.names()
    try:
        registry.discover(scores.__name__, folders)
        assert "newcomer" in scores.names() and "newcomer" in str(nescio.methods())
        assert nescio.score(torch.nn.Identity(), 2 * torch.eye(2), "newcomer").tolist() == [2.0, 0.0]
    finally:
        sys.modules.pop("nescio.scores.newcomer", None)
