"""The models, trained once."""

import pytest
import torch

from nescio_papers.know_your_limits import models, moons
from nescio_papers.know_your_limits.half_moons import half_moons
from papers.tests.know_your_limits.conftest import ROOT


def test_models_are_trained_once(tmp_path, monkeypatch):
    data = half_moons(0, 40, 20)
    plan = models.Plan(
        models.Net((4,), 0.1, 0.01), models.Net((4,), 0.1, 0.01), 2, members=2, samples=3, longer_epochs=2
    )
    names = [name for name in moons.MODELS if name != "temperature-scaled"]

    def made():
        pair = (data.x, data.y), (data.held_x, data.held_y)
        trainer = models.Trainer(*pair, plan, 0, tmp_path, lambda: None)
        return {name: one.predict(ROOT) for name, one in trainer.all(names).items()}

    first = made()
    monkeypatch.setattr(models.training, "train", None)
    again = made()
    assert list(again) == names and all(torch.equal(first[name], again[name]) for name in names)
    for path in tmp_path.glob("one-*.pt"):
        path.write_bytes(b"broken")
    with pytest.raises(TypeError):  # a file that cannot be read is made anew
        made()
