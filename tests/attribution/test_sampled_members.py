"""Samples of each distribution as networks with a gradient: their logits are those that the distribution predicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import Classifier, posteriors
from nescio.attribution import explain
from nescio.attribution.problem import Problem
from nescio.attribution.sampled_members import fans, members
from nescio.attribution.source import Source
from nescio.types import InputError


class Net(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(4 * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.norm(self.conv(x)).relu().flatten(1)))


class Attentive(nn.Module):
    """Dropout inside of attention only."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.attend = nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.rows(x.squeeze(1))
        return self.head((h + self.attend(h, h, h, need_weights=False)[0]).mean(1))


def normed() -> Net:
    """Its last layer has no weight of its own: it is made of two others."""
    model = network()
    nn.utils.parametrizations.weight_norm(model.head)
    return model


def network(classes: int = 3) -> Net:
    torch.manual_seed(0)
    return Net(classes).double().eval()


X = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELLED = (X, torch.tensor([0, 1, 2, 0, 1]))


def stds(model: nn.Module) -> dict[str, Tensor]:
    return {name: torch.full_like(p, 0.1) for name, p in model.named_parameters()}


def swag() -> posteriors.SWAG:
    model = network()
    deviations = {name: 0.1 * torch.randn(3, *p.shape, dtype=p.dtype) for name, p in model.named_parameters()}
    made = posteriors.SWAG(model, stds(model), deviations, samples=3)
    made.fit_statistics(LABELLED, batch_size=5)
    return made


