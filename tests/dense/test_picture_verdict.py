"""One verdict for a picture from the whole and from its parts: its promise, its words, and the folder it is kept in."""

from dataclasses import replace

import pytest
import torch

from nescio.dense import RegionGuard
from nescio.dense.picture_verdict import part_words
from nescio.guard import joined
from nescio.models import Classifier
from nescio.types import InputError, ModelError
from tests.dense.networks import UNet
from tests.dense.test_region_guard import pictures

pytestmark = pytest.mark.filterwarnings("ignore:the reference has .* different inputs")


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return UNet(width=8).eval()


@pytest.fixture(scope="module")
def guard(network):
    return RegionGuard(network).fit(pictures(120, 0))


@pytest.fixture(scope="module")
def strange():
    x = pictures(6, 1)
    x[:3, :, 10:, :6] = (torch.arange(6)[:, None] + torch.arange(6)) % 2 * 4.0 - 1.0
    return x


def test_two_p_values_make_one(guard, strange):
    verdict = guard.check(strange)
    one = verdict.overall(0.1)
    both = torch.stack([verdict.whole.p_value, verdict.largest])
    torch.testing.assert_close(one.p_value, (2 * both.amin(0)).clamp(max=1.0))
    torch.testing.assert_close(one.share, (verdict.p_value <= 0.1).flatten(1).double().mean(1))
    assert list(one.witnesses)[-1] == "part" and one.ranks == verdict.pictures < one.ranks_of("strangeness")
    n = verdict.pictures
    torch.testing.assert_close((1.0 + n - one.beyond["part"].double()) / (n + 1.0), verdict.largest)


def test_words_name_the_part_or_say_what_the_whole_guard_says(guard, strange):
    verdict = guard.check(strange)
    one = verdict.overall(0.1)
    for i, words in enumerate(one.words(0.1)):
        if verdict.largest[i] <= 0.05:
            assert words.startswith("The model does not know what is in the")
        else:
            assert words == verdict.whole.words(0.05)[i]
    assert all("lower left part" in words for words in one.words(0.1)[:3])


@pytest.mark.parametrize("count", [20, 30])
def test_words_with_a_small_reference_say_what_cannot_be_said(network, strange, count):
    verdict = RegionGuard(network).fit(pictures(count, 7)).check(strange)
    n = verdict.pictures
    assert n < 19
    with pytest.raises(InputError, match="pictures can hold"):
        verdict.unknown(0.05)
    for said, needed, level in ((verdict.words(), 19, 0.05), (verdict.overall().words(), 39, 0.025)):
        assert verdict.largest[0] * (n + 1) == 1
        for i, words in enumerate(said):
            if verdict.whole.p_value[i] <= level:
                assert words == verdict.whole.words(level)[i]
                continue
            assert f"at a level of 5 %: {needed} are needed, which a reference of about {2 * needed} gives" in words
            if verdict.largest[i] * (n + 1) < 1.5:
                assert words.startswith("What is in the lower left part")
                assert f"less like the reference than anything in the {n} pictures" in words
            else:
                assert words.startswith(f"{verdict.whole.words(level)[i]} Its parts were compared with {n} pictures")
    assert any("needed" in words for words in verdict.words() + verdict.overall().words())
    assert verdict.words(0.2)[0].startswith("The model does not know what is in the lower")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((0.5, 0.5, 0.1), "middle (10 % "),
        ((0.1, 0.9, 0.02), "upper right part (2 % "),
        ((0.5, 0.1, 1), "left part (100"),
    ],
)
def test_places_in_words(place, words):
    assert f"in the {words}" in part_words(torch.tensor(place))


def test_a_patch_is_placed_where_it_is_though_other_regions_are_flagged_too(guard):
    score = torch.zeros(1, 20, 20, dtype=torch.float64)
    p = torch.ones_like(score)
    p[0, 16:, :4] = 0.01  # the patch
    p[0, ::7, 10:] = 0.01  # and what chance flags
    verdict = guard.check(pictures(1, 3))
    assert "lower left" in part_words(replace(verdict, score=score, p_value=p)._places(0.05)[0])


def test_joined_and_cut_like_any_verdict(guard, strange):
    whole = guard.check(strange).overall()
    parts = [guard.check(strange[:2]).overall(), guard.check(strange[2:]).overall()]
    together = joined(parts)
    assert type(together) is type(whole) and together.words() == whole.words()
    assert whole[:2].words() == parts[0].words() and len(whole[1:4].whole) == 3


def test_the_promise_holds_for_whole_and_part_together(network):
    flagged = []
    for seed in range(10):
        guard = RegionGuard(network, memory=256).fit(pictures(60, 900 + seed, 8), seed=seed)
        flagged += (guard.check(pictures(60, 700 + seed, 8)).overall().p_value <= 0.1).double().tolist()
    flagged = torch.tensor(flagged)
    assert 0.01 < flagged.mean() <= 0.1 + 3 * flagged.std() / len(flagged) ** 0.5


def test_kept_in_a_folder(guard, network, strange, tmp_path):
    guard.save(tmp_path)
    other = RegionGuard.load(tmp_path, network)
    assert torch.equal(other.check(strange).p_value, guard.check(strange).p_value)
    assert torch.equal(other.check(strange).overall().p_value, guard.check(strange).overall().p_value)
    assert other.fitted == guard.fitted and other.fitted.form == (3, 16, 16)
    other.check_model(guard.classifier)
    torch.manual_seed(5)
    stranger = UNet(width=8).eval()
    with pytest.raises(ModelError, match="with other weights"):
        RegionGuard.load(tmp_path, stranger)
    with pytest.raises(ModelError, match="another one"):
        guard.check_model(Classifier(stranger))
    (tmp_path / "regions.json").write_text("{}")
    with pytest.raises(InputError, match=r"regions\.json"):
        RegionGuard.load(tmp_path, network)


def test_before_it_is_fitted_it_says_so(network):
    with pytest.raises(InputError, match="expected a guard that is fitted"):
        _ = RegionGuard(network).fitted


def test_the_answer_is_the_commonest_class_and_its_mean_probability(guard, network, strange):
    with torch.no_grad():
        p = network(strange).double().softmax(1)
    verdict = guard.check(strange)
    for i in range(6):
        assert int(verdict.predicted[i]) == int(p[i].argmax(0).flatten().bincount().argmax())
    torch.testing.assert_close(verdict.confidence, p.amax(1).flatten(1).mean(1), rtol=1e-5, atol=0)
