"""What a report says is what the library says: verdicts, scores, doubt, calibration, separation, maps and words."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import nescio
from nescio import evaluate, posteriors
from nescio.data.sources import open_data
from nescio.data.sources.labels import Labels
from nescio.findings import first_screen, gather, gathering, measuring, plain, sentences, with_labels
from nescio.guard.wrong import Wrong
from nescio.limits.reported import reported
from nescio.models import Classifier
from nescio.models.sources import Source
from nescio.types import InputError
from tests.report.reported import opened, write


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reporting")
    write(folder)
    yield folder
    sys.modules.pop("reported_models", None)


@pytest.fixture(autouse=True)
def here(place, monkeypatch):
    monkeypatch.chdir(place)


@pytest.fixture(scope="module")
def digits(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        source, rows = opened("digits", "held.npz")
        other = open_data("other.npz")
        before = {name: value.clone() for name, value in source.model.module.state_dict().items()}
        state = torch.get_rng_state()
        result = gather(source, rows, foreign=other, examples=2, batch=16, audit=reported)
        assert torch.equal(state, torch.get_rng_state())
        assert all(torch.equal(before[name], value) for name, value in source.model.module.state_dict().items())
        return source, result


def arrays(file):
    held = np.load(file)
    return torch.from_numpy(held["x"]), torch.from_numpy(held["y"]) if "y" in held else None


def quick(source, rows, **settings):
    methods = [nescio.scores.get("entropy")]
    return gather(source, rows, **{"maps": False, "methods": methods, "examples": 1} | settings)


def test_scores_and_kinds_are_those_of_the_library(digits):
    source, result = digits
    x, y = arrays("held.npz")
    expected = nescio.score(source.model, x, ["gen", "entropy", "max_probability", "energy"])
    assert list(result["inputs"]["scores"]) == list(expected)
    assert result["leading"] == nescio.scores.default_method().name == "gen"
    for name, values in expected.items():
        assert result["inputs"]["scores"][name] == pytest.approx(values.tolist(), rel=1e-5)
    p = source.model.logits(x).softmax(1)
    entropy = -(p * p.log()).sum(1)
    assert list(result["kinds"]["values"]) == ["total"] and result["kinds"]["members"] == 1
    assert result["kinds"]["values"]["total"] == pytest.approx(entropy.tolist(), rel=1e-4)
    assert result["inputs"]["predicted"] == p.argmax(1).tolist() and result["inputs"]["label"] == y.tolist()
    right = (p.argmax(1) == y).double()
    rows = {row["index"]: row for row in result["by_class"]}
    assert sum(row["inputs"] for row in rows.values()) == 60
    own = right[p.argmax(1) == 3]
    assert (rows[3]["right"], rows[3]["labelled"]) == (int(own.sum()), len(own))


def test_labels_give_calibration_and_risk(digits):
    source, result = digits
    x, y = arrays("held.npz")
    p = source.model.logits(x).double().softmax(1).detach()
    found = result["calibration"]
    assert found["all"]["ece"] == pytest.approx(evaluate.ece(p, y), abs=1e-6)
    assert found["all"]["nll"] == pytest.approx(evaluate.nll(p, y), rel=1e-5)
    assert found["all"]["mean_accuracy"] == float((p.argmax(1) == y).double().mean())
    assert (found["fitted"], found["tested"]) == (30, 30)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    fit, test = order[:30].sort().values, order[30:].sort().values
    t = posteriors.Temperature(source.model).fit((x[fit], y[fit])).temperature
    assert found["temperature"] == pytest.approx(t, rel=1e-4)
    assert found["after"]["ece"] == pytest.approx(evaluate.ece((p[test].log() / t).softmax(1), y[test]), abs=1e-4)
    correct = (p.argmax(1) == y).numpy()
    lead = np.array(result["inputs"]["scores"]["gen"])
    assert result["selective"]["gen"]["aurc"] == evaluate.risk_coverage(lead, correct).aurc
    assert set(result["selective"]) == {"gen", "entropy", "max_probability", "energy"}
    assert "policy" not in result  # a rule from the rows that are judged says nothing about them


def test_too_sure_is_said_only_where_chance_does_not_explain_it(digits):
    figures = dict(n=40, right=36, mean_confidence=0.95, accuracy_interval=with_labels.interval(36, 40))
    assert figures["accuracy_interval"] == pytest.approx((0.7634, 0.9721), abs=2e-4)  # Clopper and Pearson's table
    assert sentences.calibrated(figures) == (
        "Of 40 labelled inputs 36 are answered rightly, with a mean confidence of 95 %; that is no contradiction: with "
        "so many examples the share of right answers is between 76 % and 98 % with 95 % confidence."
    )
    assert "the model is too sure" in sentences.calibrated(figures | {"mean_confidence": 0.98})
    assert "not sure enough" in sentences.calibrated(figures | {"mean_confidence": 0.7})
    p = torch.tensor([[0.8, 0.2]] * 40, dtype=torch.float64)
    assert 0.05 < with_labels._figures(p, torch.zeros(40, dtype=torch.long))["ece_by_chance"] < 0.2
    many = with_labels._figures(p.repeat(50, 1), torch.zeros(2000, dtype=torch.long))
    assert many["ece_by_chance"] < 0.03 < many["ece"]
    assert digits[1]["calibration"]["all"]["accuracy_interval"][0] < digits[1]["calibration"]["all"]["mean_accuracy"]


def test_a_second_set_is_told_apart_with_intervals(digits):
    _, result = digits
    found = result["foreign"]
    known, other = (np.array(one["scores"]["entropy"]) for one in (result["inputs"], found))
    expected = evaluate.ood(known, other)
    own = found["separation"]["entropy"]
    assert (own["auroc"], own["aupr"], own["fpr95"]) == (expected.auroc, expected.aupr, expected.fpr95)
    assert own["auroc_interval"] == list(expected.auroc_interval) and len(other) == found["used"] == 40
    assert len(result["examples"]["foreign"]) == 1


def test_examples_are_the_extremes_with_complete_maps(digits):
    _, result = digits
    lead = np.array(result["inputs"]["scores"]["gen"])
    most, least = result["examples"]["most"], result["examples"]["least"]
    assert [one["index"] for one in most] == np.argsort(-lead, kind="stable")[:2].tolist()
    assert [one["index"] for one in least] == [int(lead.argmin())]
    x, _ = arrays("held.npz")
    for one in most + least:
        assert set(one["maps"]) == {"total"} and "epistemic" not in one
        for kind, drawn in one["maps"].items():
            assert drawn.shape == (8, 8) and drawn.sum() == pytest.approx(one["why"]["of"][kind], rel=1e-6)
            assert one["why"]["of"][kind] == pytest.approx(one[kind], rel=1e-4)
        assert np.array_equal(one["picture"], x[one["index"], 0].double().numpy())
        assert (one["below"], one["among"]) == (int((lead < lead[one["index"]]).sum()), 60)


def test_the_audit_is_there_and_short(digits):
    _, result = digits
    ways = {row["direction"] for row in result["limits"]["rows"]}
    assert 5 < len(ways) < 25 and result["limits"]["sentences"].keys() == ways
    assert result["limits"]["summary"][0] in result["summary"]


def test_it_is_plain_but_for_pictures(digits):
    _, result = digits
    text = json.dumps(plain(result), allow_nan=False)
    back = json.loads(text)
    assert back["inputs"] == result["inputs"] and "picture" not in back["examples"]["most"][0]
    assert back["examples"]["most"][0]["why"]["form"] == "picture"


def said(result):
    """All words of a result for people."""
    front = result["answer"]
    return " ".join([front["headline"], *front["lines"], *front["do"], *result["summary"]])


def test_without_a_reference_inputs_are_ranked_and_never_called_known(place):
    source, rows = opened("digits", "held.npz", label=None)
    result = quick(source, rows, again="nescio report --reference FOLDER")
    assert result["calibration"] is None and result["selective"] is None and result["foreign"] is None
    front, lead = result["answer"], np.array(result["inputs"]["scores"]["entropy"])
    assert not front["judged"] and front["command"]["text"] == "nescio report --reference FOLDER"
    assert [one["index"] for one in front["strip"]] == np.argsort(-lead, kind="stable").tolist()
    assert [one["rank"] for one in front["strip"]] == list(range(1, 61))
    assert result["inputs"]["guard"] is None and front["headline"].startswith("From these 60 pictures alone nobody can")
    assert not re.search(r"accepted|known|safe|fine|trust", said(result))
    assert result["limits"] == {"left_out": "It was not asked for."}


@pytest.fixture(scope="module")
def judged(place):
    """Twelve digits and five pictures of noise, two of them the same, by a guard of other digits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        source, rows = opened("digits", "mixed.npz")
        with pytest.warns(UserWarning, match="the reference has 120 different inputs"):
            guard = nescio.Guard(source.model).fit(arrays("reference.npz")[0])
        return guard, quick(source, rows, guard=guard, foreign=open_data("other.npz"), again="nescio check")


