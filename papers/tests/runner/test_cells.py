import numpy as np
import pytest
import torch
from torch import nn

from nescio.evaluate import rank_correlation
from nescio.types import InputError
from nescio_papers.runner.cells import EMPTY, Cells, fingerprint, kept_json, kept_tensors, read_json, write_json
from nescio_papers.runner.results import load, save


def test_cells_grow_and_are_read_back(tmp_path):
    cells, about = Cells(tmp_path), {"method": "entropy", "seed": 1}
    path = cells.path("model", "set one", about)
    assert cells.read(path) is EMPTY
    cell = EMPTY.extended(np.array([0.1, 0.2]), 1.0, 3)
    cells.write(path, cell, about)
    cells.write(path, cells.read(path).extended(np.array([0.3]), 2.0, 1), about)
    found = cells.read(path)
    assert found.scores.tolist() == [0.1, 0.2, 0.3] and (found.seconds, found.shared) == (3.0, 3)
    assert cells.path("model", "set one", about | {"seed": 2}) != path


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"no archive"])
def test_a_damaged_cell_is_made_anew(tmp_path, content):
    path = tmp_path / "cell.npz"
    path.write_bytes(content)
    assert Cells(tmp_path).read(path) == EMPTY


def test_tensors_are_made_once_and_their_time_is_kept(tmp_path):
    path, made, checked = tmp_path / "new" / "weights.pt", [], []

    def make():
        made.append(1)
        return {"w": torch.ones(2, requires_grad=True)}

    first, seconds = kept_tensors(path, make, lambda: checked.append(1))
    again, later = kept_tensors(path, make, lambda: checked.append(1))
    assert len(made) == len(checked) == 1 and later == seconds > 0
    assert list(again) == list(first) == ["w"] and torch.equal(again["w"], first["w"])
    path.write_bytes(b"cut off")
    kept_tensors(path, make, lambda: checked.append(1))
    assert len(made) == len(checked) == 2


def test_weights_and_buffers_are_in_the_fingerprint():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    first = fingerprint(model)
    assert fingerprint(model) == first
    model[1].running_mean[0] += 1e-6
    assert fingerprint(model) != first


def test_results_never_overwrite(tmp_path):
    results = {"format": 1, "study": "t", "scale": "smoke", "parts": []}
    first, second = save(results, tmp_path / "new"), save(results, tmp_path / "new")
    assert (first.name, second.name) == ("t-smoke-1.json", "t-smoke-2.json")
    assert load(first) == results
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match="it holds other JSON"):
        load(tmp_path / "x.json")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "none.json")
    (tmp_path / "y.json").write_text("{")
    with pytest.raises(InputError, match="expected results as JSON"):
        load(tmp_path / "y.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        save(results, tmp_path / "file")


def test_json_that_is_not_there_is_none(tmp_path):
    assert read_json(tmp_path / "none.json") is None
    write_json(tmp_path / "a" / "b.json", {"x": 1.5})
    assert read_json(tmp_path / "a" / "b.json") == {"x": 1.5}


def test_rank_correlation_is_that_of_scipy():
    from scipy.stats import spearmanr

    random = np.random.default_rng(0)
    one, other = random.integers(0, 5, 50).astype(float), random.normal(size=50)
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic, abs=1e-12)
    assert rank_correlation(np.ones(5), np.arange(5.0)) is None


def test_numbers_are_made_once_and_again_where_the_file_is_damaged(tmp_path):
    path = tmp_path / "new" / "numbers.json"
    assert kept_json(path, lambda: {"a": 1}) == {"a": 1}
    assert kept_json(path, lambda: pytest.fail("made before")) == {"a": 1}
    path.write_text("{")
    assert kept_json(path, lambda: {"a": 2}) == {"a": 2} == read_json(path)
