"""A model's own dropout: every kind of it is found, masks are shared, and nothing else of training mode is on."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.posteriors.dropout import MCDropout
from nescio.posteriors.masks import Masks
from nescio.types import InputError, ModelError, Posterior


def vectors(count: int = 6, width: int = 4) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def pictures(count: int = 6) -> Tensor:
    return vectors(count, 3 * 5 * 5).view(count, 3, 5, 5)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(torch.relu(self.body(x)), 0.5, training=self.training))


class Encoder(nn.Module):
    """Attention with dropout inside and out; `first` says where the batch is, `only` leaves the outer dropout away."""

    def __init__(self, first: bool, only: bool = False, weights: bool = False) -> None:
        super().__init__()
        self.first, self.weights = first, weights
        self.embed = nn.Linear(2, 8)
        if only:
            self.layer: nn.Module = nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=first)
        else:
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=first)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.view(len(x), 2, 2))
        h = h if self.first else h.transpose(0, 1)
        if isinstance(self.layer, nn.MultiheadAttention):
            h = self.layer(h, h, h, need_weights=self.weights)[0]
        else:
            h = self.layer(h)
        return self.head(h.mean(1 if self.first else 0))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], first: bool = True, **settings: Any) -> None:
        super().__init__()
        self.first = first
        self.layers = kind(2, 6, num_layers=3, dropout=0.4, batch_first=first, **settings)
        self.head = nn.LazyLinear(3)
        self.double()(vectors(1))

    def forward(self, x: Tensor) -> Tensor:
        h = x.view(len(x), 2, 2)
        out, end = self.layers(h if self.first else h.transpose(0, 1))
        end = end[0] if isinstance(end, tuple) else end
        return self.head(torch.cat([out[:, -1] if self.first else out[-1], end[0], end[-1]], dim=1))


class Folded(nn.Module):
    """Positions first, inputs second, in one dimension: no mask can be tiled over that."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = x.view(len(x), 2, 2).transpose(0, 1).reshape(-1, 2)
        return self.head(self.drop(torch.relu(self.body(h))).view(2, len(x), -1).mean(0))


def mlp(drop: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.SELU(), drop, nn.Linear(8, 3))


def conv(drop: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.SELU(), drop, nn.Flatten(), nn.Linear(54, 3))


KINDS: dict[str, tuple[Any, Any]] = {
    "Dropout": (lambda: mlp(nn.Dropout(0.4)), vectors),
    "in place": (lambda: mlp(nn.Dropout(0.4, inplace=True)), vectors),
    "AlphaDropout": (lambda: mlp(nn.AlphaDropout(0.4)), vectors),
    "Dropout2d": (lambda: conv(nn.Dropout2d(0.4)), pictures),
    "FeatureAlphaDropout": (lambda: conv(nn.FeatureAlphaDropout(0.4)), pictures),
    "functional": (Functional, vectors),
    "encoder": (lambda: Encoder(True), vectors),
    "encoder, batch second": (lambda: Encoder(False), vectors),
    "attention": (lambda: Encoder(True, only=True), vectors),
    "attention weights": (lambda: Encoder(False, only=True, weights=True), vectors),
    "LSTM": (lambda: Recurrent(nn.LSTM), vectors),
    "LSTM both ways": (lambda: Recurrent(nn.LSTM, False, bidirectional=True, proj_size=4), vectors),
    "GRU": (lambda: Recurrent(nn.GRU, False, bidirectional=True), vectors),
    "RNN": (lambda: Recurrent(nn.RNN, bias=False), vectors),
    "folded": (Folded, vectors),
}


