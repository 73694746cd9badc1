"""Kinds of models, outputs and inputs that the engine takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import trace
from nescio.models import Classifier
from nescio.types import InputError, ModelError
from tests.trace.helpers import SMOOTH, close, ready, same_as_reference, slow


class Net(nn.Module):
    """A small CNN that can wrap its logits and end in a softmax."""

    def __init__(self, wrap: Any = None, classes: int = 3) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.act, self.head, self.wrap = nn.ReLU(inplace=True), nn.Linear(16, classes), wrap

    def forward(self, x: Tensor) -> Any:
        h = self.act(self.norm(self.conv(x)))
        z = self.head(self.drop(h.flatten(1)))
        return z if self.wrap is None else self.wrap(z)


def net(wrap: Any = None, classes: int = 3) -> Any:
    torch.manual_seed(2)
    model = ready(Net(None, classes))
    model.wrap = wrap
    return model


def pictures(n: int = 4) -> Tensor:
    return torch.randn(n, 1, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.fixture
def wanted() -> Tensor:
    return trace.class_gradients(net(), pictures()).norms


@pytest.mark.parametrize(
    "wrap",
    [lambda z: (z, z.sum()), lambda z: [z], lambda z: {"logits": z, "aux": z * 2}, lambda z: {"out": z}],
    ids=["tuple", "list", "dict", "one entry"],
)
def test_what_a_model_returns(wrap: Any, wanted: Tensor) -> None:
    close(trace.class_gradients(net(wrap), pictures()).norms, wanted)


def test_a_closing_softmax_is_taken_off(wanted: Tensor) -> None:
    softmax = nn.Sequential(net(), nn.Softmax(dim=1))
    for model in (softmax, net(lambda z: torch.softmax(z, 1)), net(lambda z: z.log_softmax(1).exp())):
        found = trace.class_gradients(model, pictures(), output="probabilities")
        close(found.norms, wanted)
    with pytest.warns(UserWarning, match="looks like probabilities.*output='probabilities'"):
        trace.class_gradients(softmax, pictures())


def test_one_logit_for_two_classes() -> None:
    two = net(lambda z: torch.stack([torch.zeros_like(z[:, 0]), z[:, 0]], 1), classes=1)
    wanted = trace.class_gradients(two, pictures()).norms
    for wrap in (None, lambda z: z[:, 0], torch.sigmoid):
        close(trace.class_gradients(net(wrap, classes=1), pictures(), output="binary").norms, wanted)


def test_wrapped_models(wanted: Tensor) -> None:
    compiled: Any = torch.compile(net(), backend="eager")
    parallel = nn.DataParallel(net())
    for model in (compiled, parallel, nn.DataParallel(compiled), Classifier(net())):
        found = trace.class_gradients(model, pictures())
        close(found.norms, wanted)
        assert found.layers == ("conv", "norm", "head")


@pytest.mark.filterwarnings("ignore:`torch.jit", "ignore::DeprecationWarning")
def test_torchscript(wanted: Tensor) -> None:
    scripted = torch.jit.trace(net(), pictures(), check_trace=False)
    close(trace.class_gradients(scripted, pictures()).norms, wanted)


def test_training_mode_is_left_and_found_again(wanted: Tensor) -> None:
    model = net().train()
    model.norm.eval()
    close(trace.class_gradients(model, pictures()).norms, wanted)
    assert [model.training, model.drop.training, model.norm.training] == [True, True, False]


def test_batch_norm_without_statistics() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3))
    with pytest.raises(ModelError, match=r"batch-norm without running statistics in '1'.*GroupNorm"):
        trace.class_gradients(model, torch.randn(3, 4))


def test_activation_in_place_first() -> None:
    model = ready(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3)))
    x = torch.randn(5, 4, dtype=torch.float64)
    kept = x.clone()
    same_as_reference(model, x)
    same_as_reference(model, x, **SMOOTH)
    assert torch.equal(x, kept)


def test_memory_layouts_of_inputs(wanted: Tensor) -> None:
    x = pictures()
    for same in (
        x.to(memory_format=torch.channels_last),
        x.repeat_interleave(2, 3)[..., ::2],
        x.transpose(2, 3).contiguous().transpose(2, 3),
        x[:1].expand(4, -1, -1, -1) * 0 + x,
        x.numpy(),
        x.clone().requires_grad_(),
    ):
        close(trace.class_gradients(net(), same).norms, wanted)
    expanded = x[:1].expand(4, -1, -1, -1)
    close(trace.class_gradients(net(), expanded).norms, wanted[:1].expand(4, -1, -1))
    close(trace.class_gradients(net().to(memory_format=torch.channels_last), x).norms, wanted)


def test_inputs_made_in_inference_mode(wanted: Tensor) -> None:
    model = net()
    with torch.inference_mode():
        x = pictures() + 0
        close(trace.class_gradients(model, x).norms, wanted)
    assert x.is_inference()
    close(trace.class_gradients(model, x).norms, wanted)
    assert trace.input_gradients(model, x, torch.eye(3)[:1].expand(1, 4, 3)).abs().sum() > 0


def test_another_default_device(wanted: Tensor) -> None:
    """Whatever new tensors are made on by default, the work is done where the model is."""
    model, x = net(), pictures()
    smooth = trace.class_gradients(model, x, **SMOOTH).norms
    with torch.device("meta"):
        close(trace.class_gradients(model, x).norms, wanted)
        close(trace.class_gradients(model, x, **SMOOTH).norms, smooth)
        close(trace.reference.class_gradients(model, x, **SMOOTH).norms, smooth)


@pytest.mark.parametrize("share", ["itself", "made from it"])
def test_inputs_that_are_the_models_own_parameters(share: str) -> None:
    """A gradient with respect to a parameter does not go through the input."""

    class Both(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(super().forward(x)) @ torch.sin(self.weight[:, :3])  # by a rule and without one

    model = ready(Both(4, 3))
    x = model.weight if share == "itself" else model.weight * 2
    same_as_reference(model, x)
    same_as_reference(model, x[:1])
    torch.testing.assert_close(
        trace.class_gradients(model, x).norms, trace.class_gradients(model, x.detach().clone()).norms
    )


def test_one_input_and_two_classes() -> None:
    same_as_reference(net(classes=2), pictures(1))
    same_as_reference(net(classes=2), pictures(1), **SMOOTH)
    assert trace.class_gradients(net(classes=2), pictures(1)).norms.shape == (1, 2, 3)


def test_autocast_around_the_call(wanted: Tensor) -> None:
    model, x = net().float(), pictures().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            model(x)  # leaves weights without a history in the cache of autocast
        found = trace.class_gradients(model, x).norms
    total = (wanted**2).sum(2).sqrt()
    assert (((found**2).sum(2).sqrt() - total).abs() / total).max() < 0.05


def test_a_plan_is_not_used_for_another_model_or_type(wanted: Tensor) -> None:
    """The same module, changed after its first pass: type, a flag, a layer, weights."""
    model, x = net(), pictures()
    half = trace.class_gradients(model.bfloat16(), x).norms
    assert half.isfinite().all()
    model = net()
    close(trace.class_gradients(model.float(), x).norms, wanted, 1e-3)
    same_as_reference(model.double(), x)
    model.head = nn.Sequential(nn.Unflatten(1, (4, 4)), nn.Linear(4, 2), nn.Flatten(1), nn.Linear(8, 3)).double()
    same_as_reference(model, x)
    nn.init.zeros_(model.norm.weight)
    same_as_reference(model, x)


def test_a_flag_that_turns_the_batch_around() -> None:
    """Tokens are transposed before they are looked up: only the mean's dimension is another in the graph."""

    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.mix, self.head, self.first = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 3), True

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.mix(self.table(x if self.first else x.T))).mean(1 if self.first else 0))

    model, x = ready(Text()), torch.randint(0, 9, (6, 4))
    before = same_as_reference(model, x)
    model.first = False
    close(same_as_reference(model, x), before)
    assert slow(model, x) == set()


@pytest.fixture
def bert() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    torch.manual_seed(0)
    return ready(transformers.BertForSequenceClassification(config))


def test_a_hugging_face_model_with_named_inputs(bert: Any) -> None:
    x = {"input_ids": torch.randint(1, 30, (4, 6)), "attention_mask": torch.ones(4, 6, dtype=torch.long)}
    x["attention_mask"][1, 4:] = 0
    x["attention_mask"][3, 2:] = 0
    same_as_reference(bert, x)
    same_as_reference(bert, {k: v[1:2] for k, v in x.items()}, norm=1)
    full = dict(x, attention_mask=torch.ones_like(x["attention_mask"]))
    same_as_reference(bert, full)
    same_as_reference(bert, x["input_ids"])
    shared = {"bert.embeddings.token_type_embeddings.weight", "bert.embeddings.position_embeddings.weight"}
    assert slow(bert, x["input_ids"]) <= shared  # looked up once for all inputs
    with pytest.raises(InputError, match=r"noise can only be added to floating-point values.*samples=0"):
        trace.class_gradients(bert, x, sigma=0.1, samples=2)
