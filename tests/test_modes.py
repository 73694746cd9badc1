import copy
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

import nescio
from nescio import modes
from nescio.modes import Watch, lazily, predicting, preserved, preserved_when_run, tracing
from nescio.modes.stopping import Stopped, stopping
from nescio.types import ModelError


class StubbornNorm(nn.BatchNorm1d):
    """Stays in training mode, as parts of models do that override train()."""

    def train(self, mode=True):
        return super().train(True)


class Stubborn(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = StubbornNorm(3)
        self.frozen = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)
        self.head = nn.Linear(3, 2)
        self.register_buffer("table", torch.tensor([1.0, float("nan")]))
        self.register_buffer("empty", None)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.note = torch.ones(2)  # a tensor that is neither parameter nor buffer

    def forward(self, x):
        return self.head(self.frozen(self.norm(x)))


def make() -> Stubborn:
    model = Stubborn()
    model.frozen.training = False
    model.head.weight.grad = torch.full_like(model.head.weight, 3.0)
    model.head.register_forward_hook(lambda *_: None)
    model.head.register_full_backward_hook(lambda *_: None)
    return model


def snapshot(model: nn.Module) -> dict:
    """All that must be the same afterwards, objects by identity and values by their bits."""
    parts: dict = {}
    for name, module in model.named_modules():
        parts[name, "training"] = module.training
        for key, value in module.__dict__.items():
            if key.endswith(("hooks", "with_kwargs", "always_called")):
                parts[name, key] = (id(value), list(value.items()))
        parts[name, "backward"] = module._is_full_backward_hook
        for key, p in module._parameters.items():
            parts[name, key] = (
                id(p),
                p.requires_grad,
                id(p.grad) if p.grad is not None else None,
                bits(p),
                bits(p.grad),
            )
        for key, b in module._buffers.items():
            parts[name, key] = (id(b) if b is not None else None, bits(b))
        parts[name, "temporary"] = set(module._non_persistent_buffers_set)
    parts["python"] = random.getstate()
    parts["numpy"] = str(np.random.get_state())
    parts["torch"] = torch.get_rng_state().tolist()
    return parts


def bits(value: torch.Tensor | None) -> bytes | None:
    return None if value is None else value.detach().numpy().tobytes()


def havoc(model: Stubborn) -> None:
    """Change all that can be changed."""
    model.train()
    model.frozen.train()
    model.requires_grad_(True)
    model.head.weight.grad = torch.zeros_like(model.head.weight)
    model.frozen.weight.grad = torch.zeros_like(model.frozen.weight)
    model.head.bias.requires_grad_(False)
    model(torch.randn(4, 3))  # running statistics
    model.table.zero_()
    model.norm.running_var = torch.zeros(3)
    model.empty = torch.zeros(1)
    model.register_buffer("new", torch.zeros(1), persistent=False)
    for module in model.modules():
        module.register_forward_hook(lambda *_: None, with_kwargs=True, always_call=True)
        module.register_forward_pre_hook(lambda *_: None, with_kwargs=True)
        module.register_full_backward_hook(lambda *_: None)
        module.register_full_backward_pre_hook(lambda *_: None)
    model.head._forward_hooks.pop(next(iter(model.head._forward_hooks)))
    model.head._parameters["weight"] = torch.zeros(2, 3)
    random.random(), np.random.rand(), torch.rand(3)


class Boom(Exception):
    pass


