"""Models and inputs of every kind: a right answer or a sentence."""

import pytest
import torch
from torch import nn

import nescio
from nescio import Guard
from nescio.types import ModelError
from tests.guard.conftest import FEW, conv, mlp, pictures, vectors

pytestmark = pytest.mark.filterwarnings(FEW)


def verdict(model, reference, new, **settings):
    return Guard(model, **settings).fit(reference).check(new)


def test_a_plain_function_has_doubt_and_its_input():
    weight = torch.randn(6, 3, dtype=torch.float64)
    own = verdict(lambda x: x @ weight, vectors(120), torch.cat([vectors(5, seed=1), 50 + vectors(5, seed=1)]))
    assert list(own.witnesses) == ["doubt", "appearance"]
    assert bool(own.foreign(0.05)[5:].all())


def test_a_function_of_signals_has_doubt_alone():
    own = verdict(lambda x: x.mean(2), torch.rand(60, 3, 9), torch.rand(4, 3, 9))
    assert list(own.witnesses) == ["doubt"]
    with pytest.raises(ModelError, match="at least one witness can work"):
        verdict(lambda x: x.mean(2), torch.rand(60, 3, 9), torch.rand(4, 3, 9), witnesses=("strangeness",))


def test_a_model_without_linear_layers():
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    own = verdict(net.double(), pictures(120), 9 * torch.rand(5, 3, 12, 12, dtype=torch.float64))
    assert list(own.witnesses) == ["doubt", "strangeness", "appearance"]
    assert bool((own.beyond["appearance"] == 120).all())


def test_bare_parameters():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 3, dtype=torch.float64))

        def forward(self, x):
            return x @ self.weight

    assert list(verdict(Bare(), vectors(40), vectors(3)).witnesses) == ["doubt", "appearance"]


def test_signals():
    net = nn.Sequential(nn.Conv1d(2, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 3)).double()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 2, 20, generator=generator, dtype=torch.float64).cumsum(2)
    own = verdict(net, x[:110], torch.cat([x[110:], 30 * torch.randn(5, 2, 20, generator=generator).double()]))
    assert list(own.witnesses) == ["doubt", "strangeness", "appearance"]
    assert bool((own.beyond["appearance"][10:] == 110).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cast", [True, False])
def test_models_of_half_the_precision(dtype, cast):
    x, new = vectors(120), torch.cat([vectors(5, seed=1), 3 + vectors(5, seed=1)])
    exact = verdict(mlp(), x, new)
    own = verdict(mlp().to(dtype), x.to(dtype) if cast else x.float(), new.to(dtype) if cast else new.float())
    assert own.p_value.dtype == torch.float64
    assert float((own.p_value - exact.p_value).abs().mean()) < 0.1


def test_pictures_of_bytes():
    class Bytes(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = conv().eval()

        def forward(self, x):
            return self.body(x.double() / 255)

    x = (255 * pictures(120)).to(torch.uint8)
    guard = Guard(Bytes()).fit(x)
    assert guard.fitted.copies > 0
    new = (255 * torch.rand(5, 3, 12, 12)).to(torch.uint8)
    assert bool(guard.check(new).foreign(0.05).all())
    with pytest.raises(nescio.types.InputError, match=r"expected inputs of shape \[3, 12, 12\]"):
        guard.check(new[:, :, :9])


@pytest.mark.parametrize("everything", [True, False])
def test_channels_that_never_move(everything):
    model = mlp()
    with torch.no_grad():
        model[0].weight[slice(None) if everything else slice(0, 6)] = 0
    own = verdict(model, vectors(120), torch.cat([vectors(5, seed=1), 50 + vectors(5, seed=1)]))
    assert bool(own.score.isfinite().all())
    assert bool((own.beyond["appearance"][5:] == 120).all())
    assert not bool(own.foreign(0.05)[:5].all())


def test_two_classes_from_one_logit_and_a_model_that_always_answers_the_same():
    own = verdict(mlp(classes=1), vectors(40), vectors(4, seed=1), output="binary")
    assert set(own.predicted.tolist()) <= {0, 1}
    model = mlp()
    with torch.no_grad():
        model[4].bias[1] = 100.0
    own = verdict(model, (vectors(40), torch.ones(40, dtype=torch.long)), vectors(4, seed=1))
    assert own.predicted.tolist() == [1] * 4
    assert own.wrong.probability.tolist() == [0.0] * 4
    with pytest.raises(ModelError, match="output='binary'"):
        verdict(mlp(classes=1), vectors(40), vectors(4))


class Overflow(nn.Module):
    """Its activations are not finite for inputs beyond a bound, but its answer is."""

    def __init__(self):
        super().__init__()
        self.first, self.relu, self.last = nn.Linear(6, 8).double(), nn.ReLU(), nn.Linear(8, 3).double()

    def forward(self, x):
        broken = torch.where((x.abs().amax(1) > 10)[:, None], torch.nan, self.first(x))
        return self.last(self.relu(broken)).nan_to_num()


def test_features_that_are_not_finite_are_said():
    guard = Guard(Overflow()).fit(vectors(60))
    with pytest.raises(ModelError, match=r"expected finite (features|activations).*got NaN or infinite"):
        guard.check(100 + vectors(2))
    with pytest.raises(ModelError, match=r"expected finite (features|activations).*got NaN or infinite"):
        Guard(Overflow()).fit(torch.cat([vectors(60), 100 + vectors(1)]))


@pytest.fixture(scope="module")
def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=32, num_labels=3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.BertForSequenceClassification(config).double().eval()


def texts(count, seed=0, longest=9, width=9, low=3, high=30):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest + 1, (count, 1), generator=generator)
    mask = (torch.arange(width) < lengths).long()
    ids = torch.randint(low, high, (count, width), generator=generator)
    return {"input_ids": ids * mask, "attention_mask": mask}


def padded(x, more):
    return {name: nn.functional.pad(value, (0, more)) for name, value in x.items()}


def test_texts_padded_further_get_the_same_verdict(bert):
    x, new = texts(110), texts(8, seed=1)
    guard = Guard(bert).fit(x)
    one, two = guard.check(new), guard.check(padded(new, 5))
    assert torch.equal(one.p_value, two.p_value)
    torch.testing.assert_close(one.score, two.score)
    whole = Guard(bert).fit([padded({n: v[:50] for n, v in x.items()}, 3), {n: v[50:] for n, v in x.items()}])
    assert torch.equal(whole.check(new).p_value, one.p_value)
    assert bool(guard.check(texts(5, seed=2, low=40, high=50)).foreign(0.1).any())  # words that were never seen
    assert "words and phrases" in guard.fitted.witnesses[2].words("tokens")


def test_a_text_of_one_token_after_longer_ones(bert):
    guard = Guard(bert).fit(texts(60))
    one = {"input_ids": torch.tensor([[7]]), "attention_mask": torch.tensor([[1]])}
    own = guard.check(one)
    assert bool(own.p_value.isfinite().all())
    assert torch.equal(own.p_value, guard.check(padded(one, 4)).p_value)


def test_copies_of_a_text_count_once_however_they_are_padded(bert):
    x = texts(40)
    with pytest.warns(UserWarning, match="are copies of others and count once"):
        guard = Guard(bert).fit([x, padded(x, 2)])
    assert guard.fitted.count <= 40
