import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import entropy, pearsonr, spearmanr
from sklearn.metrics import roc_auc_score

from nescio.evaluate import Parts, disentanglement
from nescio.types import Decomposition, InputError

NAMES = ("aleatoric", "epistemic", "total")


def parts(aleatoric, epistemic, dtype=torch.float64):
    aleatoric, epistemic = torch.tensor(aleatoric, dtype=dtype), torch.tensor(epistemic, dtype=dtype)
    rest = torch.zeros_like(aleatoric)
    return Decomposition(aleatoric + epistemic, aleatoric, epistemic, rest, rest, rest)


coarse = st.integers(2, 30).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 4).map(lambda v: v / 8), min_size=n, max_size=n)] * 2)
)


def test_a_case_worked_by_hand():
    # ranks 1, 2, 3, 4 and 2, 1, 4, 3: 1 − 6·4/(4·15) = 0.6
    found = disentanglement(parts([0.1, 0.2, 0.3, 0.4], [0.02, 0.01, 0.09, 0.03]))
    assert found.spearman == pytest.approx(0.6, abs=1e-12)
    # deviations (−3, −1, 1, 3)/20 and (−7, −11, 21, −3)/400 each: 44/√(20·620) after scaling
    x, y = np.array([-3, -1, 1, 3]), np.array([2, 1, 9, 3]) - 3.75
    assert found.pearson == pytest.approx((x * y).sum() / math.sqrt((x**2).sum() * (y**2).sum()), abs=1e-12)
    assert (found.label_entropy, found.errors, found.ood) == (None, None, None)


def test_labels_errors_and_ood_worked_by_hand():
    # entropies: 0, that of (¼, ¾) twice, log 2: ranks 1, 2.5, 2.5, 4
    labels = [[5, 0], [1, 3], [0.75, 0.25], [2, 2]]
    found = disentanglement(parts([0.0, 0.1, 0.2, 0.3], [0.5, 0.1, 0.1, 0.0]), labels, [1, 1, 0, 1], [1, 0, 0, 0])
    assert found.label_entropy.aleatoric == pytest.approx(4.5 / math.sqrt(5 * 4.5), abs=1e-12)
    assert found.label_entropy.epistemic == pytest.approx(-1, abs=1e-12)
    assert found.errors == Parts(aleatoric=2 / 3, epistemic=0.5, total=2 / 3)  # total 0.5, 0.2, 0.3, 0.3
    assert found.ood == Parts(aleatoric=0.0, epistemic=1.0, total=1.0)


@settings(max_examples=50)
@given(coarse, st.data())
def test_equals_scipy_and_scikit_learn_also_with_ties(values, data):
    aleatoric, epistemic = values
    n = len(aleatoric)
    soft = np.array(
        data.draw(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(any), min_size=n, max_size=n))
    )
    flags = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    assume(flags.any() and not flags.all())
    decomposition = parts(aleatoric, epistemic)
    found = disentanglement(decomposition, soft, ~flags, flags)
    columns = {name: getattr(decomposition, name).numpy() for name in NAMES}
    # SciPy's entropy rounds the orders of one multiset differently; equal ones must share a rank
    labels = np.round(entropy(soft, axis=1), 12)

    def expected(measure, x, y):
        return None if np.ptp(x) == 0 or np.ptp(y) == 0 else pytest.approx(measure(x, y)[0], abs=1e-9)

    assert found.spearman == expected(spearmanr, columns["aleatoric"], columns["epistemic"])
    assert found.pearson == expected(pearsonr, columns["aleatoric"], columns["epistemic"])
    for name, column in columns.items():
        assert getattr(found.label_entropy, name) == expected(spearmanr, column, labels)
        auroc = pytest.approx(roc_auc_score(flags, column), abs=1e-12)
        assert getattr(found.errors, name) == auroc
        assert getattr(found.ood, name) == auroc


@settings(max_examples=50)
@given(coarse, st.randoms(use_true_random=False))
def test_the_order_of_inputs_never_matters(values, random):
    n = len(values[0])
    order = random.sample(range(n), n)
    soft, flags = np.random.default_rng(n).integers(1, 4, size=(n, 3)), np.arange(n) % 2
    there = disentanglement(parts(*values), soft, flags, flags)
    shuffled = parts(*([one[i] for i in order] for one in values))
    assert there == disentanglement(shuffled, soft[order], flags[order], flags[order])


