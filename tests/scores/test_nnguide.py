"""NNGuide against numpy and scikit-learn's cosines, in parts, and with too few training inputs."""

import numpy as np
import pytest
import torch

from nescio import scores
from nescio.types import InputError

G = torch.Generator().manual_seed(0)
H, Z, Y = (torch.randn(40, width, generator=G, dtype=torch.float64) for width in (6, 3, 1))
NEW, OWN = (torch.randn(7, width, generator=G, dtype=torch.float64) for width in (6, 3))


@pytest.mark.parametrize("k", [1, 5, 40])
def test_it_is_scikit_learns_cosines_weighted_by_energies(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    weighted = pairwise.cosine_similarity(NEW.numpy(), H.numpy()) * np.log(np.exp(Z.numpy()).sum(1))
    guidance = np.sort(weighted, axis=1)[:, -k:].mean(1)
    truth = -guidance * np.log(np.exp(OWN.numpy()).sum(1))
    method = scores.NNGuide(k=k).fitted([H, Z], Y)
    np.testing.assert_allclose(method(NEW, OWN).numpy(), truth, rtol=1e-9)
    monkeypatch.setattr("nescio.scores.nnguide.ELEMENTS", 1)
    np.testing.assert_allclose(method(NEW, OWN).numpy(), truth, rtol=1e-9)


def test_few_training_inputs_no_features_and_another_width() -> None:
    with pytest.warns(UserWarning, match="nnguide: expected at least k = 10 training inputs, got 4; k is 4 now"):
        few = scores.NNGuide().fitted([H[:4], Z[:4]], Y[:4])
    assert torch.equal(few(NEW, OWN), scores.NNGuide(k=4).fitted([H[:4], Z[:4]], Y[:4])(NEW, OWN))
    assert few(0 * NEW, OWN).tolist() == [0.0] * 7
    with pytest.raises(InputError, match="nnguide: expected 6 features as in the training data, got 5"):
        few(NEW[:, :5], OWN)