DISTRIBUTIONS: dict[str, Callable[[], Any]] = {
    "ensemble": lambda: posteriors.DeepEnsemble([Net().double().eval() for _ in range(3)]),
    "mc_dropout": lambda: posteriors.MCDropout(network(), samples=3),
    "inserted_dropout": lambda: posteriors.InsertedDropout(network(), samples=3),
    "inserted_before_conv": lambda: posteriors.InsertedDropout(network(), samples=3, layer="norm"),
    "laplace_full": lambda: posteriors.Laplace(network(), "full", samples=3).fit(LABELLED),
    "laplace_kron": lambda: posteriors.Laplace(network(), "kron", samples=3).fit(LABELLED),
    "laplace_diag": lambda: posteriors.Laplace(network(), "diag", samples=3).fit(LABELLED),
    "laplace_parametrised": lambda: posteriors.Laplace(normed(), samples=3).fit(LABELLED),
    "dropout_in_attention": lambda: posteriors.MCDropout(Attentive().double().eval(), samples=3),
    "variational": lambda: posteriors.Variational(network(), stds(network()), samples=3),
    "swag": swag,
    "temperature": lambda: posteriors.Temperature(posteriors.MCDropout(network(), samples=3)).fit_logits(
        torch.randn(9, 3), torch.arange(9) % 3
    ),
    "platt": lambda: posteriors.Temperature(posteriors.MCDropout(network(), samples=3), "platt").fit_logits(
        torch.randn(9, 3), torch.arange(9) % 3
    ),
    "platt_of_temperature": lambda: posteriors.Temperature(DISTRIBUTIONS["temperature"](), "platt").fit_logits(
        torch.randn(9, 3), torch.arange(9) % 3
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_members_predict_what_the_distribution_predicts(name: str) -> None:
    posterior = DISTRIBUTIONS[name]()
    problem = Problem(members(posterior, X), Source.of(X, "auto"), "epistemic", X)
    torch.testing.assert_close(problem.logits, posterior.logits(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_maps_are_complete_and_the_gradient_is_that_of_finite_differences(name: str) -> None:
    posterior = DISTRIBUTIONS[name]()
    found = explain(posterior, X)
    assert bool((found.residual.abs() <= 1e-12 * found.uncertainty).all())
    problem = Problem(members(posterior, X), Source.of(X, "auto"), "total", X)
    (slope,) = problem.gradient()
    way = torch.randn(1, 1, 6, 6, dtype=torch.float64)
    step = 1e-6

    def total(x: Tensor) -> Tensor:
        p = posterior.predict(x).mean(0)
        return -(p * p.log()).sum(1)

    rise = (total(X + step * way) - total(X - step * way)) / (2 * step)
    torch.testing.assert_close((slope * way).flatten(1).sum(1), rise, rtol=1e-4, atol=1e-7)


def test_dropout_whose_masks_cannot_be_shared_goes_one_by_one() -> None:
    class Folded(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.norm(self.conv(x)).relu()
            return self.head(self.drop(h.flatten(0, 1)).view(len(x), -1))  # inputs and channels in one dimension

    model = Folded().double().eval()
    posterior = posteriors.MCDropout(model, samples=2)
    found = explain(posterior, X)
    assert bool((found.residual.abs() <= 1e-12 * found.uncertainty).all())
    torch.testing.assert_close(found.maps[3:4], explain(posterior, X[3:4]).maps, rtol=1e-9, atol=0)


def test_masks_that_do_not_fit_for_some_numbers_of_inputs_go_one_by_one() -> None:
    class Odd(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.norm(self.conv(x)).relu().flatten(1)
            return self.head(self.drop(h) if len(x) != 2 else self.drop(h.T).T)

    posterior = posteriors.MCDropout(Odd().double().eval(), samples=2)
    for found in (explain(posterior, X[:2]), explain(posterior, X, chunk=2)):
        torch.testing.assert_close(found.maps, explain(posterior, X[: len(found.maps)], chunk=1).maps, rtol=0, atol=0)


FANNED = ("inserted_dropout", "laplace_full", "laplace_kron", "laplace_diag", "laplace_parametrised")


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_samples_that_share_all_but_the_last_layer_share_their_passes(name: str, monkeypatch: Any) -> None:
    posterior = DISTRIBUTIONS[name]()
    every = members(posterior, X)
    assert [one.draws for one in fans(every)] == ([3] if name in FANNED else [1] * len(every))
    together = Problem(fans(every), Source.of(X, "auto"), "total", X)
    torch.testing.assert_close(together.logits, posterior.logits(X), rtol=1e-9, atol=1e-9)
    monkeypatch.setitem(fans.__globals__, "DRAWS", 2)  # one of two, and one alone
    found, apart = explain(posterior, X), explain(posterior, X, parts=True)
    torch.testing.assert_close(found.maps, apart.maps, rtol=1e-9, atol=1e-14)
    assert apart.parts is not None and len(apart.parts) == 3


def test_scaled_samples_share_their_passes_too() -> None:
    labelled = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3
    base = posteriors.InsertedDropout(network(), samples=3)
    posterior = posteriors.Temperature(base, "platt").fit_logits(*labelled)
    assert [one.draws for one in fans(members(posterior, X))] == [3]
    torch.testing.assert_close(
        explain(posterior, X).maps, explain(posterior, X, parts=True).maps, rtol=1e-9, atol=1e-14
    )


def test_a_network_that_counts_its_outputs_gets_a_pass_for_each_sample() -> None:
    class Counting(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).view(-1, 3)

    torch.manual_seed(0)
    counting = posteriors.InsertedDropout(Counting().double().eval(), samples=3)
    plain = posteriors.InsertedDropout(network(), samples=3)
    torch.testing.assert_close(explain(counting, X).maps, explain(plain, X).maps, rtol=1e-9, atol=1e-14)


def test_a_laplace_leaves_its_layer_as_it_was() -> None:
    posterior = DISTRIBUTIONS["laplace_parametrised"]()
    layer = posterior.classifiers[0].module.head
    before = dict(layer.__dict__)
    explain(posterior, X)
    assert layer.__dict__.keys() == before.keys() and "forward" not in layer.__dict__


def test_a_single_network_gets_a_distribution_which_is_said() -> None:
    found = explain(network(), X)
    assert "inserted dropout (rate 0.4) around the single network Net (10 members)" in found.about
    assert "UA-Backprop over fullgrad (tau1 = 0.05, tau2 = 0.3)" in found.about
    same = explain(posteriors.InsertedDropout(network(), samples=10), X)
    torch.testing.assert_close(found.maps, same.maps, rtol=0, atol=0)
    laplace = explain(network(), X, data=LABELLED)
    assert "a Laplace posterior of the last layer around the single network Net" in laplace.about
    assert (laplace.of, laplace.method) == ("epistemic", "ua_backprop")
    plain = explain(posteriors.Deterministic(network()), X, of="total")
    assert bool((plain.residual.abs() <= 1e-12 * plain.uncertainty).all())


def test_binary_and_probability_outputs() -> None:
    one = [network(1), network(1)]
    with torch.no_grad():
        one[1].head.weight += 0.1
    found = explain(posteriors.DeepEnsemble(one, output="binary"), X)
    assert bool((found.residual.abs() <= 1e-12 * found.uncertainty).all())
    soft = [nn.Sequential(m, nn.Softmax(1)) for m in (network(), Net().double().eval())]
    probable = explain(posteriors.DeepEnsemble(soft, output="probabilities"), X)
    plain = explain(posteriors.DeepEnsemble([m[0] for m in soft]), X)
    torch.testing.assert_close(probable.maps, plain.maps, rtol=1e-9, atol=1e-14)


def test_any_object_with_classifiers_and_predictions() -> None:
    class Own:
        classifiers = (network(), Net().double().eval())

        def predict(self, x: Any, *, progress: bool | None = None) -> Tensor:
            return posteriors.DeepEnsemble(self.classifiers).predict(x)

    torch.testing.assert_close(
        explain(Own(), X).maps, explain(posteriors.DeepEnsemble(Own.classifiers), X).maps, rtol=0, atol=0
    )


def test_pictures_in_whole_numbers_go_through_the_function_before_the_model() -> None:
    raw = torch.randint(0, 256, (3, 1, 6, 6), dtype=torch.uint8)
    models = [Classifier(Net().double().eval(), preprocess=lambda x: x.double() / 255) for _ in range(2)]
    bare = posteriors.DeepEnsemble([m.model for m in models])
    torch.testing.assert_close(
        explain(posteriors.DeepEnsemble(models), raw).maps, explain(bare, raw.double() / 255).maps, rtol=1e-12, atol=0
    )


def test_what_cannot_be_explained() -> None:
    with pytest.raises(InputError, match="whose samples have no gradient at the input"):
        explain(posteriors.Evidential(network()), X)
    with pytest.raises(InputError, match="link='sample'"):
        explain(posteriors.Laplace(network(), link="probit").fit(LABELLED), X)
    with pytest.raises(InputError, match="expected a fitted Laplace"):
        explain(posteriors.Laplace(network()), X)
    with pytest.raises(InputError, match="expected at least 2 members for the epistemic uncertainty"):
        explain(posteriors.Deterministic(network()), X)

    class Foreign:
        def predict(self, x: Any, *, progress: bool | None = None) -> Tensor:
            return torch.full((2, len(x), 3), 1 / 3, dtype=torch.float64)

    with pytest.raises(InputError, match="expected a distribution whose samples are networks"):
        explain(Foreign(), X)
    with pytest.raises(InputError, match="with a single network only"):
        explain(posteriors.Deterministic(network()), X, data=LABELLED)
    with pytest.raises(InputError, match="give DeepEnsemble"):
        explain([network(), network()], X)
