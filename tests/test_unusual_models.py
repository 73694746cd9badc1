"""Models that do what few models do: their scores are right all the same, and they are left as they were."""

import warnings

import pytest
import torch
from torch import Tensor, nn

import nescio


def mlp(depth: int = 1, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [part for _ in range(depth) for part in (nn.Linear(5, 5), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(5, 3)).double().eval()


class Named(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, values: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.network(values if attention_mask is None else values * attention_mask)


def test_named_floating_inputs_are_smoothed_as_one_tensor_is_and_masks_are_not() -> None:
    network, x = mlp(), torch.randn(4, 5).double()
    wanted = nescio.score(network, x, sigma=0.3)
    assert torch.allclose(nescio.score(Named(network), {"values": x}, sigma=0.3), wanted)
    both = {"values": x, "attention_mask": torch.ones(4, 5).double()}
    assert torch.allclose(nescio.score(Named(network), both, sigma=0.3), wanted)
    assert torch.allclose(
        nescio.score(Named(network), both, "perturb_x", samples=5), nescio.score(network, x, "perturb_x", samples=5)
    )


@pytest.mark.parametrize("methods", [["gradnorm"], ["gradnorm", "negrad"], ["regrad", "gradnorm"]])
def test_rows_that_are_not_estimated_have_all_their_layers(methods: list[str]) -> None:
    model, x = mlp(16), torch.randn(6, 5).double()
    settings = {"layer_decay": 0.3, "sigma": 0.05, "samples": "auto"}
    found = nescio.score(model, x, methods, **settings)
    exact = nescio.score(model, x, methods, tolerance=0.0, **settings)
    assert torch.allclose(found["gradnorm"], exact["gradnorm"], rtol=1e-9)


class Experts(nn.Module):
    """Runs the experts that are needed, and no other."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        chosen, h = (x[:, 0] * 3).long().clamp(0, 2), torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero().flatten()
            if len(rows):
                h = h.index_add(0, rows, expert(x[rows]).tanh())
        return self.head(h)


def test_experts_that_the_first_inputs_do_not_need() -> None:
    torch.manual_seed(0)
    model, x = Experts().double().eval(), torch.rand(9, 4).double().sort(0).values
    each = torch.cat([nescio.score(model, one, "exgrad") for one in x.split(1)])
    assert torch.allclose(nescio.score(model, x, "exgrad"), each)
    assert torch.allclose(nescio.score(model, x.flip(0), "exgrad").flip(0), each)


def test_a_scripted_module_is_smoothed_too() -> None:
    model, x = mlp(), torch.randn(4, 5).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scripting is deprecated
        scripted = torch.jit.script(model)
    assert torch.allclose(nescio.score(scripted, x), nescio.score(model, x))


class Constrained(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = torch.renorm(self.weight.data, 2, 0, 0.5)
        return super().forward(x)


@pytest.mark.parametrize("method", ["entropy", "regrad", "perturb_theta"])
def test_a_weight_that_a_forward_sets_is_put_back(method: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Constrained(5, 4), nn.ReLU(), nn.Linear(4, 3)).double().eval()
    before, place = model[0].weight.detach().clone(), model[0].weight.data_ptr()
    nescio.score(model, torch.randn(4, 5).double(), method)
    assert torch.equal(model[0].weight, before) and model[0].weight.data_ptr() == place
