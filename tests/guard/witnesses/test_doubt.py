import pytest
import torch

from nescio import scores
from nescio.guard.witnesses import WITNESSES, Anatomy, Doubt, Witness, register
from nescio.quantities import Activations, Logits
from nescio.types import InputError

NOTHING = Anatomy(None, Activations(()), "vectors")


def test_it_is_the_score_itself():
    witness = Doubt(scores.get("entropy"))
    assert witness.needs(NOTHING) == (Logits(),)
    logits = torch.randn(5, 3, dtype=torch.float64)
    rows = witness.rows(logits)
    assert torch.equal(witness.measure(witness.fit(rows), rows)[:, 0], scores.get("entropy")(logits))
    assert Doubt().score == scores.get("gen")


@pytest.mark.parametrize("name", ["mahalanobis", "knn", "laplace", "mutual_information"])
def test_a_score_that_needs_more_is_refused(name):
    with pytest.raises(InputError, match=f"neither training data nor a posterior as doubt=, got '{name}'"):
        Doubt(scores.get(name))


def test_all_witnesses_are_known_by_their_names_and_each_once():
    assert set(WITNESSES) >= {"doubt", "strangeness", "appearance"}
    assert all(name == one.name and issubclass(one, Witness) for name, one in WITNESSES.items())
    with pytest.raises(AssertionError, match="two witnesses are named 'doubt'"):
        register(Doubt)
