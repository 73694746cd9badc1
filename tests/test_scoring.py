"""`nescio.score`: what it takes, what it gives, and what it says."""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import nescio
from nescio import quantities, scores, scoring
from nescio.quantities import Logits
from nescio.types import InputError, ModelError


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(), nn.Linear(6, 3)).double()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_regrad_layer_selective_and_without_noise_is_what_one_gets(model: nn.Module, x: Tensor) -> None:
    explicit = nescio.score(model, x, "regrad", layer_decay=0.3, sigma=0.0, samples="auto", tolerance="auto")
    assert torch.equal(nescio.score(model, x), explicit)
    smooth = nescio.score(model, x, "regrad", sigma=0.01)
    many = nescio.score(model, x, "regrad", sigma=0.01, samples=2000, tolerance=0.0)
    torch.testing.assert_close(smooth, many, rtol=2e-3, atol=0)
    assert not torch.equal(smooth, explicit)
    assert inspect.signature(nescio.score).parameters["method"].default == "regrad"


def test_every_kind_of_data_gives_the_same(model: nn.Module, x: Tensor) -> None:
    truth = nescio.score(model, x, "exgrad")
    labels = torch.arange(9)

    def generator() -> Iterator[Tensor]:
        yield from x.split(2)

    for data in [
        x.numpy(),
        [x[:3], x[3:]],
        [(x[:3], labels[:3]), [x[3:], labels[3:]]],
        generator(),
        DataLoader(TensorDataset(x, labels), batch_size=4),
        [x[:0], x[:3], x[:0], x[3:]],
        x.float().double().numpy().astype(np.float64),
    ]:
        torch.testing.assert_close(nescio.score(model, data, "exgrad"), truth, rtol=1e-6, atol=0.0)


def test_a_mapping_is_given_as_keyword_arguments(x: Tensor) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, *, a: Tensor, b: Tensor) -> Tensor:
            return self.layer(a + b)

    model = Two().double()
    data = {"a": x, "b": 2 * x}
    parts = [{name: value[:4] for name, value in data.items()}, {name: value[4:] for name, value in data.items()}]
    for method in ("exgrad", "entropy", "perturb_theta", "perturb_x", "mc_aa", "inserted_dropout"):
        torch.testing.assert_close(nescio.score(model, parts, method), nescio.score(model, data, method))
    torch.testing.assert_close(nescio.score(model, data, "entropy"), nescio.score(model.layer, 3 * x, "entropy"))


def test_objects_names_and_classes_can_be_mixed(model: nn.Module, x: Tensor) -> None:
    d = nescio.score(model, x, ["entropy", scores.ExGrad(norm=1), scores.GEN])
    assert list(d) == ["entropy", "exgrad", "gen"]
    assert torch.equal(d["exgrad"], nescio.score(model, x, "exgrad", norm=1))
    assert torch.equal(nescio.score(model, x, ["gen"])["gen"], d["gen"])
    assert list(nescio.score(model, x, ("gen", "entropy"))) == ["gen", "entropy"]


