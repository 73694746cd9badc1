"""What people have at hand (tables, lists, arrays, estimators) gets the right answer, or the sentence that helps."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import nescio
from nescio import inputs
from nescio.types import InputError, ModelError

pytestmark = pytest.mark.filterwarnings("ignore:the reference has")
NAMES = ["age", "pay", "height"]


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(120, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).eval()


def frame(x: Tensor) -> pd.DataFrame:
    return pd.DataFrame(x.numpy(), columns=NAMES)


KINDS = {
    "a DataFrame": frame,
    "a list of lists": lambda x: x.tolist(),
    "a list of tuples": lambda x: [tuple(row) for row in x.tolist()],
    "an array": lambda x: x.numpy(),
    "an array of float64": lambda x: x.double().numpy(),
}
CALLS = {
    "score": lambda model, x: nescio.score(model, x, "gen"),
    "regrad": lambda model, x: nescio.score(model, x, "regrad"),
    "guard": lambda model, x: nescio.Guard(model).fit(x, progress=False).check(x, progress=False).p_value,
    "explain": lambda model, x: (
        nescio.explain(nescio.posteriors.Deterministic(model), x, of="total", progress=False).maps
    ),
    "audit": lambda model, x: torch.tensor(
        [row.limit for row in nescio.limits.audit(model, x, "away", starts=2, progress=False).rows]
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_batch_gives_what_the_tensor_gives(model: nn.Module, x: Tensor, kind: str, call: str) -> None:
    given = KINDS[kind](x)
    wide = isinstance(given, list) or "float64" in kind  # Python's numbers have 64 bits
    torch.testing.assert_close(CALLS[call](model, given), CALLS[call](model, x.double() if wide else x))


def test_labels_come_as_a_series_or_a_list(model: nn.Module, x: Tensor) -> None:
    y = torch.arange(120) % 2
    expected = nescio.score(model, x, "knn", fit=(x, y))
    for pair in ((frame(x), pd.Series(y.numpy())), (x.tolist(), y.tolist())):
        torch.testing.assert_close(nescio.score(model, frame(x), "knn", fit=pair), expected)
        guard = nescio.Guard(model).fit(pair, progress=False)
        assert guard.fitted.count == 120
        assert guard.check(x[:5], progress=False).wrong is not None


def test_whole_numbers_of_a_table_are_features(model: nn.Module) -> None:
    table = pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": [True, False]})
    expected = nescio.score(model, torch.tensor([[1.0, 3, 1], [2, 4, 0]]), "gen")
    torch.testing.assert_close(nescio.score(model, table, "gen"), expected)


@pytest.mark.parametrize("call", CALLS)
def test_columns_without_numbers_are_named(model: nn.Module, x: Tensor, call: str) -> None:
    table = frame(x).assign(city="Bonn")
    with pytest.raises(
        InputError, match=r"got a DataFrame of 120 rows and 4 columns, of which 'city' hold no numbers"
    ) as e:
        CALLS[call](model, table)
    assert "table.drop(columns=['city'])" in str(e.value)


def test_missing_values_are_not_told_to_be_no_numbers() -> None:
    assert np.isnan(inputs.plain(pd.DataFrame({"a": [1.0, np.nan]}))).sum() == 1


@pytest.mark.parametrize("call", ["score", "regrad", "guard", "explain"])
def test_a_wrong_shape_is_named_as_the_user_knows_it(model: nn.Module, call: str) -> None:
    with pytest.raises(InputError, match=r"could not take inputs of shape \[N, 2\] \(tried with N = ") as e:
        CALLS[call](model, torch.randn(285, 2))
    assert "[2, 2]" not in str(e.value)
    assert "[3, 2]" not in str(e.value)


def test_one_input_alone_is_told_how_to_become_a_batch(model: nn.Module) -> None:
    with pytest.raises(InputError, match=r"one input alone becomes a batch by x\[None\]"):
        nescio.score(nn.Linear(5, 2), torch.randn(8), "regrad")
    with pytest.raises(ModelError, match=r"x\.unsqueeze\(0\)"):
        nescio.score(model, torch.randn(3), "gen")
    with pytest.raises(
        InputError, match=r"got a list of 3 numbers, which is one input at most; a batch of one is \[num"
    ):
        nescio.score(model, [0.1, 0.2, 0.3])
    assert nescio.score(model, [[0.1, 0.2, 0.3]]).shape == (1,)


def test_rows_of_different_lengths_texts_and_pictures(model: nn.Module) -> None:
    with pytest.raises(InputError, match="got a list of 2 rows of different lengths"):
        nescio.score(model, [[0.1, 0.2, 0.3], [0.1]])
    with pytest.raises(InputError, match="make numbers of texts with a tokenizer"):
        nescio.score(model, ["a text", "another"])
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 4))
    with pytest.raises(InputError, match="make it a tensor first, as the model was trained"):
        nescio.score(model, [image])


@pytest.mark.parametrize("call", CALLS)
def test_an_estimator_of_scikit_learn_is_named(x: Tensor, call: str) -> None:
    estimator = LogisticRegression().fit(x.numpy(), (x[:, 0] > 0).long().numpy())
    with pytest.raises(ModelError, match=r"got the estimator LogisticRegression of scikit-learn") as e:
        CALLS[call](estimator, x)
    line = str(e.value).partition("can be had: ")[2]
    found = eval(line, {"nescio": nescio, "torch": torch, "model": estimator, "x": x})
    p = torch.from_numpy(estimator.predict_proba(x.numpy()))
    torch.testing.assert_close(found, -(p * p.log()).sum(1).double(), rtol=1e-5, atol=1e-6)


def test_other_estimators_are_told_what_to_give(x: Tensor, model: nn.Module) -> None:
    class Net:
        """As skorch has it."""

        def fit(self) -> None: ...
        def predict(self) -> None: ...
        def get_params(self) -> None: ...

    with pytest.raises(ModelError, match="give the PyTorch module that it is made of"):
        nescio.score(Net(), x)
    net = Net()
    net.module_ = model  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"give the module in it: model\.module_"):
        nescio.score(net, x)


def test_a_posterior_is_no_estimator(x: Tensor, model: nn.Module) -> None:
    class Own:
        def predict(self, x: Tensor, *, progress: bool | None = None) -> Tensor:
            return torch.full((2, len(x), 2), 0.5, dtype=torch.float64)

    assert nescio.score(Own(), x, "entropy").tolist() == pytest.approx([np.log(2)] * 120)


def test_probabilities_come_as_a_table_and_a_model_is_told_to_answer_first(model: nn.Module) -> None:
    p = [[0.2, 0.8], [0.5, 0.5]]
    torch.testing.assert_close(
        nescio.decompose(pd.DataFrame(p)).total, nescio.decompose(torch.tensor(p).double()).total
    )
    with pytest.raises(InputError, match=r"a model has to answer first: nescio\.decompose\("):
        nescio.decompose(model)
