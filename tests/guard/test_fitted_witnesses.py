import torch

from nescio.guard.fitted_witnesses import FittedWitnesses, take
from nescio.guard.rank_scale import Scale
from nescio.guard.split import in_turns
from nescio.guard.witnesses import Appearance, Strangeness

WITNESSES = (Strangeness(neighbours=3), Appearance())


def kept(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    return {"strangeness": Strangeness().rows(h), "appearance": (h, h.square())}


def test_the_scale_is_of_inputs_that_the_witness_was_not_fitted_to():
    own = kept(30)
    fitted = FittedWitnesses.of(WITNESSES, own, torch.arange(30))
    expected = torch.empty(30, dtype=torch.float64)
    for fold in in_turns(torch.arange(30), torch.arange(30)):
        found = WITNESSES[0].fit(take(own, fold.fit)["strangeness"])
        expected[fold.rank] = WITNESSES[0].measure(found, take(own, fold.rank)["strangeness"])[:, 0]
    assert torch.equal(fitted.scales["strangeness"].values, Scale.of(expected[:, None]).values)
    assert len(fitted.scales["appearance"].values) == 2


def test_copies_of_one_input_judge_each_other_in_no_fit():
    own = kept(15)
    twice = {name: tuple(one.repeat_interleave(2, dim=0) for one in rows) for name, rows in own.items()}
    groups = torch.arange(15).repeat_interleave(2)
    apart = FittedWitnesses.of(WITNESSES, twice, groups).scales["strangeness"]
    together = FittedWitnesses.of(WITNESSES, twice, torch.arange(30)).scales["strangeness"]
    assert float(apart.values.min()) > float(together.values.min())


def test_the_score_is_the_sum_of_the_votes():
    fitted = FittedWitnesses.of(WITNESSES, kept(30), torch.arange(30))
    opinions = fitted.opinions_from_rows(WITNESSES, kept(5, seed=1))
    votes = opinions.votes
    assert list(votes) == ["strangeness", "appearance"]
    torch.testing.assert_close(opinions.score, votes["strangeness"] + votes["appearance"])
    assert bool((votes["appearance"] >= 0).all())