def test_one_pass_over_the_data_with_shared_work_once(
    model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, given = [], []
    compute = quantities.compute

    def counted(classifier: Any, block: Tensor, requests: Any, *rest: Any, **more: Any) -> Any:
        asked.append(len(set(requests)))
        return compute(classifier, block, requests, *rest, **more)

    def once() -> Iterator[Tensor]:
        for part in x.split(5):
            given.append(len(part))
            yield part

    monkeypatch.setattr(scoring, "compute", counted)
    nescio.score(model, once(), ["exgrad", "ungrad", scores.REGrad(samples=0), "entropy", "energy", "gen"])
    assert given == [5, 4] and asked == [2, 2]


@pytest.mark.parametrize("fails", [False, True])
def test_answers_that_turn_out_not_to_count_are_asked_for_again(
    fails: bool, model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, compute = nescio.score(model, x, ["exgrad", "entropy"]), quantities.compute
    asked: list[bool] = []

    def strange(*args: Any, later: list[Tensor] | None = None) -> Any:
        answers = compute(*args)
        asked.append(later is not None)
        if later is not None:
            later += [torch.tensor(True), torch.tensor(False)]
            answers = {request: None if fails else torch.zeros(1) for request in answers}
        return answers

    monkeypatch.setattr(scoring, "compute", strange)
    found = nescio.score(model, x, ["exgrad", "entropy"])
    assert asked == [True, False]
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_an_error_of_answers_that_count_is_raised(model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def strange(*args: Any, later: list[Tensor]) -> Any:
        later.append(torch.tensor(True))
        raise ZeroDivisionError("of this block")

    monkeypatch.setattr(scoring, "compute", strange)
    with pytest.raises(ZeroDivisionError, match="of this block"):
        nescio.score(model, x, "entropy")


def test_a_method_twice_is_keyed_by_its_settings(model: nn.Module, x: Tensor) -> None:
    d = nescio.score(model, x, ["exgrad", scores.ExGrad(norm=1), scores.ExGrad(norm=1, layer_decay=0.5), "entropy"])
    assert list(d) == ["exgrad", "exgrad(norm=1)", "exgrad(layer_decay=0.5, norm=1)", "entropy"]
    assert torch.equal(d["exgrad(norm=1)"], nescio.score(model, x, "exgrad", norm=1))
    with pytest.raises(InputError, match="expected each method once, got 'exgrad' 2 times; leave the others out"):
        nescio.score(model, x, ["exgrad", scores.ExGrad()])


def test_settings_with_a_list_go_to_all_or_to_none(model: nn.Module, x: Tensor) -> None:
    d = nescio.score(model, x, ["exgrad", "ungrad"], norm=1)
    assert torch.equal(d["ungrad"], nescio.score(model, x, "ungrad", norm=1))
    with pytest.raises(InputError) as caught:
        nescio.score(model, x, ["exgrad", "entropy"], norm=1)
    assert str(caught.value) == (
        "expected a setting of 'entropy', got 'norm'; it has none; leave it out. With a list of methods the settings "
        "go to every one of them; to set one alone, give it as an object: [nescio.scores.REGrad(samples=10), 'entropy']"
    )
    with pytest.raises(InputError, match="expected at least one method, got an empty list; known: negrad"):
        nescio.score(model, x, [])
    with pytest.raises(InputError, match=r"did you mean 'regrad'\?"):
        nescio.score(model, x, "regard")


def test_an_empty_batch_has_no_scores_and_no_batch_is_an_error(model: nn.Module, x: Tensor) -> None:
    u = nescio.score(model, x[:0])
    assert u.shape == (0,) and u.dtype == torch.float64
    d = nescio.score(model, x[:0], ["entropy", "exgrad"])
    assert [v.shape for v in d.values()] == [(0,), (0,)]
    with pytest.raises(InputError, match="expected at least one batch, got none"):
        nescio.score(model, [])
    with pytest.raises(InputError, match="expected at least one batch, got none"):
        nescio.score(model, iter(()))


def test_one_input_alone(model: nn.Module, x: Tensor) -> None:
    assert nescio.score(model, x[4:5], "exgrad").item() == pytest.approx(
        nescio.score(model, x, "exgrad")[4].item(), rel=1e-12
    )


def test_large_tensors_are_split_and_the_scores_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    compute = quantities.compute

    def seen(classifier: Any, block: Tensor, requests: Any, *rest: Any, **more: Any) -> Any:
        sizes.append(len(block))
        return compute(classifier, block, requests, *rest, **more)

    monkeypatch.setattr(scoring, "compute", seen)
    model, x = nn.Linear(3, 4).double(), torch.rand(150, 3, dtype=torch.float64)
    whole = nescio.score(model, x, "exgrad")
    assert sizes == [64, 64, 22]
    torch.testing.assert_close(nescio.score(model, x, "exgrad", chunk=1000), whole, rtol=1e-12, atol=0.0)
    assert sizes[3:] == [150]


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True, "8"])
def test_a_chunk_that_is_none(model: nn.Module, x: Tensor, chunk: Any) -> None:
    with pytest.raises(InputError, match="expected chunk to be a whole number of at least 1, got"):
        nescio.score(model, x, "entropy", chunk=chunk)


def test_a_model_without_parameters() -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(
        nescio.score(nn.Identity(), x, "entropy"), torch.distributions.Categorical(logits=x.double()).entropy()
    )
    assert nescio.score(lambda x: 2 * x, x, ["max_probability", "perturb_x"])["perturb_x"].shape == (3,)
    for model in (nn.Identity(), lambda x: 2 * x):
        with pytest.raises(ModelError):
            nescio.score(model, x)
        with pytest.raises(ModelError, match="perturb_x or entropy"):
            nescio.score(model, x, "perturb_theta")


def test_the_kind_of_output_is_handed_on(x: Tensor) -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)).double()
    methods = ["exgrad", "entropy", "energy", "mc_aa", "perturb_theta"]
    ended, bare = nescio.score(net, x, methods, output="probabilities"), nescio.score(net[0], x, methods)
    for name in methods:
        torch.testing.assert_close(ended[name], bare[name], rtol=1e-9, atol=0.0)
    one = nn.Linear(4, 1).double()
    p = one(x).sigmoid().squeeze(1).detach()
    entropy = -(p * p.log() + (1 - p) * (1 - p).log())
    torch.testing.assert_close(nescio.score(one, x, "entropy", output="binary"), entropy)
    assert nescio.score(one, x, output="binary", samples=3).shape == (9,)


