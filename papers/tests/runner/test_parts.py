import importlib

import pytest
import torch

from nescio.types import InputError
from nescio_papers import datasets as data
from nescio_papers import zoo
from nescio_papers.runner.parts import Parts, _formed, held_out
from nescio_papers.runner.scale import SCALES, size_of


@pytest.fixture
def parts(tmp_path, models):
    return Parts(SCALES["smoke"], None, models, "cpu", False)


def test_validation_pictures_are_those_the_network_was_not_trained_on(parts):
    carried_out = importlib.import_module("nescio_papers.zoo.trained")
    plan = zoo.RECIPES["digits"]
    (trained_on, _), (chosen_by, _), _ = carried_out._parts(plan, 3, None, None)
    found = parts.validation("mnist", 3)
    assert torch.equal(found.x, chosen_by)
    assert len(found.x) + len(trained_on) == len(data.load_set("digits", "train").x)
    assert len(held_out(plan, 0, 5)) == 1


def test_sets_have_a_fixed_order_and_names_that_differ(parts):
    known = parts.known("mnist")
    assert parts.known("cifar10") is known  # digits stand for both
    assert sorted(known.y.tolist()) == sorted(data.load_set("digits", "test").y.tolist())
    foreign = parts.foreign("omniglot", known)
    assert "drawn_letters" in foreign.name and foreign.id != known.id
    turned = parts.foreign("shift:rotated", known)
    assert torch.equal(turned.x, known.x.rot90(1, (2, 3))) and turned.id != known.id
    batches = list(known.batches(7))
    assert [len(x) for x, _ in batches] == [7] and batches[0][0].max() <= 1
    assert torch.equal(batches[0][1], known.y[:7])


def test_pictures_are_brought_to_the_form_of_the_known_ones():
    grey = torch.full((2, 1, 8, 8), 100, dtype=torch.uint8)
    assert torch.equal(_formed(grey, 3, 4, 4), torch.full((2, 3, 4, 4), 100, dtype=torch.uint8))
    colour = torch.stack([torch.full((8, 8), v) for v in (0, 30, 60)])[None].to(torch.uint8)
    assert torch.equal(_formed(colour, 1, 8, 8), torch.full((1, 1, 8, 8), 30, dtype=torch.uint8))


def test_fast_plans_are_taken_where_they_are_wanted(models):
    assert Parts(SCALES["quick"], None, models, "cpu", False).plan("cifar10") == "cifar10-fast"
    assert Parts(SCALES["paper"], None, models, "cpu", False).plan("cifar10") == "cifar10"
    with pytest.raises(InputError, match="mnist test"):
        Parts(SCALES["paper"], "/nowhere", models, "cpu", False).known("mnist")


def test_the_scale_of_a_processor_trains_small_networks_alone(models):
    parts = Parts(SCALES["small"], "/nowhere", models, "cpu", False)
    with pytest.raises(InputError, match="the scale small has no network of this data set"):
        parts.model("cifar10", 0)
    with pytest.raises(InputError, match="mnist"):  # this one would be trained, if the data were there
        parts.model("mnist", 0)


def test_a_study_without_a_size_of_its_own_takes_that_of_quick():
    sizes = {"smoke": 1, "quick": 2}
    assert [size_of(sizes, SCALES[name]) for name in ("smoke", "small", "quick", "paper")] == [1, 2, 2, 2]
    assert size_of({**sizes, "small": 3}, SCALES["small"]) == 3
