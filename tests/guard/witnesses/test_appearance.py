import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf

from nescio.guard.witnesses import Anatomy, Appearance
from nescio.quantities import Activations
from nescio.types import Depth


def made(count, width, seed=0):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(count, width)) @ rng.normal(size=(width, width)) + 3.0)


@pytest.mark.parametrize(("count", "width"), [(40, 5), (200, 12), (12, 30), (30, 30)])
def test_the_distance_is_that_of_ledoit_and_wolf(count, width):
    known, new = made(count, width), made(9, width, seed=0)[:9] + 0.5
    witness = Appearance()
    found = witness.measure(witness.fit((known,)), (new,))
    model = LedoitWolf().fit(known.numpy())
    np.testing.assert_allclose(found[:, 0].square().numpy(), model.mahalanobis(new.numpy()), rtol=1e-6)


def test_a_column_for_each_depth_and_only_what_is_far_out_counts():
    known = made(50, 4), made(50, 7, seed=1)
    witness = Appearance()
    measured = witness.measure(witness.fit(known), (known[0][:3], known[1][:3]))
    assert measured.shape == (3, 2)
    z = torch.tensor([[-2.0, -1.0], [1.0, 3.0], [-5.0, 2.0]], dtype=torch.float64)
    expected = torch.tensor([0.0, 3 * (1.5**2 / 2) ** 0.5, 3 * (0.5**2 / 2) ** 0.5], dtype=torch.float64)
    torch.testing.assert_close(witness.vote(z), expected)
    torch.testing.assert_close(Appearance(dead_zone=2.0, weight=1.0).vote(z)[1], torch.tensor(0.5**0.5).double())
    torch.testing.assert_close(witness.summary(z)[1:], torch.tensor([5**0.5, 2**0.5], dtype=torch.float64))


def test_constant_channels_do_not_break_it():
    known = made(60, 6)
    known[:, 2] = 1.5
    witness = Appearance()
    found = witness.fit((known,))
    usual = witness.measure(found, (known,))
    assert bool(usual.isfinite().all())
    moved = known[:5].clone()
    moved[:, 2] += 5.0
    assert bool((witness.measure(found, (moved,)) > usual.max()).all())


def test_where_nothing_moves_any_change_is_far_out():
    known = torch.full((30, 4), 2.0, dtype=torch.float64)
    witness = Appearance()
    found = witness.fit((known,))
    same, other = witness.measure(found, (known[:1],)), witness.measure(found, (known[:1] + 0.1,))
    assert float(same) == pytest.approx(0.0, abs=1e-6)
    assert float(other) > 1e3


def test_it_needs_depths():
    assert Appearance().needs(Anatomy(None, Activations(()), "vectors")) == ()
    activations = Activations((Depth("0", 1),))
    assert Appearance().needs(Anatomy(None, activations, "vectors")) == (activations,)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("pictures", "edges and textures"), ("tokens", "words"), ("vectors", "values"), ("signals", "shapes")],
)
def test_words_are_of_the_kind_of_input(kind, words):
    assert words in Appearance().words(kind)
