"""The check that no parameter escapes, and that an input's logits are its own: what cannot be told is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nescio import trace
from nescio.models import Classifier
from nescio.trace.probe.proofs import prove_silent
from nescio.types import ModelError
from tests.trace.helpers import SMOOTH, close, ready, same_as_reference, slow

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch, of checkpointing

REMEDY = "leave these layers out with exclude="


class Hidden(nn.Module):
    """Two layers of which ``way`` hides the first from autograd."""

    def __init__(self, way: Callable[[nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.way = nn.Linear(4, 4), nn.Linear(4, 3), way

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.way(self.first, x)))


def under_no_grad(layer: nn.Linear, x: Tensor) -> Tensor:
    with torch.no_grad():
        return layer(x)


def under_inference_mode(layer: nn.Linear, x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = layer(x)
    return y.clone()


def closed_over(layer: nn.Linear, x: Tensor) -> Tensor:
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return F.linear(x, layer.weight, layer.bias)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g @ layer.weight

    return Times.apply(x)


HIDDEN: dict[str, Callable[[nn.Linear, Tensor], Tensor]] = {
    "no_grad": under_no_grad,
    "inference_mode": under_inference_mode,
    "detach": lambda layer, x: layer(x).detach(),
    "data": lambda layer, x: F.linear(x, layer.weight.data, layer.bias.data),
    "numpy": lambda layer, x: torch.from_numpy(layer(x).detach().numpy() + 0),
    "re-entrant checkpointing": lambda layer, x: checkpoint(layer, x, use_reentrant=True),
    "closed over": closed_over,
    "logarithm": lambda layer, x: x * layer.weight.detach().abs().log().sum() + layer.bias.detach().sqrt().sum(),
}


def hidden(name: str) -> Any:
    model = ready(Hidden(HIDDEN[name]))
    with torch.no_grad():
        model.first.bias.abs_()
    return model


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_layer_is_named_with_the_remedy(name: str) -> None:
    model, x = hidden(name), torch.randn(4, 4, dtype=torch.float64)
    with pytest.raises(ModelError, match=r"first\.weight, first\.bias change the logits.*no path") as caught:
        trace.class_gradients(model, x)
    assert REMEDY in str(caught.value)
    assert "second" not in str(caught.value)
    with pytest.raises(ModelError, match=r"first\.bias change the logits"):
        trace.class_gradients(model, x, layers="tensor", select=["first.bias", "second.*"])


@pytest.mark.parametrize("name", HIDDEN)
def test_a_selection_gets_around_it(name: str) -> None:
    model, x = hidden(name), torch.randn(4, 4, dtype=torch.float64)
    found = trace.class_gradients(model, x, select=["second"])
    assert found.layers == ("second",)
    close(found.norms, trace.reference.class_gradients(model, x, select=["second"]).norms)


def test_a_parameter_whose_change_gives_no_number() -> None:
    """The logarithm of a changed value is NaN, and NaN is not the same as before."""

    class Logarithm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p, self.head = nn.Parameter(torch.full((16,), 0.5)), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x) * self.p.detach().log().sum()

    with pytest.raises(ModelError, match="parameters p change the logits"):
        trace.class_gradients(Logarithm(), torch.randn(4, 4))


def test_a_parameter_that_is_hidden_for_some_inputs_only() -> None:
    """The first inputs do not show it, the fourth does."""

    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shown, self.hidden = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x[:, :1] > 0, self.shown(x), self.hidden(x).detach())

    model, x = ready(Chosen()), torch.randn(4, 4, dtype=torch.float64)
    x[:, 0] = torch.tensor([1.0, 1.0, 1.0, -1.0])
    assert trace.class_gradients(model, x[:3]).norms[:, :, 1].eq(0).all()
    for settings in ({}, {"chunk": 1}, SMOOTH):
        with pytest.raises(ModelError, match=r"hidden\.weight, hidden\.bias change the logits"):
            trace.class_gradients(model, x, **settings)


def test_many_hidden_parameters_are_counted() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = nn.ModuleList(nn.Linear(4, 4) for _ in range(4)), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return self.head(x.detach())

    with pytest.raises(ModelError, match=r"layers\.0\.weight, .*layers\.2\.weight and 3 more change"):
        trace.class_gradients(Deep(), torch.randn(4, 4))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_model_that_has_no_gradient_at_all(mode: Any) -> None:
    class Silent(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with mode():
                return super().forward(x)

    with pytest.raises(ModelError, match="parameters weight, bias change the logits"):
        trace.class_gradients(Silent(4, 3), torch.randn(4, 4))


def test_an_unused_layer_gets_exact_zeros() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare, self.zeroed = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.spare(x)
            return self.used(x) + 0 * self.zeroed(x)

    model, x = ready(Spare()), torch.randn(4, 4, dtype=torch.float64)
    found = trace.class_gradients(model, x)
    by_name = dict(zip(found.layers, found.norms.unbind(2), strict=True))
    assert by_name["used"].min() > 0
    assert by_name["spare"].eq(0).all()
    assert by_name["zeroed"].eq(0).all()
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        assert trace.class_gradients(model.to(dtype), x.to(dtype), select=["spare"]).norms.eq(0).all()


class Checkpointed(nn.Module):
    """A part that is computed again in the backward pass."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(4, 5), norm, nn.Linear(5, 3)
        self.raw = nn.Parameter(torch.zeros(5, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(lambda t: torch.tanh(self.norm(self.first(t))), x, use_reentrant=False) @ self.raw)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.LayerNorm])