def test_with_a_reference_the_answer_comes_first(judged):
    guard, result = judged
    verdict = guard.check(arrays("mixed.npz")[0])
    front, own = result["answer"], result["inputs"]["guard"]
    assert own["p_value"] == pytest.approx(verdict.p_value.tolist()) and own["state"] == verdict.states(0.05)
    foreign = [at for at in range(16) if own["state"][at] == "foreign"]  # the last is the copy
    assert set(foreign) >= {12, 13, 14, 15} and len(foreign) <= 6
    assert front["counts"]["foreign"] == len(foreign) and sum(front["counts"].values()) == 16
    many = f"Do not trust the answers for {len(foreign)} of 16 pictures: "
    assert front["headline"] == result["summary"][0] == many + "they are unlike the 120 pictures of the reference."
    assert [one["index"] for one in front["strip"][: len(foreign)]] == [
        one["index"] for one in front["cards"]["foreign"]
    ]
    assert {one["index"] for one in front["cards"]["foreign"]} == set(foreign)
    for one in front["cards"]["foreign"]:
        assert one["words"] == verdict.words(0.05)[one["index"]] and one["p_value"] == own["p_value"][one["index"]]
        assert one["rarity"].startswith(f"Of pictures like the reference at most 1 in {int(1 / one['p_value'])} is")
        assert one["copies"] == (2 if one["index"] == 12 else 1) and one["picture"].shape == (8, 8)
    assert result["data"]["copies"] == 1 and "1 of the 17 pictures is a copy of another; each is counted" in said(
        result
    )
    assert "1 in 20 at most is called foreign by mistake: if all of these 16 were like it, less than one" in said(
        result
    )
    assert "The reference is small" in said(result) and any("give the" in line for line in front["do"])
    assert (
        front["do"][-1].startswith("Fine does not mean right") and "where the reference has labels" in front["do"][-1]
    )
    assert front["command"]["text"] == "nescio check"


