"""A page's backend over a tiny network of patterns, made once."""

import warnings

import pytest
import torch
from torch import Tensor, nn

from nescio.app import doubt_scale, examples
from nescio.app.backend import Backend
from nescio.guard import Guard
from nescio.models import Classifier
from nescio.models.sources import Pictures, Source
from nescio.posteriors import DeepEnsemble
from nescio.scoring import fit
from nescio.serve.engine import Engine

NAMES = ("<b>zero</b>", "one", "two", "three", "four", "five", "six", "seven", "eight", "${1+1}{{nine}}")


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten patterns, each with noise: training pictures and labels, then others."""
    random = torch.Generator().manual_seed(0)
    patterns = (torch.rand(10, 1, 8, 8, generator=random) > 0.6).float()
    y = torch.arange(600) % 10
    x = (0.9 * patterns[y] + 0.1 * torch.randn(600, 1, 8, 8, generator=random)).clamp(0, 1)
    y[300:304] = y[300:304].roll(1)  # the answers to these are wrong
    return x[:300], y[:300], x[300:], y[300:]


def trained(x: Tensor, y: Tensor, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    for _ in range(100):  # by hand: the first step of a torch.optim takes seconds
        gradients = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.5 * gradient
    return model.eval()


@pytest.fixture(scope="session")
def networks(digits: tuple[Tensor, ...]) -> list[nn.Module]:
    return [trained(*digits[:2], seed) for seed in range(4)]


@pytest.fixture(scope="session")
def source(networks: list[nn.Module]) -> Source:
    return Source(Classifier.of(networks[0], None), Pictures((8, 8), channels=1), "a tiny <network>", NAMES)


@pytest.fixture(scope="session")
def engine(source: Source, networks: list[nn.Module], digits: tuple[Tensor, ...]) -> Engine:
    posterior = DeepEnsemble(networks)
    knn = fit(source.model, "knn", digits[:2], progress=False)
    methods = ["regrad", "energy", "entropy", knn, "mutual_information"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a small reference
        guard = Guard(source.model).fit((digits[2][:200], digits[3][:200]), nuisances=None, progress=False)
    return Engine(source, methods, posterior=posterior, guard=guard)


@pytest.fixture(scope="session")
def backend(engine: Engine, digits: tuple[Tensor, ...]) -> Backend:
    x, y = digits[2:]
    scale = doubt_scale.measured(engine, list(x[:80]), known="the digits it knows", labels=y[:80], progress=False)
    shown = [
        examples.of_picture("a digit", x[250]),
        examples.of_picture("noise", torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(1))),
    ]
    return Backend(engine, scale=scale, examples=tuple(shown), notes=("A note & more.",))