def test_checkpointing_that_is_not_re_entrant(norm: type[nn.Module]) -> None:
    model, x = ready(Checkpointed(norm(5))), torch.randn(4, 4, dtype=torch.float64)
    for settings in ({}, {"norm": 1}, SMOOTH, {"chunk": 1}):
        same_as_reference(model, x, **settings)
    same_as_reference(model, x[:1])


class Mixing(nn.Module):
    """A model whose logits are not the input's own."""

    def __init__(self, mix: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.mix, self.head = nn.Linear(4, 6), mix, nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mix(torch.tanh(self.first(x))))


COUPLED: dict[str, Callable[[], nn.Module]] = {
    "mean of the batch": lambda: Mixing(lambda h: h - h.mean(0)),
    "statistics of the batch": lambda: Mixing(lambda h: F.batch_norm(h, None, None, training=True)),
    "softmax over the batch": lambda: Mixing(lambda h: 10 * h.softmax(0)),
    "attention over the batch": lambda: Mixing(Attending()),
    "a reshape": lambda: Mixing(lambda h: h.view(-1, len(h)).T if len(h) > 1 else h),
}


class Attending(nn.Module):
    """The first dimension is taken for the sequence, since batch_first was forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2)

    def forward(self, h: Tensor) -> Tensor:
        return self.attention(h.unsqueeze(1), h.unsqueeze(1), h.unsqueeze(1))[0].squeeze(1)


@pytest.mark.parametrize("name", COUPLED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_inputs_that_influence_each_other(name: str, dtype: torch.dtype) -> None:
    model = ready(COUPLED[name]()).to(dtype)
    with pytest.raises(ModelError, match=r"treats each input of a batch on its own.*batch_first"):
        trace.class_gradients(model, 2 * torch.randn(5, 4, dtype=dtype))


def test_logits_that_change_from_call_to_call() -> None:
    for mix in (F.dropout, lambda h: h + torch.randn_like(h), lambda h: h * torch.rand(())):
        model = ready(Mixing(mix))
        with pytest.raises(ModelError, match=r"change from call to call.*training=self.training"):
            trace.class_gradients(model, torch.randn(5, 4, dtype=torch.float64))

    class Counting(Mixing):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x) * self.calls

    with pytest.raises(ModelError, match="what it keeps from one call to the next"):
        trace.class_gradients(ready(Counting(torch.tanh)), torch.randn(1, 4, dtype=torch.float64))


class Residual(nn.Module):
    """A block that adds nothing before it is trained, and a head of zeros: no gradient comes through."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Linear(4, 6), nn.LayerNorm(6)
        self.inner, self.gate = nn.Linear(6, 6), nn.Parameter(torch.zeros(6))
        self.head = nn.Linear(6, 3)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        return self.head(h + self.gate * self.inner(self.norm(h)).tanh())


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_rule_that_cannot_be_told_from_another_is_not_wrong(count: int) -> None:
    """Parameters of zeros are given other values to tell the rules, and only for that."""
    torch.manual_seed(0)
    model, x = Residual().double(), torch.randn(count, 4, dtype=torch.float64)
    assert not slow(model, x)
    assert same_as_reference(model, x)[..., :-2].amax() == 0
    assert not model.head.weight.any() and not model.gate.any()
    with torch.no_grad():
        model.head.weight.normal_()
    assert not slow(model, x)
    same_as_reference(model, x)