def test_labels_of_the_reference_tell_how_many_of_the_fine_answers_are_wrong(judged):
    guard, _ = judged
    verdict = guard.check(arrays("mixed.npz")[0])
    p = torch.full((len(verdict),), 0.15, dtype=torch.float64)
    fine = [at for at, state in enumerate(verdict.states(0.05)) if state == "fine"]
    verdict = replace(verdict, wrong=Wrong(p, p, p))
    told = first_screen._fine(verdict, fine)
    about = f"about {round(0.15 * len(fine))} of {len(fine)} such answers"
    assert len(told) == 1 and told[0].startswith(
        f"Fine does not mean right: going by the labels of the reference, {about}"
    )
    assert "less than one of 2 such answers is wrong." in first_screen._fine(verdict, fine[:2])[0]
    assert first_screen._fine(verdict, []) == []


def test_the_guard_judges_the_second_set_too(judged):
    guard, result = judged
    flagged = int(guard.check(arrays("other.npz")[0]).foreign(0.05).sum())
    assert result["foreign"]["flagged"] == flagged > 30
    assert next(iter(result["foreign"]["separation"])) == "guard"
    assert f"The guard calls {flagged} of its 40 inputs foreign." in said(result)
    assert sum(row["foreign"] for row in result["by_class"]) == result["inputs"]["guard"]["state"].count("foreign")


def test_a_level_that_the_reference_cannot_hold_is_said_before_the_work(judged, monkeypatch):
    source, rows = opened("digits", "mixed.npz")
    monkeypatch.setattr(gathering, "measure", lambda *a, **k: pytest.fail("nothing should be measured"))
    with pytest.raises(InputError, match=r"at least 500 ranks for a level of 0.01, got 120"):
        quick(source, rows, guard=judged[0], level=0.01)


def test_many_inputs_leave_room_for_every_state_and_the_others_are_listed():
    states = ["foreign"] * 100 + ["unsure"] * 5 + ["fine"] * 40
    places = {state: [at for at, own in enumerate(states) if own == state] for state in ("foreign", "unsure", "fine")}
    strip = first_screen._strip(places)
    shown = [states[at] for at in strip]
    assert (shown.count("foreign"), shown.count("unsure"), shown.count("fine")) == (31, 5, 24)
    assert first_screen._strip({"foreign": [], "unsure": [], "fine": list(range(200))}) == list(range(60))


