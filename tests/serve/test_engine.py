from dataclasses import replace

import pytest
import torch

import nescio
from nescio import decide
from nescio.models import Classifier
from nescio.models.sources import Pictures, Source
from nescio.posteriors import DeepEnsemble, InsertedDropout, Laplace
from nescio.serve import Engine
from nescio.types import InputError, ModelError
from tests.serve import models


def same(alone, joined):
    assert torch.equal(alone.probabilities, joined.probabilities)
    assert alone == type(alone)(
        alone.probabilities, *[getattr(joined, f) for f in list(alone.__dataclass_fields__)[1:]]
    )


def trained(source):
    x = torch.rand(40, 1, 8, 8)
    return x, torch.arange(40) % 10


@pytest.mark.parametrize("kind", ["pictures", "numbers", "many classes", "texts"])
def test_results_do_not_depend_on_what_is_joined(kind):
    if kind == "texts":
        source, words = models.texts(), ("a", "ab", "xyz", "bla", "bla bla", "uvw", "a", "so so so", "ba", "c", "dd")
        rows = [source.preprocess(word) for word in words]
    elif kind == "pictures":
        source, rows = models.pictures(), list(torch.rand(11, 1, 8, 8))
    else:
        source, rows = models.numbers(100 if kind == "many classes" else 3), list(torch.randn(11, 5))
    methods = ["regrad", "entropy", "gradnorm"]
    posterior = Laplace(source.model, samples=3).fit(trained(source)) if kind == "pictures" else None
    posterior = models.Trained(source.model, samples=3) if kind == "texts" else posterior
    engine = Engine(source, methods, posterior=posterior)
    joined = engine.assess(rows, methods)
    for place, row in enumerate(rows):
        same(engine.assess([row], methods)[0], joined[place])
    for place, found in enumerate(engine.assess(rows[::-1], methods)[::-1]):
        same(found, joined[place])


def test_results_are_those_of_the_library():
    source, x = models.pictures(), torch.rand(8, 1, 8, 8)
    posterior = models.Trained(source.model, samples=3)
    found = Engine(source, ["regrad", "entropy"], posterior=posterior).assess(list(x), ["regrad", "entropy"])
    regrad = nescio.score(source.model, x, nescio.scores.REGrad(tolerance=0), progress=False)
    entropy = torch.cat([nescio.score(posterior, one, "entropy", progress=False) for one in x.split(1)])
    doubt = nescio.decompose(torch.cat([posterior.predict(one) for one in x.split(1)], dim=1))
    assert [one.scores["regrad"] for one in found] == regrad.tolist()
    assert [one.scores["entropy"] for one in found] == entropy.tolist()
    assert [one.epistemic for one in found] == pytest.approx(doubt.epistemic.tolist(), abs=1e-12)
    assert {one.samples for one in found} == {3}


def test_passes_have_one_size():
    source = models.numbers()
    guard = models.guard(source)
    sizes = []
    source.model.model[0].register_forward_pre_hook(lambda layer, given: sizes.append(len(given[0])))
    engine = Engine(source, ["entropy", "energy"], rows=4, guard=guard)
    assert len(engine.assess(list(torch.randn(9, 5)), ["entropy", "energy"])) == 9
    assert sizes == [4, 4, 4]  # answers, scores and verdicts from one forward pass each


def test_verdicts_are_those_of_the_library_whatever_is_joined():
    source, x = models.pictures(), torch.rand(8, 1, 8, 8)  # as many as a pass has: every bit is the same
    guard = models.guard(source)
    engine = Engine(source, ["entropy"], guard=guard)
    found = [one.verdict for one in engine.assess(list(x))]
    library = guard.check(x, progress=False)
    assert torch.cat([one.p_value for one in found]).tolist() == library.p_value.tolist()
    assert [one.words()[0] for one in found] == library.words()
    alone = engine.assess([x[5]])[0].verdict
    assert alone.score.item() == found[5].score.item()
    assert Engine(source, ["entropy"]).assess([x[0]])[0].verdict is None
    with pytest.raises(InputError, match=r"expected inputs of shape \[1, 8, 8\] as in the reference"):
        engine.assess([torch.rand(1, 9, 9)])


def test_a_distribution_is_guarded_by_its_network():
    source = models.pictures()
    guard, posterior = models.guard(source), models.Trained(source.model, samples=3)
    engine = Engine(source, ["entropy"], posterior=posterior, guard=guard)
    (found,) = engine.assess([torch.rand(1, 8, 8)])
    assert (found.samples, len(found.verdict)) == (3, 1)
    with pytest.raises(ModelError, match="expected the model that the guard was fitted with"):
        Engine(models.pictures(seed=1), guard=guard)
    several = Source(DeepEnsemble([models.pictures(seed).model for seed in range(3)]), None, "three")
    with pytest.raises(ModelError, match="expected a single network for a guard, got three, which has 3"):
        Engine(several, guard=guard)


