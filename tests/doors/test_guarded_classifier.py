"""Estimators for scikit-learn: they keep its rules, and say what nescio says of the same network."""

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.types import InputError, MissingExtra, ModelError

pytest.importorskip("sklearn", minversion="1.6", reason="needs the extra sklearn: pip install 'nescio[sklearn]'")
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from nescio.sklearn import GuardedClassifier, UncertaintyScorer

QUICK: dict[str, Any] = {"hidden": (8,), "epochs": 4, "batch_size": 128}
FAR = np.full((3, 4), 30.0)


@pytest.fixture(scope="module")
def X() -> Any:
    return np.random.default_rng(0).normal(size=(1600, 4))


@pytest.fixture(scope="module")
def y(X: Any) -> Any:
    return np.array(["low", "middle", "high"])[np.digitize(X[:, 0], (-0.5, 0.5))]


@pytest.fixture(scope="module")
def guarded(X: Any, y: Any) -> GuardedClassifier:
    return GuardedClassifier(**QUICK).fit(X, y)


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))


@pytest.mark.filterwarnings("ignore:expected at least 20", "ignore:the reference has")
@pytest.mark.parametrize("kind", [GuardedClassifier, UncertaintyScorer])
def test_every_check_of_scikit_learn_passes(kind: Any) -> None:
    found = check_estimator(kind(hidden=(16,), epochs=20), on_skip=None)
    assert len(found) > 30 and {one["status"] for one in found} <= {"passed", "skipped"}


def test_answers_are_those_of_the_network_and_of_its_guard(guarded: GuardedClassifier, X: Any, y: Any) -> None:
    assert guarded.classes_.tolist() == ["high", "low", "middle"] and guarded.score(X, y) > 0.8
    p = guarded.module_(torch.tensor(X[:50])).softmax(1).detach().numpy()
    np.testing.assert_allclose(guarded.predict_proba(X[:50]), p, rtol=1e-9)
    assert guarded.predict(X[:50]).tolist() == guarded.classes_[p.argmax(1)].tolist()
    verdict = guarded.guard_.check(torch.tensor(np.concatenate([X[:5], FAR])))
    both = np.concatenate([X[:5], FAR])
    assert guarded.p_value(both).tolist() == verdict.p_value.tolist()
    assert guarded.foreign(both).tolist() == verdict.foreign(0.05).tolist()
    assert guarded.score_samples(both).tolist() == (-verdict.score).tolist()  # higher = more normal
    assert guarded.check(both).words() == verdict.words()
    assert guarded.foreign(X).mean() < 0.15 and guarded.foreign(FAR).all()


def test_it_abstains_where_an_input_is_foreign(guarded: GuardedClassifier, X: Any) -> None:
    both = np.concatenate([X[:5], FAR])
    assert guarded.predict_or_abstain(both)[5:].tolist() == [None] * 3
    answers = guarded.predict_or_abstain(both, alpha=0.1, abstention="unknown")
    known = ~guarded.foreign(both, alpha=0.1)
    assert (answers[known] == guarded.predict(both)[known]).all() and set(answers[~known]) == {"unknown"}


def test_a_table_keeps_its_index_and_its_names_are_checked(X: Any, y: Any) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=list("abcd"), index=[f"row {i}" for i in range(len(X))])
    model = GuardedClassifier(**QUICK).fit(table, pandas.Series(y, index=table.index))
    some = table.iloc[7:3:-1]
    for found in (model.p_value(some), model.foreign(some), model.predict_or_abstain(some)):
        assert found.index.equals(some.index)
    assert isinstance(model.predict(some), np.ndarray)  # as everywhere in scikit-learn
    np.testing.assert_array_equal(model.p_value(some), GuardedClassifier(**QUICK).fit(X, y).p_value(X[7:3:-1]))
    scorer = UncertaintyScorer(**QUICK).fit(table, y)
    assert scorer.uncertainty(some).index.equals(some.index)
    for estimator in (model, scorer):
        assert estimator.feature_names_in_.tolist() == list("abcd")
        with pytest.raises(ValueError, match="feature names should match"):
            estimator.predict(some.rename(columns={"a": "z"}))