def test_a_large_set_is_sampled_by_the_seed_and_batches_do_not_matter(place):
    source, rows = opened("digits", "held.npz")
    first, same, other = (quick(source, rows, most=25, seed=s, batch=b) for s, b in ((0, 7), (0, 32), (1, 32)))
    assert first["data"]["sampled"] and first["data"]["used"] == 25
    assert first["inputs"]["index"] == same["inputs"]["index"] == sorted(set(first["inputs"]["index"]))
    assert first["inputs"]["index"] != other["inputs"]["index"]
    assert first["inputs"]["scores"]["entropy"] == pytest.approx(same["inputs"]["scores"]["entropy"], rel=1e-5)
    whole = quick(source, rows)
    picked = [whole["inputs"]["scores"]["entropy"][at] for at in first["inputs"]["index"]]
    assert first["inputs"]["scores"]["entropy"] == pytest.approx(picked, rel=1e-5)


def test_given_labels_stand_before_those_of_the_data_and_unknown_ones_are_left_out(place):
    source, rows = opened("digits", "held.npz")
    labels = torch.full((60,), -1)
    labels[:30] = arrays("held.npz")[1][:30]
    result = quick(source, rows, labels=labels)
    assert result["calibration"]["all"]["n"] == result["data"]["labelled"] == 30
    assert result["inputs"]["label"][30:] == [None] * 30
    with pytest.raises(InputError, match=r"labels from 0 to 9, as the model has 10 classes, but got 12"):
        quick(source, rows, labels=torch.full((60,), 12))
    with pytest.raises(InputError, match=r"labels: expected one for each of the 60 rows, got 3"):
        quick(source, rows, labels=torch.zeros(3))
    few = torch.full((60,), -1)
    few[:9] = 0
    assert "too few to fit a temperature" in quick(source, rows, labels=few)["calibration"]["note"]
    right = torch.tensor(quick(source, rows)["inputs"]["predicted"])
    found = quick(source, rows, labels=right)["calibration"]
    assert found["temperature"] is None and "as when every prediction is right" in found["note"]


def test_folders_that_cannot_be_the_models_classes_are_no_labels(place, monkeypatch):
    """A model of ten outputs whose classes nobody named, and pictures in two folders called after cameras."""
    source, rows = opened("digits", "held.npz")
    monkeypatch.setattr(rows.store, "labels", lambda: Labels(["north", "south"] * 30))
    assert source.classes is None
    data = quick(source, rows)["data"]
    assert data["labelled"] == 0 and data["labels"].startswith(
        "none that fit: the data have 2 classes (north, south …)"
    )


def test_a_table_has_bars_with_the_names_of_its_columns_and_lists_what_it_could_not_read(place):
    source, rows = opened("table", "table.csv")
    result = gather(source, rows, examples=2, audit=reported)
    assert result["data"]["used"] == 39 and [bad["index"] for bad in result["data"]["problems"]] == [7]
    assert "'age' has '?'" in result["data"]["problems"][0]["reason"]
    one = result["examples"]["most"][0]
    assert [label.split(" = ")[0] for label in one["why"]["labels"]] == ["age", "pay", "name height"]
    for kind, values in one["why"]["parts"].items():
        assert sum(values) == pytest.approx(one[kind], rel=1e-4)
    assert one["class"] in ("<b>low", "middle", "high") and "maps" not in one
    strip = result["answer"]["strip"]
    assert (
        result["answer"]["kind"] == "rows" and len(strip) == 39 and strip[0]["text"] == ", ".join(one["why"]["labels"])
    )
    assert {"age +", "age -"} & {row["direction"] for row in result["limits"]["rows"]}


def test_a_posterior_gives_its_own_kinds_and_answers(place):
    source, rows = opened("table", "table.csv")
    torch.manual_seed(1)
    others = [nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(3)]
    ensemble = posteriors.DeepEnsemble(others)
    result = gather(Source(ensemble, None, "three", source.classes), rows, examples=1)
    x = torch.cat([part.inputs for part in rows.batches(64)]).float()
    p = ensemble.predict(x)
    assert result["kinds"]["members"] == 3 and result["kinds"]["about"] == "DeepEnsemble"
    assert result["leading"] == "gen" and "mutual_information" in result["scores"]
    assert result["inputs"]["probability"] == pytest.approx(p.mean(0).max(1).values.tolist(), rel=1e-6)
    assert result["model"]["networks"] == 3 and len(result["model"]["hash"]) == 3


def test_a_calibrated_network_has_no_members_that_disagree(place):
    source, rows = opened("table", "table.csv")
    plain = posteriors.Deterministic(source.model)
    calibrated = posteriors.Temperature(plain)
    x = torch.cat([part.inputs for part in rows.batches(64)]).float()
    calibrated.fit((x, plain.predict(x)[0].multinomial(1, generator=torch.Generator().manual_seed(0)).flatten()))
    result = gather(Source(calibrated, None, "calibrated", source.classes), rows, examples=1)
    assert result["leading"] == "gen" and "mutual_information" not in result["scores"]