@settings(max_examples=50)
@given(coarse)
def test_bounds_and_monotone_transforms(values):
    found = disentanglement(parts(*values))
    grown = disentanglement(parts(np.exp(values[0]), np.array(values[1]) ** 3))
    assert found.spearman == grown.spearman
    if found.spearman is not None:
        assert -1 <= found.spearman <= 1
        assert -1 <= found.pearson <= 1
    scaled = disentanglement(parts(np.array(values[0]) * 1e-300, values[1])).pearson  # squares would underflow
    assert scaled == (None if found.pearson is None else pytest.approx(found.pearson, abs=1e-12))


def test_a_constant_part_has_no_correlation_and_an_auroc_of_chance():
    found = disentanglement(parts([0.1, 0.2, 0.3], [0.0, 0.0, 0.0]), [[1, 0], [3, 1], [1, 1]], [1, 1, 0], [0, 1, 0])
    assert (found.spearman, found.pearson) == (None, None)
    assert found.label_entropy.epistemic is None
    assert found.label_entropy.aleatoric == found.label_entropy.total == pytest.approx(1)
    assert found.errors.epistemic == found.ood.epistemic == 0.5
    hard = disentanglement(parts([0.1, 0.2], [0.2, 0.1]), [[1, 0], [0, 1]])  # labels without any doubt
    assert hard.label_entropy == Parts(None, None, None)
    assert hard.spearman == pytest.approx(-1)


def test_counts_and_probabilities_in_any_form_are_alike():
    decomposition = parts([0.1, 0.4, 0.2], [0.3, 0.2, 0.2])
    counts = np.array([[4, 0, 0], [2, 1, 1], [3, 1, 0]])
    expected = disentanglement(decomposition, counts, [True, False, True])
    for soft in (counts / 4, counts.tolist(), torch.tensor(counts / 4, dtype=torch.float16), counts[:, ::-1]):
        assert disentanglement(decomposition, soft, torch.tensor([1.0, 0.0, 1.0])) == expected
    half = dataclasses.replace(parts([0.25, 0.5, 0.75], [0.5, 0.25, 0.125], torch.bfloat16))
    assert disentanglement(half, counts) == disentanglement(parts([0.25, 0.5, 0.75], [0.5, 0.25, 0.125]), counts)


GOOD = parts([0.1, 0.2], [0.2, 0.1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.eye(2),), r"expected a nescio.types.Decomposition but got ndarray; make one with nescio.decompose"),
        ((parts([0.1], [0.1]),), "parts of one length, at least 2, but got {'aleatoric': 1"),
        ((dataclasses.replace(GOOD, total=torch.ones(3)),), "parts of one length, .*'total': 3"),
        ((parts([0.1, math.nan], [0.1, 0.1]),), "decomposition.aleatoric: .*1 of 2 scores are NaN"),
        ((parts([0.1, 0.1], [0.1, math.inf]),), "decomposition.epistemic: expected finite numbers but 1 are infinite"),
        ((GOOD, [[1, 0]]), "soft_labels: expected a row for each of the 2 inputs but got 1"),
        ((GOOD, [[1, 0], [0, 0]]), "soft_labels: expected at least one label for each input but row 1 is all 0"),
        ((GOOD, [[1, 0], [-1, 2]]), "soft_labels: expected finite numbers that are at least 0"),
        ((GOOD, [0, 1]), r"soft_labels: expected counts or probabilities of shape \[N, C\]"),
        ((GOOD, None, [1, 1]), "correct: expected both right and wrong answers but all 2 are of one kind"),
        ((GOOD, None, [1, 0, 1]), "correct: expected one for each of the 2 inputs but got 3"),
        ((GOOD, None, None, [0, 0]), "is_ood: expected both ID and OOD inputs"),
    ],
)
def test_errors_say_what_was_expected(arguments, message):
    with pytest.raises(InputError, match=message):
        disentanglement(*arguments)


def test_results_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        disentanglement(GOOD).spearman = 0.0
