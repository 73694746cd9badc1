"""One input in, plain data out: against the engine, the decomposition and the maps that it is made from."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from nescio import decide
from nescio.app import Backend, mapped, opinion, ruling
from nescio.app.opinion import Opinion
from nescio.attribution import explain
from nescio.models import Classifier
from nescio.models.sources import Pictures, Source
from nescio.scores.decomposition import decompose
from nescio.serve.engine import Engine, stacked
from nescio.types import InputError, NescioError


@pytest.fixture(scope="module")
def seen(backend: Backend) -> Opinion:
    return opinion(backend.engine, backend.examples[0].row, backend.scale)


@pytest.fixture(scope="module")
def strange(backend: Backend) -> Opinion:
    return opinion(backend.engine, backend.examples[1].row, backend.scale)


def test_it_is_what_the_rooms_below_say(backend: Backend, seen: Opinion) -> None:
    p = backend.engine.predict(backend.examples[0].row[None])
    doubt = decompose(p)
    assert [one.name for one in seen.doubts] == ["total", "aleatoric", "epistemic"]
    for one in seen.doubts:
        assert one.value == pytest.approx(float(getattr(doubt, one.name)[0]), rel=1e-5)
    assert seen.probabilities == pytest.approx(p.mean(0)[0].numpy(), abs=1e-6)
    assert seen.answers[0].index == int(p.mean(0)[0].argmax())
    shares = [one.probability for one in seen.answers]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert seen.most == math.log(10)
    assert [one.name for one in seen.methods] == ["regrad", "energy", "entropy", "knn", "mutual_information"]
    assert seen.value("entropy") == pytest.approx(seen.value("total"), rel=1e-6)
    assert np.array_equal(seen.picture, backend.examples[0].row.numpy())


def test_noise_is_more_doubtful_than_a_digit(seen: Opinion, strange: Opinion) -> None:
    for name in ("total", "epistemic", "energy"):
        places = [
            next(one.place for one in (*found.doubts, *found.methods) if one.name == name) for found in (seen, strange)
        ]
        assert places[0] < 0.95 < places[1], name
    energy = next(one for one in strange.methods if one.name == "energy")
    assert energy.flagged
    assert energy.words == "more doubtful than all 80 of the digits it knows"


def test_maps_add_up_and_are_those_of_explain(backend: Backend, strange: Opinion) -> None:
    maps = mapped(backend.engine, backend.examples[1].row, strange.samples)
    assert list(maps.parts) == ["total", "aleatoric", "epistemic"]
    for kind, part in maps.parts.items():
        assert part.shape == (8, 8)
        assert part.sum() == pytest.approx(maps.uncertainty[kind], rel=1e-4)
        assert maps.uncertainty[kind] == pytest.approx(strange.value(kind), rel=1e-4)
    found = explain(backend.engine.posterior, backend.examples[1].row[None], of="aleatoric", progress=False)
    assert maps.parts["aleatoric"] == pytest.approx(found.maps[0].numpy())
    assert maps.about.startswith("DeepEnsemble (4 members), by UA-Backprop")


def test_the_verdict_is_that_of_the_guard(backend: Backend, seen: Opinion, strange: Opinion) -> None:
    assert backend.engine.guard is not None
    for found, example in zip((seen, strange), backend.examples, strict=True):
        verdict = backend.engine.guard.check(stacked([example.row], backend.engine.rows), progress=False)
        assert found.verdict is not None
        assert found.verdict.p_value.tolist() == verdict.p_value[:1].tolist()
        assert found.verdict.words() == verdict.words()[:1]
        assert found.verdict.states() == ["fine" if found is seen else "foreign"]
    assert opinion(Engine(backend.engine.source, ["entropy"]), backend.examples[0].row).verdict is None


def test_a_policy_decides(backend: Backend, seen: Opinion, strange: Opinion) -> None:
    assert backend.scale is not None
    policy = decide.quantile(backend.scale.values["energy"], 0.95, about={"score": "energy"})
    yes, no = (ruling(found, policy, "energy") for found in (seen, strange))
    assert yes is not None and no is not None
    assert (yes.accepted, no.accepted) == (True, False)
    assert yes.rule == str(policy)
    assert yes.text == "Its doubt is within the limit. The answer may be used."
    assert no.text == "Its doubt is beyond the limit. A person should look at it."
    foreign = ruling(seen, policy, "energy", foreign=True)
    assert foreign is not None and not foreign.accepted
    assert "the promise is for known inputs, and this is foreign" in foreign.text
    assert ruling(seen, None, None) is None


def test_a_set_of_answers(backend: Backend, seen: Opinion, strange: Opinion) -> None:
    assert backend.scale is not None
    policy = decide.conformal(backend.scale.probabilities, backend.scale.labels, 0.99)
    wide, narrow = (ruling(found, policy, None) for found in (strange, seen))
    assert wide is not None and narrow is not None
    assert [one.index for one in wide.answers] == [
        one.index for one in strange.answers if policy.sets(strange.probabilities[None])[0, one.index]
    ]
    assert (len(wide.answers) == 1) == wide.accepted
    assert (narrow.text.startswith("It alone is in the set")) == narrow.accepted


def test_without_known_inputs_no_more_is_said_than_is_known(backend: Backend) -> None:
    found = opinion(backend.engine, backend.examples[0].row)
    assert all(one.place is None and one.words == "" and not one.flagged for one in (*found.doubts, *found.methods))


def test_a_single_network_has_doubt_of_one_kind(source: Source, backend: Backend) -> None:
    found = opinion(Engine(source, ["entropy"]), backend.examples[0].row, backend.scale)
    assert [one.name for one in found.doubts] == ["total"]
    assert found.samples == 1
    assert mapped(Engine(source, ["entropy"]), backend.examples[0].row, 1).uncertainty == pytest.approx(
        {"total": found.value("total")}, rel=1e-4
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (torch.rand(3, 8, 8), r"expected a picture with 1 channel \(grey\), as known inputs have, got one with 3 ch"),
        (torch.rand(4, 8, 8), "got one with 4 channels; give such a picture"),
        (
            torch.rand(1, 9, 9),
            r"expected an input of shape \[1, 8, 8\], as known inputs have, got \[1, 9, 9\]; bring it",
        ),
    ],
)
def test_the_wrong_form_is_named(backend: Backend, row: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        opinion(backend.engine, row, backend.scale)


def test_what_a_model_cannot_take_is_said_without_known_inputs_too(backend: Backend) -> None:
    with pytest.raises(NescioError, match=r"could not take inputs of shape \[N, 3, 9, 9\] \(tried with N"):
        opinion(Engine(backend.engine.source, ["entropy"]), torch.rand(3, 9, 9))


def test_a_model_without_maps_still_answers() -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.mean((1, 2, 3)), x.amax((1, 2, 3))], 1).detach()

    source = Source(Classifier(plain, output="logits"), Pictures(), "a function", None)
    engine = Engine(source, ["entropy"])
    row = torch.rand(3, 4, 4)
    assert opinion(engine, row).answers[0].name == "class 1"
    assert mapped(engine, row, 1).missing.startswith("No map: ")


def test_tokens_have_their_names() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(input_ids).mean(1))

    engine = Engine(Source(Classifier.of(Words().eval(), None), None, "words", None), ["entropy"])
    row = {"input_ids": torch.tensor([1, 2, 3])}
    found = opinion(engine, row)
    assert found.picture is None
    maps = mapped(engine, row, 1, ["a", "b", "c"])
    assert maps.names == ("a", "b", "c")
    assert maps.parts["total"].shape == (3,)
    assert mapped(engine, row, 1).names == ("feature 0", "feature 1", "feature 2")