def test_a_plain_function_has_one_kind_and_says_so(place):
    _, rows = opened("table", "table.csv")
    weight = torch.randn(3, 3)
    result = gather(Source(Classifier(lambda x: x.float() @ weight), None, "a function"), rows, examples=1)
    assert result["kinds"]["members"] == 1 and "of one kind" in result["kinds"]["about"]
    assert set(result["selective"]) == {"gen", "entropy", "max_probability", "energy"}
    assert "one forward pass" in result["methods"][0]["chosen"]


def test_maps_of_many_classes_are_drawn_and_say_their_error(place):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 40))
    model[0].eval()
    modes = [part.training for part in model.modules()]
    _, rows = opened("table", "table.csv", label=None)
    result = gather(Source(Classifier(model), None, "many"), rows, examples=1)
    one = result["examples"]["most"][0]
    note = one["why"]["note"]
    assert note.startswith("The maps are made of 16 logits that were drawn: about ")
    assert note.endswith(" % of the doubt lies elsewhere than with all of them.")
    assert sum(one["why"]["parts"]["total"]) == pytest.approx(one["why"]["of"]["total"], rel=1e-6)
    assert one["why"]["of"]["total"] == pytest.approx(one["total"], rel=1e-5)  # none of the doubt is left out
    assert [part.training for part in model.modules()] == modes


def test_what_cannot_be_used_is_told(place):
    source, rows = opened("digits", "held.npz")
    for name, value in (("most", 1), ("examples", -1), ("batch", 0), ("seed", True)):
        with pytest.raises(InputError, match=f"expected {name} to be a whole number"):
            gather(source, rows, **{name: value})
    with pytest.raises(InputError, match=r"expected training data for 'mahalanobis'"):
        quick(source, rows, methods=[nescio.scores.get("mahalanobis")])
    np.savez("broken.npz", x=np.full((3, 1, 8, 8), np.nan, np.float32))
    with pytest.raises(InputError, match=r"at least one row that can be used.*NaN"):
        gather(source, open_data("broken.npz", on_error="skip"))


def test_dropout_that_was_only_inserted_does_not_tell_the_kinds_apart(place):
    source, rows = opened("digits", "held.npz")
    around = posteriors.InsertedDropout(source.model, samples=3)
    for one in (
        around,
        posteriors.Temperature(around).fit_logits(torch.eye(10), torch.tensor([*range(6), 0, 0, 0, 0])),
    ):
        result = quick(Source(one, None, "dropout"), rows)
        assert list(result["kinds"]["values"]) == ["total"] and result["kinds"]["epistemic_share"] is None
        assert not re.search("epistemic|aleatoric|of the model", said(result))
    ensemble = quick(Source(posteriors.DeepEnsemble([source.model] * 2), None, "two"), rows)
    assert set(ensemble["kinds"]["values"]) == {"total", "aleatoric", "epistemic"}


def test_training_data_fit_methods_and_a_laplace_posterior(place):
    source, rows = opened("digits", "held.npz")
    training = [arrays("train.npz")]
    result = quick(source, rows, methods=[nescio.scores.get("mahalanobis")], training=training)
    expected = nescio.score(source.model, arrays("held.npz")[0], "mahalanobis", fit=training)
    assert result["inputs"]["scores"]["mahalanobis"] == pytest.approx(expected.tolist(), rel=1e-4)
    assert "Laplace posterior" in result["kinds"]["about"]


def test_each_row_goes_through_the_network_once_for_scores_answers_and_verdicts(place):
    source, rows = opened("digits", "held.npz")
    x, _ = arrays("held.npz")
    guard = nescio.Guard(source.model).fit(
        torch.cat([x * factor for factor in (1.0, 0.95, 0.9, 0.85, 0.8)]), nuisances=None
    )
    seen = []
    handle = source.model.module.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))
    try:
        some = list(range(20))
        about = measuring.subject(source.model, None, x[:1], guard)
        measured = measuring.measure(
            about, rows, some, [nescio.scores.get("gen")], batch=8, labels=None, what="scoring", progress=False
        )
        passed = sum(seen)
    finally:
        handle.remove()
    assert passed == len(some)
    verdict = guard.check(x[:20])
    assert (measured.verdict.p_value - verdict.p_value).abs().max() < 5 / 300  # round-off moves a rank
    assert measured.verdict.score.tolist() == pytest.approx(verdict.score.tolist(), rel=1e-5)
    p = posteriors.Deterministic(source.model).predict(x[:20])[0]
    assert (measured.p - p).abs().max() < 1e-6