@pytest.mark.filterwarnings("ignore:the reference has")
def test_in_a_pipeline_and_a_grid_search(X: Any, y: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), GuardedClassifier(**QUICK))
    search = GridSearchCV(pipeline, {"guardedclassifier__lr": [1e-5, 0.05]}, cv=2)
    search.fit(1000 * X, y)
    assert search.best_params_ == {"guardedclassifier__lr": 0.05} and search.best_score_ > 0.8
    best = search.best_estimator_
    assert best[-1].foreign(best[:-1].transform(1000 * FAR)).all()
    assert best.score_samples(1000 * FAR).max() < best.score_samples(1000 * X).min()


def test_a_trained_module_is_used_as_it_is_and_left_so(X: Any, y: Any) -> None:
    module = network()
    before = copy.deepcopy(module.state_dict())
    labelled = GuardedClassifier(module, prefit=True).fit(X, y)
    assert labelled.module_ is module and labelled.guard_.fitted.count == len(X)
    assert labelled.classes_.tolist() == ["high", "low", "middle"]
    assert labelled.check(FAR).wrong is not None
    bare = GuardedClassifier(module, prefit=True, classes=["x", "y", "z"]).fit(X)
    assert set(bare.predict(X)) <= {"x", "y", "z"} and bare.check(FAR).wrong is None
    assert GuardedClassifier(module, prefit=True).fit(X).classes_.tolist() == [0, 1, 2]
    assert module.training and all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_module_of_ones_own_is_trained_as_a_copy_also_on_pictures(X: Any, y: Any) -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))
    before = copy.deepcopy(module.state_dict())
    pictures = X.reshape(-1, 1, 2, 2).astype(np.float32)
    state = torch.get_rng_state()
    model = GuardedClassifier(module, epochs=8, batch_size=64).fit(pictures, y)
    assert torch.equal(state, torch.get_rng_state())
    assert model.score(pictures, y) > 0.8 and model.foreign(FAR.reshape(-1, 1, 2, 2)).all()
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert model.module_ is not module and clone(model).module is not module


def test_the_same_seed_gives_the_same_model(guarded: GuardedClassifier, X: Any, y: Any) -> None:
    again = GuardedClassifier(**QUICK).fit(X, y)
    assert np.array_equal(again.predict_proba(X), guarded.predict_proba(X))
    other = GuardedClassifier(**QUICK, random_state=1).fit(X, y)
    assert not np.array_equal(other.predict_proba(X), guarded.predict_proba(X))


@pytest.mark.parametrize("loss", ["CrossEntropyLoss", "NLLLoss", "BCEWithLogitsLoss"])
def test_a_net_of_skorch_is_trained_by_it_or_used_as_it_is(loss: str, X: Any) -> None:
    skorch = pytest.importorskip("skorch", reason="needs skorch")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1 if loss == "BCEWithLogitsLoss" else 2)

        def forward(self, x: Tensor) -> Tensor:
            z: Tensor = self.layer(x)
            return z.softmax(1) if loss == "NLLLoss" else z.squeeze(1) if loss == "BCEWithLogitsLoss" else z

    kind = skorch.NeuralNetBinaryClassifier if loss == "BCEWithLogitsLoss" else skorch.NeuralNetClassifier
    net = kind(Net, criterion=getattr(nn, loss), max_epochs=4, lr=0.5, train_split=None, verbose=0)
    labels = np.where(X[:, 0] > 0, "yes", "no")
    model = GuardedClassifier(net).fit(X, labels)
    assert model.score(X, labels) > 0.85 and model.foreign(FAR).all()
    assert not hasattr(net, "module_") and "module__lr" in model.get_params()
    net.fit(X.astype(np.float32), (X[:, 0] > 0).astype(np.int64 if "BCE" not in loss else np.float32))
    trained = GuardedClassifier(net, prefit=True).fit(X, labels)
    np.testing.assert_allclose(trained.predict_proba(X), net.predict_proba(X.astype(np.float32)), atol=1e-6)


