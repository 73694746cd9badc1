import torch

from nescio.serve import bundled as bundled_module
from nescio.serve.bundled import bundled


def test_the_digits_are_trained_once_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = bundled(["entropy"], epochs=1, progress=False)
    assert (tmp_path / "nescio" / "bundled" / "digits-0-epochs1" / "policy-entropy.json").is_file()
    monkeypatch.setattr(bundled_module.decide, "threshold", lambda *given, **more: 1 / 0)
    again = bundled(["entropy"], epochs=1, progress=False)
    assert first.policy == again.policy and again.policy.about["score"] == "entropy"
    assert again.source.classes == tuple("0123456789")
    x = torch.rand(1, 8, 8)
    one, other = (engine.assess([x], ["entropy"])[0] for engine in (first, again))
    assert torch.equal(one.probabilities, other.probabilities)
    assert one.samples == 20 and one.epistemic > 0
    assert again.guard.fitted.count == 290 and again.guard.fitted.mistakes is not None
    noise = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert again.assess([noise])[0].verdict.states() == ["foreign"]
