"""Few inputs of few classes take the loop: the same numbers and the same refusals as the engine's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import trace
from nescio.models import Classifier
from nescio.trace import api
from nescio.trace.estimate import small_work
from nescio.types import ModelError, NormSettings, NormTable
from tests.trace.helpers import close
from tests.trace.subjects import SUBJECTS, make

ROWS = ("classes", "uniform")


def by_loop(model: Any, x: Any, request: NormSettings = NormSettings("classes"), rows: Any = ROWS) -> Any:  # noqa: B008
    """The tables where they come from the loop; the engine is not asked."""

    def engine(*_: Any) -> None:
        raise AssertionError("the engine was asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "TableBuilder", engine)
        return trace.gradient_norms(Classifier.of(model), x, request, rows=rows, loop=True)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_numbers_are_those_of_the_oracle_and_of_the_engine(name: str, count: int) -> None:
    model, x = make(name)
    x = x[:count]
    if name == "tied_embedding":  # nine classes
        x = x[:1]
    for request in (NormSettings("classes"), NormSettings("classes", 1, "tensor")):
        tables = by_loop(model, x, request)
        norms, probabilities, layers = trace.reference.gradient_norms(
            Classifier.of(model), x, rows=ROWS, norm=request.norm, layers=request.layers
        )
        engine = trace.gradient_norms(Classifier.of(model), x, request, rows=ROWS)
        for row in ROWS:
            assert tables[row].layers == layers == engine[row].layers
            assert tables[row].spread is None
            torch.testing.assert_close(tables[row].probabilities, probabilities, rtol=1e-9, atol=1e-12)
            close(tables[row].norms, norms[row])
            close(tables[row].norms, engine[row].norms)


@pytest.mark.parametrize("gap", [3.0, 60.0, 600.0, 2000.0])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_class_without_a_backward_pass_keeps_its_digits(name: str, gap: float) -> None:
    model, x = make(name, gap)
    ours = by_loop(model, x[:3], rows=("classes",))["classes"].norms
    engine = trace.gradient_norms(Classifier.of(model), x[:3])["classes"].norms
    assert (ours > 0).any()
    assert ours.isfinite().all()
    close(ours, engine)


def test_a_score_does_not_depend_on_how_many_inputs_come() -> None:
    model, _ = make("mlp")
    x = torch.randn(40, 6, dtype=torch.float64)
    many = nescio.score(model, x, "regrad", tolerance=0.0)
    for size in (1, 2, 4, 7):
        few = torch.cat([nescio.score(model, part, "regrad") for part in x.split(size)])
        torch.testing.assert_close(few, many, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("scale", [1e-22, 1.0, 1e22])
def test_squares_that_float32_cannot_hold(scale: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 300), nn.Linear(300, 300), nn.Linear(300, 3)).eval()
    with torch.no_grad():  # the logits stay what they were, and the gradients of the middle layer grow or shrink
        model[2].weight.mul_(scale)
        model[1].weight.div_(scale)
        model[1].bias.div_(scale)
    x = torch.randn(2, 4)
    ours = by_loop(model, x, NormSettings("classes", layers="tensor"), ("classes",))["classes"].norms
    wanted = trace.reference.class_gradients(model.double(), x.double(), layers="tensor").norms
    assert wanted[:, :, 2].amax() > 1e20 or scale <= 1
    assert (wanted > 0).all()
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=0.0)


def test_who_takes_the_loop() -> None:
    def taken(model: nn.Module, x: Tensor, **settings: Any) -> bool:
        try:
            by_loop(model, x, NormSettings("classes", **settings), ("classes",))
        except AssertionError:
            return False
        return True

    net, x = nn.Linear(4, 3), torch.randn(5, 4)
    assert taken(net, x)
    assert not taken(net, torch.randn(6, 4))  # 18 rows
    assert not taken(nn.Linear(4, 20), x[:1])
    assert not taken(nn.Linear(4, 5), x[:3], classes=3)  # would be estimated
    assert taken(nn.Linear(4, 5), x[:3], classes=5)
    assert not taken(net, x, precision="bfloat16")
    assert not taken(net, x, sigma=0.1, samples=2)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(3 * 640 * 640, 64), nn.Linear(64, 3))
    assert not taken(wide, torch.randn(3, 3, 640, 640))


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(nn.functional.dropout(x, 0.5))


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0))


class Trimmed(nn.Module):
    """Looks at as many tokens as the longest text has."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        length = int((tokens != 0).sum(1).max())
        return self.head(self.table(tokens[:, :length]).mean(1))


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).detach())