def test_a_saved_classifier_gives_the_same_answers(guarded: GuardedClassifier, X: Any, y: Any, tmp_path: Path) -> None:
    guarded.save(tmp_path / "mlp")
    own = GuardedClassifier(network(), epochs=2, batch_size=128).fit(X, y)
    own.save(tmp_path / "own")
    for model, module in ((guarded, None), (own, network())):
        again = GuardedClassifier.load(tmp_path / ("mlp" if module is None else "own"), module)
        assert np.array_equal(again.predict(X), model.predict(X))
        assert np.array_equal(again.p_value(X), model.p_value(X))
        assert again.get_params()["epochs"] == model.epochs
    assert not [file for file in tmp_path.rglob("*") if file.suffix not in {"", ".json", ".safetensors"}]
    assert np.array_equal(pickle.loads(pickle.dumps(guarded)).p_value(X[:9]), guarded.p_value(X[:9]))
    for folder, module in (("mlp", network()), ("own", None), ("own", network(5))):
        with pytest.raises(InputError, match=r"to load the weights|with the weights"):
            GuardedClassifier.load(tmp_path / folder, module)


def test_few_inputs_leave_a_classifier_without_a_guard(X: Any, y: Any) -> None:
    with pytest.warns(UserWarning, match="there is no guard"):
        model = GuardedClassifier(**QUICK).fit(X[:60], y[:60])
    assert model.predict(X[:3]).shape == (3,) and not hasattr(model, "score_samples")
    with pytest.raises(InputError, match="expected a guard"):
        model.foreign(X[:3])


@pytest.mark.parametrize("method", ["entropy", "regrad", "mahalanobis"])
def test_a_scorer_has_the_scores_of_nescio_with_both_signs(method: str, X: Any, y: Any) -> None:
    scorer = UncertaintyScorer(method=method, alpha=0.1, **QUICK).fit(X, y)
    wanted = nescio.score(scorer.module_, torch.tensor(X[:200]), scorer.method_).numpy()
    np.testing.assert_allclose(scorer.uncertainty(X[:200]), wanted, rtol=1e-9)
    assert np.array_equal(scorer.score_samples(X[:200]), -scorer.uncertainty(X[:200]))
    assert np.array_equal(scorer.predict(X[:200]) == -1, scorer.decision_function(X[:200]) < 0)
    assert 0.04 < (scorer.predict(X) == -1).mean() < 0.2
    assert np.array_equal(scorer.decision_function(X[:9]), scorer.score_samples(X[:9]) - scorer.offset_)


def test_a_scorer_of_a_trained_module_needs_labels_only_for_a_method_that_is_fitted(X: Any, y: Any) -> None:
    module = network()
    scorer = UncertaintyScorer(module, prefit=True, method="knn", settings={"k": 3})
    with pytest.raises(InputError, match="expected labels y for the method 'knn'"):
        scorer.fit(X)
    assert scorer.fit(X, y).method_.k == 3
    plain = UncertaintyScorer(module, prefit=True).fit(X)
    np.testing.assert_allclose(plain.uncertainty(X[:9]), nescio.score(module, torch.tensor(X[:9]), "gen"), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "labels", "error", "message"),
    [
        ({"module": network(5)}, 3, ModelError, "each of the 3 classes, got 5 outputs"),
        ({"module": network(2)}, 3, InputError, "expected labels from 0 to 1"),
        ({}, 1, InputError, "one class"),
        ({"prefit": True}, 3, InputError, "expected a trained module"),
        ({"module": network(), "prefit": True, "classes": [0, 1]}, 3, ModelError, "each of the 2 classes"),
        ({"module": network(), "prefit": True, "classes": [7, 8, 9]}, 3, InputError, "expected labels among"),
        ({"module": network(), "output": "binary"}, 3, InputError, "gives logits to be trained"),
        ({"alpha": 2}, 3, InputError, "expected alpha"),
        ({"held_out": 0}, 3, InputError, "expected held_out"),
    ],
)
def test_bad_settings_get_a_sentence(settings: Any, labels: int, error: Any, message: str, X: Any) -> None:
    with pytest.raises(error, match=message):
        GuardedClassifier(**{**QUICK, **settings}).fit(X, np.arange(len(X)) % labels)


def test_the_module_of_names_says_what_it_has_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttributeError, match="it has GuardedClassifier, UncertaintyScorer"):
        nescio.sklearn.Guarded
    with pytest.raises(AttributeError, match="it has GuardCallback"):
        nescio.lightning.Guard
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingExtra, match=r"nescio\[sklearn\]"):
        nescio.sklearn.GuardedClassifier