class Odd:
    """A method of one's own, of any shape and type."""

    name = "odd"
    needs = (Logits(),)

    def __init__(self, give: Any) -> None:
        self.give = give

    def __call__(self, logits: Tensor) -> Any:
        return self.give(logits)


def test_a_method_of_ones_own_is_checked(model: nn.Module, x: Tensor) -> None:
    assert nescio.score(model, x, Odd(lambda z: z[:, 0])).shape == (9,)
    for give, got in [
        (lambda z: z, r"a tensor of float64 and shape \[9, 3\]"),
        (lambda z: z[:, 0].float(), r"a tensor of float32 and shape \[9\]"),
        (lambda z: 3.0, "an object of type float"),
    ]:
        with pytest.raises(InputError, match=rf"expected 'odd' to give a tensor of float64 and shape \[9\], got {got}"):
            nescio.score(model, x, Odd(give))


def test_scores_that_are_not_finite_are_an_error_that_names_the_inputs(model: nn.Module, x: Tensor) -> None:
    def give(z: Tensor) -> Tensor:
        return torch.where(torch.arange(len(z)) == 2, torch.inf, z[:, 0])

    words = r"expected finite scores, but 'odd' is not for 1 inputs \(at 7\): .* model\.double\(\)"
    with pytest.raises(ModelError, match=words):
        nescio.score(model, [x[:5], x[5:]], Odd(lambda z: give(z) if len(z) == 4 else z[:, 0]))


def test_the_bar(model: nn.Module, x: Tensor, capsys: pytest.CaptureFixture[str]) -> None:
    nescio.score(model, x, "entropy")
    assert capsys.readouterr().err == ""
    nescio.score(model, x, "entropy", progress=True, chunk=3)
    assert "9/9" in capsys.readouterr().err
    nescio.score(model, DataLoader(TensorDataset(x), batch_size=4), "entropy", progress=True)
    assert "9/9" in capsys.readouterr().err
    nescio.score(model, [x, x], "entropy", progress=True)
    shown = capsys.readouterr()
    assert "18/18" in shown.err and shown.out == ""


def test_a_shuffling_loader_leaves_the_generators_as_they_were(model: nn.Module, x: Tensor) -> None:
    before = torch.get_rng_state()
    nescio.score(model, DataLoader(TensorDataset(x), batch_size=4, shuffle=True), "entropy")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_it_is_the_same(model: nn.Module, x: Tensor) -> None:
    # round-off; the noise is the device's; a posterior's; for pictures
    left_out = ("negrad", "perturb_theta", "mutual_information", "shift_entropy")
    few = {"knn": {"k": 3}, "nnguide": {"k": 3}}
    names = [scores.get(name, **few.get(name, {})) for name in scores.names() if name not in left_out]
    training = (x, torch.arange(9) % 3)
    there = nescio.score(model, x, names, fit=training)
    here = nescio.score(model.cuda(), x, names, fit=training)
    assert nescio.score(model, x.cuda(), "perturb_theta", samples=3).device.type == "cpu"
    for name in there:
        torch.testing.assert_close(here[name], there[name], rtol=1e-7, atol=0.0)