def test_what_the_engine_refuses_is_refused() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4)
    with pytest.raises(ModelError, match="change from call to call"):
        nescio.score(Random(), x[:1])
    with pytest.raises(ModelError, match="change"):
        nescio.score(Random(), x)
    with pytest.raises(ModelError, match="with the others in the batch"):
        nescio.score(Mixing(), x)
    with pytest.raises(ModelError, match="autograd has no path"):
        nescio.score(Detached(), x)
    texts = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 10], [11, 12, 13, 14]])
    model = Trimmed()
    assert nescio.score(model, texts).shape == (3,)
    with pytest.raises(ModelError, match="with the others in the batch"):  # also when it was proved for even ones
        nescio.score(model, torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0], [11, 12, 13, 14]]))


class DetachedForSome(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(1, 2, 3), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        features = self.first(x).mean((2, 3))
        return self.head(features.detach() if len(x) == 1 and float(x.sum()) < 0 else features)


def test_a_parameter_that_is_lost_for_one_input_alone_is_found() -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 1, 5, 5)
    classifier = Classifier(DetachedForSome())
    assert small_work.by_loop(classifier, x, ("classes",), NormSettings("classes")) is not None
    assert small_work.by_loop(classifier, torch.cat([x[:2], -x[2:]]), ("classes",), NormSettings("classes")) is None


def test_a_parameter_without_influence_counts_as_zero() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.spare, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.first(x))

    table: NormTable = by_loop(Spare().double(), torch.randn(3, 4, dtype=torch.float64), rows=("classes",))["classes"]
    assert table.layers == ("first", "spare", "head")
    assert not table.norms[:, :, 1].any()
    assert (table.norms[:, :, [0, 2]] > 0).all()


def test_backward_passes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    own = small_work.engine_gradients
    monkeypatch.setattr(small_work, "engine_gradients", lambda *a, **k: calls.append(1) or own(*a, **k))
    model, x = make("mlp")
    by_loop(model, x[:3], rows=("classes",))
    classes = model(x).shape[1]
    assert len(calls) == 3 * (classes - 1)  # the likeliest class follows from the others
    assert 3 * classes <= small_work.ROWS


def test_only_norms_that_float32_cannot_hold_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    own = torch._foreach_norm

    def counted(gradients: Any, norm: int, **settings: Any) -> Any:
        if settings.get("dtype") is torch.float64:
            again.append(len(gradients))
        return own(gradients, norm, **settings)

    monkeypatch.setattr(torch, "_foreach_norm", counted)
    gradients = [torch.full((9,), value) for value in (2.0, 1e-30, 3.0, 1e30)]
    sizes = small_work._sizes(gradients, 2)
    torch.testing.assert_close(sizes, torch.tensor([6.0, 3e-30, 9.0, 3e30], dtype=torch.float64), rtol=1e-6, atol=0.0)
    assert again == [2]
    assert small_work._sizes([torch.full((2,), torch.nan), torch.ones(1)], 2).isnan().tolist() == [True, False]


@pytest.mark.parametrize(("width", "calls"), [(8, 1), (500, 3)])
def test_inputs_go_alone_through_large_parameters(width: int, calls: int) -> None:
    model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 3)).eval()
    x = torch.randn(3, 4)
    assert small_work._alone_is_faster(dict(model.named_parameters())) == (calls == 3)
    by_loop(model, x)  # the proof that logits are each input's own is made once
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    tables = by_loop(model, x)
    assert len(sizes) == calls
    assert sum(sizes) == 3
    wanted = trace.reference.class_gradients(model.double(), x.double()).norms
    torch.testing.assert_close(tables["classes"].norms, wanted, rtol=1e-4, atol=1e-9)