def test_a_single_network_has_no_parts():
    found = Engine(models.numbers(), ["entropy"]).assess([torch.randn(5)])[0]
    assert (found.samples, found.epistemic) == (1, 0.0)


def test_no_tolerance_is_kept_by_looking_at_the_batch():
    engine = Engine(models.numbers(), ["regrad"])
    assert engine.methods["regrad"].tolerance == 0.0
    assert engine.methods["regrad"].samples == nescio.scores.REGrad().samples


def test_the_policy_names_its_score():
    policy = decide.quantile(torch.rand(100), 0.9, about={"score": "max_probability"})
    engine = Engine(models.numbers(), ["entropy"], policy=policy)
    assert (engine.decider, list(engine.methods)) == ("max_probability", ["entropy", "max_probability"])


def test_an_ensemble_is_scored_by_what_it_can_do():
    ensemble = DeepEnsemble([models.pictures(seed).model for seed in range(3)])
    source = Source(ensemble, models.pictures().preprocess, "three")
    assert list(Engine(source).methods) == ["gen"]
    with pytest.raises(InputError, match="'regrad', which needs a single network"):
        Engine(source, ["regrad"])
    with pytest.raises(InputError, match="one distribution"):
        Engine(source, posterior=ensemble)


def test_the_usual_method_is_that_of_every_command():
    usual = [nescio.scores.default_method().name]
    assert list(Engine(models.pictures()).methods) == usual
    assert list(Engine(Source(Classifier(lambda x: x.flatten(1)), None, "a function")).methods) == usual


def test_methods_that_cannot_be_done_are_refused_at_once():
    with pytest.raises(InputError, match="'mutual_information', which needs a distribution"):
        Engine(models.numbers(), ["mutual_information"])
    with pytest.raises(InputError, match="'mahalanobis' to be fitted"):
        Engine(models.numbers(), ["mahalanobis"])


def test_dropout_that_was_only_inserted_tells_no_kinds_apart():
    source, x = models.pictures(), torch.rand(1, 8, 8)
    posterior = InsertedDropout(source.model, samples=3)
    (found,) = Engine(source, ["entropy"], posterior=posterior).assess([x])
    assert (found.samples, found.epistemic, found.aleatoric) == (1, 0.0, found.total)
    assert found.probabilities.tolist() == pytest.approx(posterior.predict(x[None]).mean(0)[0].tolist())
    (other,) = Engine(source, ["entropy"], posterior=models.Trained(source.model, samples=3)).assess([x])
    assert other.samples == 3 and other.epistemic > 0


def test_maps_add_up():
    engine = Engine(models.pictures(), ["entropy"])
    known, found = engine.explain(torch.rand(1, 8, 8))
    assert found.of == "total"
    assert float(found.uncertainty) == pytest.approx(known.total, rel=1e-5)
    assert found.maps.shape == (1, 8, 8)
    assert abs(float(found.residual)) < 1e-6
    assert known.samples == 1
    with pytest.raises(InputError, match="expected of to be total, got epistemic: the model is a single network"):
        engine.explain(torch.rand(1, 8, 8), of="epistemic")
    with pytest.raises(InputError, match="expected method to be one of ua_backprop"):
        engine.explain(torch.rand(1, 8, 8), method="clue")


def test_warming_up_tells_what_cannot_be_scored():
    assert Engine(models.pictures(), ["entropy"]).warm_up() is None
    assert Engine(models.texts()).warm_up() is None
    assert Engine(models.numbers()).warm_up() is None
    source = models.pictures()
    wrong = Source(source.model, Pictures((8, 8), channels=3), "three channels for a grey network")
    assert "a blank input could not be scored: the model could not take" in Engine(wrong, ["entropy"]).warm_up()


@pytest.mark.parametrize(
    ("about", "shown"),
    [
        ("resnet18, weights of /home/ann b/models/w.safetensors", "resnet18, weights of w.safetensors"),
        ("Laplace of /srv/kept over hf:/srv/models/bert, 4 M", "Laplace of kept over hf:bert, 4 M"),
        (r"hf:C:\Users\ann\bert, ~/w.pt", "hf:bert, w.pt"),
        (
            "timm:hf_hub/vit.base, weights of kept/w.pt, 1/2 of them",
            "timm:hf_hub/vit.base, weights of kept/w.pt, 1/2 of them",
        ),
    ],
)
def test_others_are_not_told_the_folders_of_this_machine(about, shown):
    assert Engine(replace(models.numbers(), about=about), ["entropy"]).about == shown
