import pytest
import torch
from torch import nn

from nescio.models import coupled_modules, named_modules, parameter_places, replaced, unwrap
from nescio.types import InputError, ModelError


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids):
        return self.out(self.embed(ids).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind=nn.GRU, **options):
        super().__init__()
        self.rnn = kind(3, 4, batch_first=True, **options)
        self.head = nn.Linear(4 * (1 + self.rnn.bidirectional), 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0].mean(1))


def body() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))


def test_wrappers_are_taken_off_at_every_depth():
    model = body()
    assert unwrap(model) is model
    assert unwrap(nn.DataParallel(model)) is model
    assert unwrap(torch.compile(model)) is model
    assert unwrap(nn.DataParallel(torch.compile(nn.DataParallel(model)))) is model


def test_public_names_are_those_without_wrappers():
    plain = [name for name, _ in named_modules(body())]
    inner = body()
    inner[1] = torch.compile(nn.DataParallel(inner[1]))
    assert [name for name, _ in named_modules(torch.compile(inner))] == plain == ["", "0", "1"]
    assert list(parameter_places(inner)) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_a_module_that_is_named_like_a_wrapper_keeps_its_name():
    model = nn.Module()
    model.module = nn.Linear(1, 1)
    assert list(parameter_places(model)) == ["module.weight", "module.bias"]


def test_names_and_order_are_torchs_own_where_nothing_is_wrapped():
    for model in (Tied(), Recurrent(nn.LSTM, num_layers=2), nn.TransformerEncoderLayer(4, 2)):
        assert list(parameter_places(model)) == [name for name, _ in model.named_parameters()]
        assert [name for name, _ in named_modules(model)] == [name for name, _ in model.named_modules()]


def test_a_tied_parameter_has_two_places():
    model = Tied()
    assert parameter_places(model) == {"embed.weight": [(model.embed, "weight"), (model.out, "weight")]}


def test_a_module_used_under_two_names_is_there_once():
    layer = nn.Linear(2, 2)
    assert [name for name, _ in named_modules(nn.Sequential(layer, nn.ReLU(), layer))] == ["", "0", "1"]


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm])
def test_batch_norm_without_statistics_couples_inputs(kind):
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(kind(2, track_running_stats=False), kind(2)))
    assert coupled_modules(model) == ["1.0"]


def test_only_such_batch_norm_couples_inputs():
    late = nn.BatchNorm2d(2)
    late.track_running_stats = False  # the statistics are still there, and eval mode uses them
    fine = nn.Sequential(nn.BatchNorm2d(2), late, nn.InstanceNorm2d(2), nn.GroupNorm(1, 2), nn.LayerNorm(2))
    assert coupled_modules(fine) == []
    x = torch.randn(4, 2, 2, 2)
    assert torch.allclose(fine.eval()(x)[:1], fine(x[:1]), atol=1e-6)
    late.running_mean = late.running_var = None
    assert coupled_modules(fine) == ["1"]
    assert not torch.allclose(late(x)[:1], late(x[:1]), atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.GRU, {}),
        (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        (nn.RNN, {"bias": False}),
    ],
)
def test_recurrent_layers_use_what_replaces_their_weights(kind, options):
    model, other = Recurrent(kind, **options), Recurrent(kind, **options)
    x = torch.randn(2, 5, 3)
    before, weights = model(x), list(model.rnn._flat_weights)
    values = {name: p.detach().clone().requires_grad_() for name, p in other.named_parameters()}
    with replaced(model, values):
        out = model(x)
    assert torch.equal(out, other(x)) and not torch.equal(out, before)
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(out.square().sum(), list(values.values())))
    assert all(a is b for a, b in zip(model.rnn._flat_weights, weights, strict=True))
    assert all(a is b for a, b in zip(model.rnn._flat_weights, model.rnn.parameters(), strict=True))
    assert torch.equal(model(x), before)


def test_replaced_recurrent_weights_work_under_torch_func():
    model = Recurrent().double()
    x = torch.randn(3, 5, 3, dtype=torch.float64)
    values = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params):
        with replaced(model, params):
            return model(x).square().sum()

    found = torch.func.grad(loss)(values)
    for name, expected in zip(
        values, torch.autograd.grad(model(x).square().sum(), list(model.parameters())), strict=True
    ):
        assert torch.allclose(found[name], expected, rtol=1e-12)
    assert all(a is b for a, b in zip(model.rnn._flat_weights, model.rnn.parameters(), strict=True))


def test_every_place_of_a_tied_parameter_follows():
    model, weight = Tied(), torch.randn(5, 3)
    ids = torch.tensor([[0, 1], [2, 3]])
    with replaced(model, {"embed.weight": weight}):
        out = model(ids)
    assert torch.allclose(out, weight[ids].mean(1) @ weight.T)
    assert model.out.weight is model.embed.weight


def test_originals_are_back_after_an_error():
    model = body()
    original = model[0].weight
    with pytest.raises(KeyboardInterrupt), replaced(model, {"0.weight": torch.zeros(3, 2)}):
        assert model[0].weight.sum() == 0
        raise KeyboardInterrupt
    assert model[0].weight is original


def test_names_that_are_no_parameters_are_refused():
    words = r"names of parameters of the model \('0.weight', '0.bias', '1.weight', '1.bias'\), got \['weight'\]"
    with pytest.raises(InputError, match=words), replaced(body(), {"weight": torch.zeros(1)}):
        pass


@pytest.mark.filterwarnings("ignore")  # of TorchScript, that it will be gone
def test_torchscript_parameters_cannot_be_replaced():
    script = torch.jit.script(body())
    words = "got one compiled by TorchScript, whose parameters cannot be replaced; give the module that it was made"
    with pytest.raises(ModelError, match=words), replaced(script, {"0.weight": torch.zeros(3, 2)}):
        pass
