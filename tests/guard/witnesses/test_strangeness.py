import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from nescio.guard.witnesses import Anatomy, Strangeness, strangeness
from nescio.quantities import Activations, Features


@pytest.mark.parametrize(("count", "k"), [(40, 10), (200, 3), (4, 10)])
def test_it_is_the_mean_cosine_distance_to_the_nearest(count, k):
    known, new = torch.randn(count, 6, dtype=torch.float64), torch.randn(15, 6, dtype=torch.float64)
    witness = Strangeness(neighbours=k)
    found = witness.measure(witness.fit(witness.rows(known)), witness.rows(new))
    nearest = NearestNeighbors(n_neighbors=min(k, count), metric="cosine").fit(known.numpy())
    expected = nearest.kneighbors(new.numpy())[0].mean(1)
    np.testing.assert_allclose(found[:, 0].numpy(), expected, atol=1e-12)


def test_it_does_not_depend_on_how_the_table_is_cut(monkeypatch):
    known, new = torch.randn(30, 6, dtype=torch.float64), torch.randn(17, 6, dtype=torch.float64)
    witness = Strangeness()
    found = witness.fit(witness.rows(known))
    whole = witness.measure(found, witness.rows(new))
    monkeypatch.setattr(strangeness, "_ELEMENTS", 100)
    torch.testing.assert_close(witness.measure(found, witness.rows(new)), whole)


def test_features_that_are_all_zero_are_at_right_angles_to_everything():
    witness = Strangeness()
    found = witness.fit(witness.rows(torch.randn(20, 6, dtype=torch.float64)))
    assert float(witness.measure(found, witness.rows(torch.zeros(1, 6, dtype=torch.float64)))) == 1.0


def test_it_needs_features():
    nothing = Activations(())
    assert Strangeness().needs(Anatomy(None, nothing, "pictures")) == ()
    assert Strangeness().needs(Anatomy(Features("a"), nothing, "pictures")) == (Features("a"),)