@pytest.mark.parametrize("end", [None, Boom, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("mode", [None, tracing, predicting])
def test_everything_is_put_back(end, mode):
    model = make()
    before = snapshot(model)

    def work():
        with preserved(model):
            if mode is None:
                havoc(model)
            else:
                with mode(model):
                    havoc(model)
            if end is not None:
                raise end

    with nullcontext() if end is None else pytest.raises(end):
        work()
    assert snapshot(model) == before


def test_the_snapshot_of_these_tests_sees_each_change():
    changes: list[Callable[[Stubborn], object]] = [
        lambda m: setattr(m.norm, "training", False),
        lambda m: m.head.bias.requires_grad_(False),
        lambda m: setattr(m.head.weight, "grad", m.head.weight.grad.clone()),
        lambda m: m.norm.running_mean.add_(1),
        lambda m: setattr(m.norm, "running_mean", m.norm.running_mean.clone()),
        lambda m: m.head.register_forward_hook(lambda *_: None),
        lambda m: m.head._forward_hooks.clear(),
        lambda m: m.register_buffer("new", torch.zeros(1)),
        lambda m: random.random(),
        lambda m: np.random.rand(),
        lambda m: torch.rand(1),
    ]
    for change in changes:
        model = make()
        before = snapshot(model)
        with preserved(model):
            change(model)
            assert snapshot(model) != before
        assert snapshot(model) == before


def test_a_graph_that_holds_a_buffer_stays_valid():
    norm = nn.BatchNorm1d(3).eval()
    x = torch.randn(2, 3, requires_grad=True)
    loss = norm(x).sum()
    versions = [b._version for b in norm.buffers()]
    with preserved(norm), tracing(norm):
        norm(torch.randn(4, 3))
    assert [b._version for b in norm.buffers()] == versions  # an unchanged buffer is not written to
    loss.backward()
    assert x.grad is not None


def test_buffers_with_nan_are_not_written_to_either():
    model = make()
    version = model.table._version
    with preserved(model):
        pass
    assert model.table._version == version
    with preserved(model):
        model.table[0] = float("nan")
    assert model.table[0] == 1 and model.table[1].isnan()


def test_buffers_of_another_shape_or_type_come_back():
    norm = nn.BatchNorm1d(3)
    running = norm.running_mean
    with preserved(norm):
        norm.double()
        running.data = torch.zeros(5)
    assert norm.running_mean is running
    assert running.dtype == torch.float32 and running.tolist() == [0, 0, 0]


def test_a_module_that_replaces_a_buffer_gets_its_book_keeping_back():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.grow(2)
            self.calls = 0

        def grow(self, length):
            self.length = length
            self.register_buffer("cache", torch.arange(length), persistent=False)

        def forward(self, x):
            self.calls += 1
            if x.shape[1] > self.length:
                self.grow(x.shape[1])
                self.made = True
            return x * self.cache[: x.shape[1]]

    model = Cache()
    with preserved(model):
        model(torch.ones(1, 2))
    assert model.calls == 1  # plain attributes are the user's own, and stay as the model left them
    with preserved(model):
        model(torch.ones(1, 7))
    assert model.length == 2 and len(model.cache) == 2 and not hasattr(model, "made")
    assert model(torch.ones(1, 7)).shape == (1, 7)


def test_tensors_kept_as_plain_attributes_come_back():
    model = make()
    note = model.note
    with preserved(model):
        model.note = torch.zeros(2, requires_grad=True) * 2
    assert model.note is note


def test_handles_of_hooks_still_work_afterwards():
    model = nn.Linear(2, 2)
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    with preserved(model):
        model._forward_hooks.clear()
        model(torch.zeros(1, 2))
    model(torch.zeros(1, 2))
    assert len(calls) == 1
    handle.remove()
    assert not model._forward_hooks


def test_tracing_evaluates_and_unfreezes_everything():
    model = make()
    model.register_buffer("count", torch.zeros(1, dtype=torch.long))
    flags = {p: p.requires_grad for p in model.parameters()}
    training = {m: m.training for m in model.modules()}
    assert model.norm.training and not all(flags.values())
    with torch.no_grad(), tracing(model):
        assert not any(m.training for m in model.modules())
        assert all(p.requires_grad for p in model.parameters())
        assert torch.is_grad_enabled()
        gradient = torch.autograd.grad(model(torch.randn(2, 3)).sum(), model.frozen.weight)[0]
        assert gradient.abs().sum() > 0
    assert {p: p.requires_grad for p in model.parameters()} == flags
    assert {m: m.training for m in model.modules()} == training


def test_tracing_works_inside_inference_mode():
    model = make()
    with torch.inference_mode(), preserved(model), tracing(model):
        out = model(torch.randn(2, 3)).sum()
        assert torch.autograd.grad(out, model.head.weight)[0].shape == (2, 3)
        model.norm.running_mean.add_(1)
    assert model.norm.running_mean.tolist() == [0, 0, 0]


def test_tracing_leaves_integer_parameters_alone():
    model = nn.Linear(2, 2)
    model.codes = nn.Parameter(torch.arange(3), requires_grad=False)
    with tracing(model):
        assert not model.codes.requires_grad


def test_parameters_made_in_inference_mode_are_refused():
    with torch.inference_mode():
        model = nn.Linear(2, 2)
    model.training = True
    words = r"made under torch.inference_mode\(\); build the model outside of it"
    with pytest.raises(ModelError, match=words), preserved(model), tracing(model):
        pass
    assert model.training
    with tracing(copy.deepcopy(model)):  # the remedy that the message gives
        pass


@pytest.mark.parametrize("end", [None, Boom, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_modes_entered_late_are_left_with_the_block(end):
    model = make()
    before = snapshot(model)

    def work():
        with lazily(model) as enter:
            assert snapshot(model) == before
            enter()
            assert not any(m.training for m in model.modules())
            assert all(p.requires_grad for p in model.parameters())
            model.norm.running_mean.add_(1)
            model.train()
            enter()  # it is done once
            assert model.head.training and (model.norm.running_mean != 0).all()
            havoc(model)
            if end is not None:
                raise end

    with nullcontext() if end is None else pytest.raises(end):
        work()
    assert snapshot(model) == before


def test_modes_that_are_never_entered_leave_the_model_alone(monkeypatch):
    def never(*_, **__):
        raise AssertionError("entered")

    monkeypatch.setattr(modes, "preserved", never)
    monkeypatch.setattr(modes, "tracing", never)
    model = make()
    with lazily(model):
        model.norm.running_mean.add_(1)
        assert model.norm.training
    assert model.norm.running_mean.tolist() == [1, 1, 1]
    with lazily(model) as enter, pytest.raises(AssertionError):
        enter()


def test_modes_entered_late_leave_the_rest_to_those_around_them(monkeypatch):
    model = make()
    with preserved(model), lazily(model) as enter:
        monkeypatch.setattr(modes, "ModuleState", None)  # nothing is saved once more
        enter()
        assert not model.norm.training
    assert model.norm.training


@pytest.mark.parametrize("enter", [tracing, predicting, preserved, lambda m: preserved(m, again=False)])
@pytest.mark.parametrize("end", [None, Boom, KeyboardInterrupt])
def test_a_state_that_waits_is_taken_before_a_mode_changes_it(enter, end):
    model = make()
    before, random_before = snapshot(model), torch.get_rng_state()

    def work():
        with preserved_when_run(model), enter(model.norm):  # of a part of it: the whole is kept
            torch.rand(3)
            model.norm.running_mean.add_(1)
            havoc(model)
            if end is not None:
                raise end

    with nullcontext() if end is None else pytest.raises(end):
        work()
    assert snapshot(model) == before
    assert torch.equal(torch.get_rng_state(), random_before)


def test_a_state_that_waits_is_that_of_a_model_that_nothing_has_changed():
    model = make()
    before = snapshot(model)
    with preserved_when_run(model.norm), preserved(model):
        model.eval()
        with preserved(model.norm, again=False):
            model.norm.running_mean.add_(1)
    assert snapshot(model) == before


def test_a_state_that_is_not_needed_is_not_taken(monkeypatch):
    monkeypatch.setattr(modes, "ModuleState", None)
    model = make()
    with preserved_when_run(model):
        with predicting(nn.Identity()):  # another model
            pass
        with preserved_when_run(model):
            model.norm.running_mean.add_(1)
    assert model.norm.running_mean.tolist() == [1, 1, 1]
    with preserved_when_run(model), pytest.raises(TypeError), predicting(model):
        pass


def test_a_state_that_waits_stays_with_what_is_kept_around_it(monkeypatch):
    model = make()
    with preserved(model), preserved_when_run(model):
        monkeypatch.setattr(modes, "ModuleState", None)  # nothing is saved once more
        with preserved(model, again=False), predicting(model):
            assert not model.norm.training
    assert model.norm.training
    monkeypatch.undo()
    with preserved(model):  # and nothing stays behind
        model.eval()
    assert model.norm.training


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_results_are_ordinary_before_modes_are_entered_and_after(mode):
    model = make()
    with mode():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        with lazily(model) as enter:
            for _ in range(2):
                assert torch.is_grad_enabled() and not torch.zeros(1).is_inference()
                enter()
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == before


def test_modes_that_cannot_be_entered_say_so_each_time():
    with torch.inference_mode():
        model = nn.Linear(2, 2)
    with lazily(model) as enter:
        for _ in range(2):
            with pytest.raises(ModelError, match=r"made under torch.inference_mode\(\)"):
                enter()
    assert model.training


@pytest.mark.parametrize(
    "work, changed",
    [
        (lambda m: m(torch.randn(4, 3, generator=torch.Generator().manual_seed(0))), False),
        (lambda m: setattr(m, "note", torch.zeros(2)), False),  # another tensor: this one was not written to
        (lambda m: m.note.mul_(1), True),
        (lambda m: m.table.copy_(m.table.clone()), True),
        (lambda m: m.norm.running_mean.data.add_(1), True),
        (lambda m: m.norm.train()(torch.ones(4, 3)), True),
        (lambda m: m.rows(torch.tensor([1])), True),
        (lambda m: torch.rand(1), True),
        (lambda m: nn.Dropout()(torch.ones(3)), True),
    ],
)
def test_what_is_watched(work, changed):
    model = make()
    model.rows = nn.Embedding.from_pretrained(torch.full((2, 3), 9.0), max_norm=1.0)
    watch = Watch(model)
    assert not watch.changed() and not watch.changed()
    with tracing(model):
        work(model)
    assert watch.changed() == changed


def test_what_cannot_be_watched_may_have_changed():
    with torch.inference_mode():
        norm = nn.BatchNorm1d(3)
    assert Watch(norm).changed()


def test_predicting_evaluates_without_gradients():
    model = make()
    with predicting(model):
        assert not any(m.training for m in model.modules())
        assert not model(torch.randn(2, 3)).requires_grad
        assert not model.frozen.weight.requires_grad
    assert torch.is_grad_enabled() and model.norm.training


@pytest.mark.parametrize("mode", [preserved, tracing, predicting])
def test_any_callable_will_do(mode):
    state = torch.get_rng_state()
    with preserved(len), mode(len):
        torch.rand(1)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_bound_method_stands_for_its_module():
    model = make()
    with tracing(model.forward):
        assert not model.norm.training and model.frozen.weight.requires_grad
    assert model.norm.training


def test_an_object_names_its_modules_as_roots():
    class Pair:
        def __init__(self):
            self.roots = (nn.Dropout(), nn.Linear(1, 1))

    pair = Pair()
    with tracing(pair):
        assert not any(m.training for m in pair.roots)
    assert all(m.training for m in pair.roots)


def test_buffers_made_in_inference_mode_come_back():
    with torch.inference_mode():
        norm = nn.BatchNorm1d(3)
    with preserved(norm), torch.inference_mode():
        norm.running_mean.add_(1)
    assert norm.running_mean.tolist() == [0, 0, 0]


def test_lazy_modules_can_be_preserved():
    model = nn.LazyBatchNorm1d()
    buffer = model.running_mean
    with preserved(model):
        pass
    assert model.running_mean is buffer


def test_compiled_models_run_eagerly_in_tracing():
    model = nn.Linear(2, 2)

    def never(*_):
        raise AssertionError("compiled")

    compiled = torch.compile(model, backend=never)
    with tracing(compiled):
        assert compiled(torch.zeros(1, 2)).shape == (1, 2)
        assert not model.training
    assert model.training and compiled.training


def test_nothing_is_imported_to_run_eagerly(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    with modes.eager():
        pass
    assert "torch._dynamo" not in sys.modules


def test_recurrent_layers_on_a_gpu_leave_cudnn(monkeypatch):
    layer = nn.GRU(1, 1)
    monkeypatch.setattr(layer, "parameters", lambda recurse=True: [type("Parameter", (), {"is_cuda": True})()])
    monkeypatch.setattr(torch.backends.cudnn, "enabled", True)
    with pytest.raises(Boom), modes.without_cudnn([layer]):
        assert not torch.backends.cudnn.enabled
        raise Boom
    assert torch.backends.cudnn.enabled
    with modes.without_cudnn([nn.GRU(1, 1), nn.Linear(1, 1)]):
        assert torch.backends.cudnn.enabled


def test_preserving_is_cheap():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    best = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        with preserved(model):
            pass
        best = min(best, time.perf_counter() - start)
    assert best < 2e-3  # 0.2 ms on the slowest machine it was tried on


@pytest.fixture
def tf32():
    """Sets TF32 for matrix products and convolutions; both are put back."""
    places = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [place.allow_tf32 for place in places]

    def put(*flags):
        for place, flag in zip(places, flags, strict=True):
            place.allow_tf32 = flag

    yield put
    put(*before)


@pytest.mark.parametrize("matmul", [False, True])
@pytest.mark.parametrize("cudnn", [False, True])
@pytest.mark.parametrize("end", [None, Boom, KeyboardInterrupt])
def test_full_products_have_all_digits_and_the_switches_come_back(tf32, matmul, cudnn, end):
    tf32(matmul, cudnn)

    def work():
        with modes.full_products():
            assert not torch.backends.cuda.matmul.allow_tf32
            assert not torch.backends.cudnn.allow_tf32
            if end is not None:
                raise end

    if end is None:
        work()
    else:
        with pytest.raises(end):
            work()
    assert torch.backends.cuda.matmul.allow_tf32 is matmul
    assert torch.backends.cudnn.allow_tf32 is cudnn


def test_full_products_may_stand_in_each_other(tf32):
    tf32(True, True)
    with modes.full_products():
        with modes.full_products():
            pass
        assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32


class Away(torch.Tensor):
    """A tensor that says it is on an accelerator, and is not."""

    device = property(lambda self: torch.device("cuda", 0))


def away(values, dtype=torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).as_subclass(Away)


def test_values_on_an_accelerator_are_kept_together():
    tensors = [away([1.0, 2.0]), away([[3.0], [4.0]]), away([5], torch.int64), torch.zeros(2), away(6.0)]
    values = modes.state.Values(tensors)
    assert [[m.tolist() for m in members] for members, _, _ in values.groups] == [[[1, 2], [[3], [4]], 6], [[5]]]
    assert [now is tensors[3] for now, _ in values.alone] == [True]
    before = [t.tolist() for t in tensors]
    versions = [t._version for t in tensors]
    values.restore()
    assert [t._version for t in tensors] == versions
    for t in tensors:
        t.add_(1)
    values.restore()
    assert [t.tolist() for t in tensors] == before


def test_of_values_kept_together_all_are_compared_before_the_first_answer_is_waited_for(monkeypatch):
    done = []

    class Answer:
        def __bool__(self):
            done.append("waited")
            return True

    values = modes.state.Values([away([1.0, 2.0]), away([5], torch.int64), away([True], torch.bool)])
    monkeypatch.setattr(modes.state, "_same", lambda now, then: done.append("compared") or Answer())
    values.restore()
    assert done == ["compared"] * 3 + ["waited"] * 3


def test_of_values_kept_together_only_those_that_changed_are_written_to():
    tensors = [away([1.0, 2.0]), away([3.0]), away([4.0])]
    values = modes.state.Values(tensors)
    tensors[1].mul_(2)
    versions = [t._version for t in tensors]
    values.restore()
    assert [t._version - v for t, v in zip(tensors, versions, strict=True)] == [0, 1, 0]
    assert [t.tolist() for t in tensors] == [[1, 2], [3], [4]]


def test_of_values_kept_together_nan_equals_nan():
    nan = float("nan")
    tensors = [away([1.0, nan]), away([nan])]
    values = modes.state.Values(tensors)
    versions = [t._version for t in tensors]
    values.restore()
    assert [t._version for t in tensors] == versions
    tensors[0].copy_(torch.tensor([nan, nan]))  # one NaN that was there, and one that was not
    version = tensors[1]._version
    values.restore()
    assert tensors[0][0] == 1 and tensors[0][1].isnan() and tensors[1].isnan().all()
    assert tensors[1]._version == version


@pytest.mark.parametrize("other", [[0.0], [7.0, 7.0, 7.0], [[1.0, 2.0]], []])
def test_of_values_kept_together_one_of_another_shape_comes_back(other):
    """Also where all values together are as many, or the same."""
    tensors = [away([1.0, 2.0]), away([3.0])]
    values = modes.state.Values(tensors)
    version = tensors[1]._version
    tensors[0].data = away(other)
    values.restore()
    assert [t.tolist() for t in tensors] == [[1, 2], [3]]
    assert tensors[1]._version == version


def test_values_kept_together_may_swap_their_shapes():
    tensors = [away([1.0, 2.0]), away([3.0])]
    values = modes.state.Values(tensors)
    tensors[0].data, tensors[1].data = away([1.0]), away([2.0, 3.0])
    values.restore()
    assert [t.tolist() for t in tensors] == [[1, 2], [3]]


def test_values_kept_together_may_be_none_and_their_type_comes_back():
    modes.state.Values([]).restore()
    tensors = [away([1.0, 2.0]), away([3.0])]
    values = modes.state.Values(tensors)
    tensors[0].data = away([1, 2], torch.float64)
    values.restore()
    assert tensors[0].dtype == torch.float32 and tensors[0].tolist() == [1, 2]


def test_what_is_kept_is_a_copy():
    one = away([1.0])
    values = modes.state.Values([one])
    one.fill_(9)
    values.restore()
    assert one.tolist() == [1]


def test_values_made_in_inference_mode_come_back_together():
    with torch.inference_mode():
        one = away([1.0, 2.0])
        values = modes.state.Values([one, away([3.0])])
        one.add_(1)
    values.restore()
    assert one.tolist() == [1, 2]


def test_work_is_given_up_before_a_forward_pass_and_the_model_is_put_back():
    passes = []

    class Counted(nn.Sequential):
        def forward(self, x):
            passes.append(len(x))
            return super().forward(x)

    model = Counted(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)).train()
    model[0].requires_grad_(False)
    before, flags = copy.deepcopy(model.state_dict()), [p.requires_grad for p in model.parameters()]
    x = torch.randn(1, 3)
    state = torch.get_rng_state()
    with pytest.raises(Stopped), stopping(lambda: len(passes) >= 2):
        nescio.explain(nescio.posteriors.InsertedDropout(model, samples=5), x, progress=False)
    assert len(passes) == 2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)
    nescio.explain(nescio.posteriors.InsertedDropout(model, samples=5), x, progress=False)
    assert len(passes) > 2