def made(kind: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    build, data = KINDS[kind]
    return build().double(), data()


@pytest.mark.parametrize("kind", KINDS)
def test_samples_differ_and_do_not_depend_on_the_batch(kind: str) -> None:
    model, x = made(kind)
    posterior = MCDropout(model, samples=4)
    p = posterior.predict(x)
    assert p.shape == (4, 6, 3) and p.dtype == torch.float64
    assert (p[0] - p[1]).abs().amax(-1).min() > 1e-4
    torch.testing.assert_close(p.sum(-1), torch.ones(4, 6, dtype=torch.float64), rtol=0, atol=1e-12)
    order = torch.tensor([5, 3, 0, 1, 4, 2])
    for batches in ([x[:1], x[1:]], list(x.split(1)), [x[:4], x[4:]]):
        torch.testing.assert_close(posterior.predict(batches), p, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(posterior.predict(x[order]), p[:, order], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_that_of_torchs_own_dropout(kind: str) -> None:
    """Training mode for the dropout alone, its own masks: the same distribution of logits."""
    model, x = made(kind)
    ours = MCDropout(model, samples=100).logits(x[:2])
    model.eval()
    for part in model.modules():
        if "Dropout" in type(part).__name__ or isinstance(part, nn.RNNBase | nn.MultiheadAttention):
            part.train()
        if isinstance(part, Functional | nn.TransformerEncoderLayer):
            part.training = True
    with torch.no_grad():
        theirs = model(x[:2].repeat(4000, *[1] * (x.ndim - 1))).view(4000, 2, -1)  # each row has masks of its own
    error = (ours.var(0) / 100 + theirs.var(0) / 4000).sqrt()
    assert ((ours.mean(0) - theirs.mean(0)).abs() < 4.5 * error).all()
    assert ((ours.std(0) / theirs.std(0)).log().abs() < 0.3).all()


@pytest.mark.parametrize("kind", KINDS)
def test_all_inputs_go_through_together_but_where_they_are_folded(kind: str) -> None:
    model, x = made(kind)
    calls: list[int] = []
    model.register_forward_pre_hook(lambda _, given: calls.append(len(given[0])))
    MCDropout(model, samples=2).predict(x)
    assert calls[-2:] == ([1, 1] if kind == "folded" else [6, 6])


def test_by_hand() -> None:
    model = mlp(nn.Dropout(0.3)).double().eval()
    x = vectors()
    found = MCDropout(model, samples=2, seed=7).logits(x)
    with torch.no_grad():
        h = model[:3](x)
        for draw in range(2):
            masks = Masks(7, draw)
            keep = masks._keep(torch.Size([1, 8]), 0.3).double()
            torch.testing.assert_close(found[draw], model[4](h * keep / 0.7), rtol=1e-12, atol=1e-12)


def test_seeds_and_the_number_of_samples() -> None:
    model, x = made("Dropout")
    p = MCDropout(model, samples=5, seed=3).predict(x)
    assert torch.equal(MCDropout(model, samples=5, seed=3).predict(x), p)
    assert torch.equal(MCDropout(model, samples=2, seed=3).predict(x), p[:2])
    assert not torch.allclose(MCDropout(model, samples=5, seed=4).predict(x), p)


@pytest.mark.parametrize("kind", ["Dropout", "in place", "encoder", "LSTM", "folded"])
def test_the_model_is_as_it_was(kind: str) -> None:
    model, x = made(kind)
    model.train()
    before, random, given = copy.deepcopy(model.state_dict()), torch.get_rng_state(), x.clone()
    MCDropout(model, samples=2).predict(x)
    assert torch.equal(torch.get_rng_state(), random) and torch.equal(x, given)
    assert all(part.training and not part._forward_hooks for part in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_model_is_as_it_was_after_an_exception() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.calls = nn.Dropout(0.5), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls == 5:
                raise KeyError("no")
            return self.drop(x)

    model, x = Broken(), vectors()
    random = torch.get_rng_state()
    with pytest.raises(KeyError):
        MCDropout(model, samples=9).predict(x)
    assert model.training and torch.equal(torch.get_rng_state(), random)
    assert not torch.overrides._get_current_function_mode_stack()


def test_batch_norm_stays_in_eval_mode() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(1e-9))
    p = MCDropout(model.double(), samples=1).logits(vectors())
    torch.testing.assert_close(p[0], model.eval()(vectors()).detach(), rtol=1e-8, atol=1e-8)


def test_everything_dropped() -> None:
    model = nn.Sequential(nn.Dropout(1.0), nn.Linear(4, 3)).double()
    z = MCDropout(model, samples=2).logits(vectors())
    assert torch.equal(z, model[1].bias.detach().expand(2, 6, 3))


def test_a_compiled_model_and_one_that_ends_in_a_softmax() -> None:
    model, x = made("Dropout")
    p = MCDropout(model, samples=3).predict(x)
    compiled = torch.compile(model, backend="eager").eval()
    with torch.no_grad():
        compiled(x), compiled(x[:1])
    torch.testing.assert_close(MCDropout(compiled, samples=3).predict(x), p, rtol=1e-10, atol=1e-12)
    closed = nn.Sequential(model, nn.Softmax(1))
    found = MCDropout(closed, samples=3, output="probabilities").predict(x)
    torch.testing.assert_close(found, p, rtol=1e-10, atol=1e-12)


def test_a_model_whose_calls_depend_on_the_input() -> None:
    class Routed(nn.Module):
        """Inputs with a negative first entry take the left branch, in a batch of their own."""

        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.drop = nn.Linear(4, 3), nn.Linear(4, 3), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            out = x.new_zeros(len(x), 3)
            for branch, rows in ((self.left, x[:, 0] < 0), (self.right, x[:, 0] >= 0)):
                if rows.any():
                    out[rows] = branch(self.drop(x[rows]))
            return out

    model, x = Routed().double(), vectors()
    assert 0 < (x[:, 0] < 0).sum() < 6
    posterior = MCDropout(model, samples=3)
    p = posterior.predict(x)
    torch.testing.assert_close(p, posterior.predict(list(x.split(1))), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("drop", [nn.Identity(), nn.Dropout(0.0)])
def test_a_model_without_dropout(drop: nn.Module) -> None:
    with pytest.raises(ModelError) as caught:
        MCDropout(mlp(drop).double()).predict(vectors())
    assert str(caught.value) == (
        "expected a model that calls dropout with a rate above 0, got Sequential, which calls none; "
        "use InsertedDropout(model), which puts one before its last linear layer"
    )


def test_packed_sequences_are_refused() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(2, 5, 2, dropout=0.3, batch_first=True), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x.view(-1, 2, 2), torch.full((len(x),), 2), batch_first=True)
            return self.head(self.rnn(packed)[1][-1])

    with pytest.raises(ModelError, match=r"padded sequences .* \(dropout=0.3\), got packed ones"):
        MCDropout(Packed().double()).predict(vectors())


def test_settings_are_checked() -> None:
    model, x = made("Dropout")
    assert isinstance(MCDropout(Classifier(model)), Posterior)
    with pytest.raises(InputError, match="samples to be a whole number of at least 1, got 0"):
        MCDropout(model, samples=0)
    with pytest.raises(InputError, match=r"seed to be a whole number of at least 0, got 1\.5"):
        MCDropout(model, seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one input"):
        MCDropout(model).predict(x[:0])
