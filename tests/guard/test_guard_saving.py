import json
from pathlib import Path

import pytest
import torch

import nescio
from nescio.guard import Guard, Witness
from nescio.quantities import Request
from nescio.types import InputError, ModelError
from tests.guard.conftest import FEW, conv, mlp, pictures, vectors

pytestmark = pytest.mark.filterwarnings(FEW)


def same(one, two):
    assert torch.equal(one.p_value, two.p_value)
    assert torch.equal(one.score, two.score)
    assert torch.equal(one.confidence, two.confidence)
    assert list(one.witnesses) == list(two.witnesses)
    assert all(torch.equal(one.witnesses[name], two.witnesses[name]) for name in one.witnesses)
    assert one.words() == two.words()
    assert (one.wrong is None) == (two.wrong is None)
    if one.wrong is not None:
        assert torch.equal(one.wrong.low, two.wrong.low)


@pytest.mark.parametrize("count", [60, 420])
@pytest.mark.parametrize("labelled", [False, True])
def test_a_guard_that_was_saved_says_the_same(tmp_path, count, labelled):
    model, x = mlp(), vectors(count)
    guard = Guard(model).fit((x, torch.arange(count) % 3) if labelled else x)
    guard.save(tmp_path / "guard")
    again = Guard.load(tmp_path / "guard", mlp())
    same(again.check(vectors(7, seed=1)), guard.check(vectors(7, seed=1)))
    assert repr(again) == repr(guard)
    assert sorted(file.suffix for file in (tmp_path / "guard").iterdir()) == [".json", ".safetensors"]


def test_pictures_with_harmless_changes_and_another_doubt(tmp_path):
    model, x = conv().eval(), pictures(40)
    guard = Guard(model, doubt=nescio.scores.get("energy"), witnesses=("doubt", "appearance")).fit(x)
    assert guard.fitted.copies > 0
    guard.save(tmp_path)
    again = Guard.load(tmp_path, model)
    assert again.witnesses == guard.witnesses
    same(again.check(x[:5]), guard.check(x[:5]))
    guard.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_another_models_weights_are_refused(tmp_path):
    Guard(mlp()).fit(vectors(40)).save(tmp_path)
    other = mlp()
    with torch.no_grad():
        other[0].bias[0] += 1
    with pytest.raises(ModelError, match="expected the model that this was saved with, got Sequential with other weig"):
        Guard.load(tmp_path, other)
    with pytest.raises(ModelError, match=r"another one|other weights|saved with"):
        Guard.load(tmp_path, lambda x: x)


def damaged(record, key, value):
    record[key] = value
    return record


@pytest.mark.parametrize(
    ("key", "value"),
    [("folds", 9), ("folds", None), ("witnesses", [{"name": "doubt"}]), ("depths", [{"layer": "0"}]), ("features", 3),
     ("labelled", True), ("witnesses", [{"name": "oracle", "settings": {}}])],
)  # fmt: skip
def test_a_record_that_does_not_fit_is_an_error_that_says_so(tmp_path, key, value):
    model = mlp()
    Guard(model).fit(vectors(40)).save(tmp_path)
    file = Path(tmp_path, "guard.json")
    record = json.loads(file.read_text())
    record[key] = value
    file.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"expected a saved guard in .* save it again|expected one of the witnesses"):
        Guard.load(tmp_path, model)


def test_what_is_not_there_not_fitted_or_not_known(tmp_path):
    with pytest.raises(InputError, match="expected a folder that a guard was saved to"):
        Guard.load(tmp_path, mlp())
    with pytest.raises(InputError, match="expected a guard that is fitted"):
        Guard(mlp()).save(tmp_path)

    class Mine(Witness):
        name = "mine"

        def needs(self, anatomy) -> tuple[Request, ...]:
            return anatomy.features and (anatomy.features,)

        def fit(self, rows):
            return {"mean": rows[0].mean(0)}

        def measure(self, found, rows):
            return (rows[0] - found["mean"]).norm(dim=1, keepdim=True)

        def vote(self, z):
            return z[:, 0]

        def words(self, kind):
            return "Its place is"

    guard = Guard(mlp(), witnesses=[Mine()]).fit(vectors(120))
    words = guard.check(9 + vectors(2)).words()[0]
    assert words == "Its place is unlike anything in the reference (further out than 120 of 120)."
    with pytest.raises(InputError, match="decorate it with nescio"):
        guard.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