class Trimming(nn.Module):
    """A model of texts that cuts padding off down to the longest of the batch; its mean counts what padding is left."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.words, self.head, self.masked = nn.Embedding(20, 6), nn.Linear(6, 3), masked

    def forward(self, input_ids: Tensor) -> Tensor:
        input_ids = input_ids[:, : int((input_ids != 0).sum(1).max())]
        h = torch.tanh(self.words(input_ids))
        if not self.masked:
            return self.head(h.mean(1))
        mask = (input_ids != 0).unsqueeze(2)
        return self.head((h * mask).sum(1) / mask.sum(1))


def texts(*lengths: int) -> dict[str, Tensor]:
    ids = torch.randint(1, 20, (len(lengths), 8), generator=torch.Generator().manual_seed(0))
    return {"input_ids": torch.where(torch.arange(8) < torch.tensor(lengths)[:, None], ids, 0)}


@pytest.mark.parametrize("lengths", [(8, 8, 8, 2), (2, 8, 8, 8), (8, 2, 8, 8), (8, 8), (3, 8)])
def test_texts_that_are_trimmed_to_the_longest_of_the_batch(lengths: tuple[int, ...]) -> None:
    """The order of the batch does not matter, nor that a batch of equal lengths came before."""
    masked = ready(Trimming(masked=True))
    same_as_reference(masked, texts(*lengths))
    model = ready(Trimming(masked=False))
    for _ in range(2):
        same_as_reference(model, texts(8, 8, 8, 8))
        if len(set(lengths)) > 1:
            with pytest.raises(ModelError, match=r"treats each input of a batch on its own.*longest of the batch"):
                trace.class_gradients(model, texts(*lengths))
            same_as_reference(model, {"input_ids": texts(*lengths)["input_ids"][:1]})
        else:
            same_as_reference(model, texts(*lengths))


def test_re_entrant_checkpointing_of_a_layer_in_the_middle() -> None:
    """Autograd sees it as an operation, whose backward pass takes no part in `autograd.grad`."""

    class Middle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(lambda t: self.second(t).tanh(), self.first(x), use_reentrant=True))

    with pytest.raises(ModelError, match=r"code of its own, which fails.*use_reentrant=False"):
        trace.class_gradients(ready(Middle()), torch.randn(4, 4, dtype=torch.float64))


def test_a_backward_pass_that_asks_for_training() -> None:
    class Reversible(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            raise AssertionError("put the model into training mode")

    with pytest.raises(ModelError, match=r"gradient can be taken in eval mode.*put the model into training mode"):
        trace.class_gradients(ready(Mixing(Reversible.apply)), torch.randn(4, 4, dtype=torch.float64))


def test_flex_attention_on_a_cpu_is_refused_or_right() -> None:
    """Newer versions of PyTorch have no gradient of it there, older ones have one that vmap does not know."""
    from torch.nn.attention.flex_attention import flex_attention

    class Flex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project, self.head = nn.Linear(16, 48), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.project(x).view(len(x), -1, 3, 1, 16).permute(2, 0, 3, 1, 4)
            return self.head(flex_attention(q, k, v).squeeze(1).mean(1))

    model, x = Flex().eval(), torch.randn(3, 16, 16)
    try:
        model(x).sum().backward()
    except (RuntimeError, NotImplementedError):
        with pytest.raises(ModelError, match=r"an operation of it has none here.*a score without gradients"):
            trace.class_gradients(model, x)
    else:
        close(trace.class_gradients(model, x).norms, trace.reference.class_gradients(model, x).norms, 1e-3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_inside_a_model_are_refused(layout: torch.layout) -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            rows = [one[: 2 + int(one[0, 0] > 0)] for one in x]
            h = self.first(torch.nested.as_nested_tensor(rows, layout=layout))
            return self.head(torch.stack([part.tanh().sum(0) for part in h.unbind()]))

    with pytest.raises(ModelError, match=r"makes nested ones \(torch.nested\).*let it pad them"):
        trace.class_gradients(ready(Nested()), torch.randn(4, 3, 4, dtype=torch.float64))


def test_the_proof_that_a_parameter_is_silent_runs_the_model_once_where_the_logits_are_known() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.other = nn.Linear(4, 3), nn.Linear(4, 4096)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x) + self.size * self.other(x).detach().amax(1, keepdim=True)

    model, x = TwoHeads().eval(), torch.randn(3, 4)
    classifier, calls = Classifier(model), []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    names = ("other.weight", "other.bias")
    for size, runs in ((0.0, 1), (0.01, None)):
        model.size = size
        logits = classifier.logits(x)
        calls.clear()
        if runs is None:
            with pytest.raises(ModelError, match=r"other.* change the logits"):
                prove_silent(classifier, x, names, logits)
        else:
            prove_silent(classifier, x, names, logits)
            assert len(calls) == runs
    model.size = 0.0
    prove_silent(classifier, x, names, logits + 1)  # logits that are others for another reason accuse nobody
