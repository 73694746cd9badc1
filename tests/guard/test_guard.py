import copy

import pytest
import torch
from torch import nn

import nescio
from nescio import Guard
from nescio.guard import Strangeness
from nescio.types import InputError, ModelError
from tests.guard.conftest import FEW, conv, mlp, pictures, vectors

pytestmark = pytest.mark.filterwarnings(FEW)


def state(model):
    """Everything of a model that a guard must leave as it was."""
    return (
        [value.clone() for value in model.state_dict().values()],
        [(p.requires_grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()],
        [(module.training, len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()],
        torch.get_rng_state(),
    )


def equal(one, two):
    return (
        all(map(torch.equal, one[0], two[0]))
        and all(a[0] == b[0] and (a[1] is b[1] or torch.equal(a[1], b[1])) for a, b in zip(one[1], two[1], strict=True))
        and one[2] == two[2]
        and torch.equal(one[3], two[3])
    )


@pytest.mark.parametrize("count", [60, 410])
def test_the_verdict_is_the_rank_of_the_sum_of_the_votes(count):
    guard, new = Guard(mlp()).fit(vectors(count)), vectors(30, seed=1)
    own = guard.check(new)
    ranks = count if count < 400 else count // 2
    assert own.ranks == ranks
    assert own.wrong is None
    assert bool(((own.p_value * (ranks + 1)).frac().sub(0.5).abs() > 0.499).all())
    assert own.p_value.min() >= 1 / (ranks + 1)
    torch.testing.assert_close(own.score, sum(own.votes.values()))
    with torch.no_grad():
        p = mlp()(new).softmax(1)
    assert torch.equal(own.predicted, p.argmax(1))
    torch.testing.assert_close(own.confidence, p.amax(1))


def test_what_is_far_away_is_foreign_and_what_is_like_the_reference_mostly_not():
    guard = Guard(mlp()).fit(vectors(500))
    assert bool(guard.check(20 + vectors(50, seed=1)).foreign(0.05).all())
    assert float(guard.check(vectors(400, seed=2)).foreign(0.05).double().mean()) < 0.1
    words = guard.check(torch.full((1, 6), 30.0, dtype=torch.float64)).words()[0]
    assert words.endswith("are unlike anything in the reference (further out than 250 of 250).")


@pytest.mark.parametrize(("kind", "size"), [(vectors, 7), (vectors, 60), (pictures, 13)])
def test_neither_the_order_of_the_reference_nor_its_batches_matter(kind, size):
    x, new, model = kind(50), kind(8, seed=1), mlp() if kind is vectors else conv().eval()
    one = Guard(model).fit(x).check(new)
    two = Guard(model).fit(x[torch.randperm(50)].split(size)).check(new)
    assert torch.equal(one.p_value, two.p_value)
    torch.testing.assert_close(one.score, two.score)


@pytest.mark.parametrize("size", [1, 5, 12])
def test_neither_the_order_of_new_inputs_nor_their_batches_matter(size):
    guard, new, order = _fitted(), vectors(12, seed=1), torch.randperm(12)
    one, two = guard.check(new), guard.check(list(new[order].split(size)), chunk=5)
    assert torch.equal(one.p_value[order], two.p_value)
    torch.testing.assert_close(one.score[order], two.score)
    assert [one.words()[i] for i in order] == two.words()


def _fitted(guards={}):  # noqa: B006  # fitted once for all examples
    return guards.setdefault("mlp", Guard(mlp()).fit(vectors(120)))


def test_copies_in_the_reference_count_once():
    x, new = vectors(50), vectors(8, seed=1)
    one = Guard(mlp()).fit(x).check(new)
    with pytest.warns(UserWarning, match="60 of 110 inputs of the reference are copies of others and count once: 50"):
        two = Guard(mlp()).fit(torch.cat([x, x, x[:10]])).check(new)
    assert torch.equal(one.p_value, two.p_value)


def test_an_input_of_the_reference_is_known_where_it_gives_a_rank():
    x = vectors(60)
    p = Guard(mlp()).fit(x).check(x).p_value
    assert float(p.min()) >= 2 / 61  # it ties with itself at least


def test_another_seed_is_another_split():
    new = vectors(20, seed=1)
    one, two = (Guard(mlp()).fit(vectors(60), seed=seed).check(new).score for seed in (0, 1))
    assert not torch.equal(one, two)


@pytest.mark.parametrize("training", [False, True])
def test_the_model_is_left_as_it_was(training):
    model = conv().train(training)
    model[0].weight.requires_grad_(False)
    model[3].weight.grad = torch.ones_like(model[3].weight)
    before = state(model)
    guard = Guard(model).fit(pictures(40))
    assert equal(before, state(model))
    guard.check(pictures(5))
    assert equal(before, state(model))


@pytest.mark.parametrize("at", [0, 1, 3])
def test_also_after_an_exception(at):
    model = conv().train()
    calls = []

    def fail(module, args):
        calls.append(1)
        if len(calls) > at:
            raise RuntimeError("a power cut")

    handle = model[3].register_forward_pre_hook(fail)
    before = state(model)
    with pytest.raises(Exception, match="a power cut"):
        Guard(model).fit(pictures(80).split(10))
    assert equal(before, state(model))
    handle.remove()
    guard = Guard(model).fit(pictures(40))
    handle = model[3].register_forward_pre_hook(fail)
    before = state(model)
    with pytest.raises(Exception, match="a power cut"):
        guard.check(pictures(80).split(5))
    assert equal(before, state(model))
    handle.remove()


class Overflowing(nn.Module):
    """Zeros beside an infinite number where the input is large; the number is gone before the next layer."""

    def forward(self, x):
        return torch.where(x > 50, torch.inf, x)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_an_overflow_in_a_layer_is_named(on_gpu, monkeypatch):
    model = nn.Sequential(Overflowing(), nn.Hardtanh(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    guard = Guard(model).fit(vectors(60))
    usual = guard.check(vectors(5, seed=1))
    monkeypatch.setattr(Guard, "_works_on_gpu", lambda self: on_gpu)
    assert torch.equal(guard.check(vectors(5, seed=1)).score, usual.score)
    with pytest.raises(ModelError, match="expected finite activations from '0', got NaN or infinite ones"):
        guard.check(99 + vectors(5, seed=1))


class Masking(nn.Module):
    """Leaves a class out for inputs that lie far out."""

    def __init__(self):
        super().__init__()
        self.net = mlp()

    def forward(self, x):
        z = self.net(x)
        return z.masked_fill(
            (x.mean(1, keepdim=True) > 50) & (torch.arange(3) == z.argmin(1, keepdim=True)), -torch.inf
        )


@pytest.mark.parametrize("on_gpu", [False, True])
def test_logits_that_are_not_finite_are_told_of_also_where_the_score_is(on_gpu, monkeypatch):
    guard = Guard(Masking()).fit(vectors(60))
    monkeypatch.setattr(Guard, "_works_on_gpu", lambda self: on_gpu)
    with pytest.raises(ModelError, match="expected finite logits"):
        guard.check(99 + vectors(5, seed=1))


def counted(model):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    return calls


def test_a_score_with_others_shares_the_forward_pass():
    model = mlp()
    guard, new = Guard(model).fit(vectors(60)), vectors(10, seed=1)
    calls = counted(model)
    nescio.score(model, new, "entropy")
    alone = len(calls)
    calls.clear()
    found = nescio.score(model, new, ["entropy", guard])
    assert len(calls) == alone == 1
    assert list(found) == ["entropy", "guard"]
    assert torch.equal(found["guard"], guard.check(new).score)
    assert torch.equal(found["entropy"], nescio.score(model, new, "entropy"))
    calls.clear()
    guard.check(new)
    assert len(calls) == 1


def test_a_score_of_another_model_is_refused():
    guard, new = Guard(mlp()).fit(vectors(60)), vectors(10, seed=1)
    assert len(nescio.score(mlp(), new, guard)) == 10  # the same weights
    other = mlp()
    nn.init.zeros_(other[0].bias)
    for model in (other, nescio.Classifier(guard.classifier.model, preprocess=lambda x: 2 * x), lambda x: x):
        with pytest.raises(ModelError, match="expected the model that the guard was fitted with"):
            nescio.score(model, new, ["entropy", guard])


def test_a_model_that_was_changed_since_the_fit_is_refused():
    model = mlp()
    guard, new = Guard(model).fit(vectors(60)), vectors(5)
    before = guard.check(new).p_value
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(ModelError, match="they have changed since; fit it again"):
        guard.check(new)
    with pytest.raises(ModelError, match="they have changed since; fit it again"):
        nescio.score(model, new, guard)
    with torch.no_grad():
        model[0].weight.div_(2)
    assert torch.equal(guard.check(new).p_value, before)


def test_with_labels_it_also_says_how_likely_the_answer_is_wrong():
    x = vectors(300)
    with torch.no_grad():
        p = mlp()(x).softmax(1)
    wrong = p.amax(1) < p.amax(1).median()
    y = torch.where(wrong, (p.argmax(1) + 1) % 3, p.argmax(1))
    guard = Guard(mlp()).fit((x, y))
    own = guard.check(x)
    assert float(own.wrong.probability[wrong].mean()) > 0.9
    assert float(own.wrong.probability[~wrong].mean()) < 0.1
    assert bool((own.wrong.low <= own.wrong.probability).all())
    assert bool((own.wrong.probability <= own.wrong.high).all())
    unlabelled = Guard(mlp()).fit(x).check(x)
    assert torch.equal(own.p_value, unlabelled.p_value)  # two questions
    assert Guard(mlp()).fit([(x[:150], y[:150]), x[150:]]).check(x).wrong is None


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (vectors(19), "at least 20 different inputs, got 19 .of 19.; give some hundred"),
        (vectors(1).repeat(90, 1), "at least 20 different inputs, got 1 .of 90."),
        (vectors(0), "got none; give some hundred"),
        ([], "got none; give some hundred"),
        ("photos/", "load the file first"),
        ((vectors(40), torch.full((40,), 3)), "class indices from 0 to 2, as the model has 3 classes, got 3"),
        ((vectors(40), torch.full((40,), -1)), "expected class indices from 0"),
        (torch.where(torch.arange(40)[:, None] == 7, torch.nan, vectors(40)), "NaN or infinite values for input 7"),
        (
            [vectors(30), vectors(30, width=7)],
            r"inputs of one shape, \[6\] as the first of the reference, got a tensor",
        ),
    ],
)
def test_a_reference_that_cannot_be_used(reference, words):
    with pytest.raises(InputError, match=words):
        Guard(mlp()).fit(reference)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (vectors(3, width=7), r"expected inputs of shape \[6\] as in the reference, got a tensor of float64 and shape"),
        (
            torch.ones(3, 6, dtype=torch.long),
            r"expected inputs of shape \[6\] as in the reference, got a tensor of int",
        ),
        ({"x": vectors(3)}, r"expected inputs of shape \[6\] as in the reference, got a mapping"),
        (vectors(3).flatten(), r"expected inputs of shape \[6\]"),
        (vectors(0), "at least one input to check, got none"),
        (torch.full((2, 6), torch.nan, dtype=torch.float64), "NaN or infinite values for inputs 0, 1"),
        (None, "expected a tensor"),
    ],
)
def test_inputs_that_cannot_be_checked(x, words):
    with pytest.raises(InputError, match=words):
        _fitted().check(x)


def test_before_the_fit_it_says_what_to_do():
    guard = Guard(mlp())
    assert repr(guard) == "Guard(Sequential, doubt, strangeness, appearance; not fitted)"
    with pytest.raises(InputError, match=r"guard\.fit\(reference\)"):
        guard.check(vectors(3))
    with pytest.raises(InputError, match=r"guard\.fit\(reference\)"):
        nescio.score(mlp(), vectors(3), guard)
    assert repr(_fitted()).endswith("fitted to 120 inputs)")


def test_a_guard_that_sees_the_doubt_alone_says_so():
    blind = Guard(lambda x: x.flatten(1)[:, :3]).fit(torch.rand(60, 1, 4, 4), nuisances=None)
    assert ", doubt; fitted to" in repr(blind)


def test_witnesses_that_are_none_are_refused():
    for wrong in ((), ("doubt", "doubt"), ("eyes",), (3,)):
        with pytest.raises(InputError, match="witness"):
            Guard(mlp(), witnesses=wrong)
    with pytest.raises(InputError, match="expected the name of a method"):
        Guard(mlp(), doubt="eyes")
    guard = Guard(mlp(), witnesses=("doubt", Strangeness(neighbours=2))).fit(vectors(40))
    assert list(guard.check(vectors(2)).witnesses) == ["doubt", "strangeness"]


def test_a_small_reference_is_said_to_be_small():
    with pytest.warns(UserWarning, match="the reference has 60 different inputs; below 300"):
        guard = Guard(mlp()).fit(vectors(60))
    with pytest.raises(InputError, match=r"at least 100 ranks for a level of 0\.05, got 60"):
        guard.check(vectors(2)).foreign(0.05)
    assert guard.check(vectors(2)).foreign(0.1).shape == (2,)


def test_harmless_changes_are_taken_where_the_answer_stays():
    model, x = conv().eval(), pictures(80)
    guard = Guard(model).fit(x)
    assert 0 < guard.fitted.copies <= 80
    assert Guard(model).fit(x, nuisances=None).fitted.copies == 0
    assert Guard(mlp()).fit(vectors(40)).fitted.copies == 0
    own = Guard(mlp()).fit(vectors(40), nuisances=[lambda v: 1.001 * v])
    assert own.fitted.copies == 40
    new = pictures(30, seed=5)
    plain = Guard(model).fit(x, nuisances=None).check(new).p_value
    assert not torch.equal(guard.check(new).p_value, plain)
    opposite = Guard(mlp()).fit(vectors(40), nuisances=[lambda v: -v])
    with torch.no_grad():
        stays = mlp()(-vectors(40)).argmax(1) == mlp()(vectors(40)).argmax(1)
    assert opposite.fitted.copies == int(stays.sum()) < 40


def test_a_deep_copy_of_the_model_has_the_same_weights(tmp_path):
    model = mlp()
    guard = Guard(model).fit(vectors(40))
    guard.save(tmp_path)
    again = Guard.load(tmp_path, copy.deepcopy(model))
    assert torch.equal(again.check(vectors(3)).p_value, guard.check(vectors(3)).p_value)


@pytest.mark.filterwarnings("ignore:the reference has")
def test_inputs_of_one_group_do_not_vouch_for_each_other():
    """Twelve centres far apart, 34 inputs around each: a new centre is foreign only if groups are not told."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).eval()
    centres = 3 * torch.randn(20, 6)
    reference = (centres[:12, None] + 0.05 * torch.randn(12, 34, 6)).flatten(0, 1)
    groups = [f"group {i}" for i in range(12) for _ in range(34)]
    new = (centres[12:, None] + 0.05 * torch.randn(8, 5, 6)).flatten(0, 1)
    alone = Guard(model).fit(reference).check(new)
    grouped = Guard(model).fit(reference, groups=groups).check(new)
    assert float((alone.p_value <= 0.05).double().mean()) > 0.6
    assert float((grouped.p_value <= 0.05).double().mean()) < 0.3
    order = torch.randperm(len(reference))
    again = Guard(model).fit(reference[order], groups=[groups[i] for i in order.tolist()]).check(new)
    torch.testing.assert_close(again.p_value, grouped.p_value)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"] * 7, "expected a group for each of 60 inputs of the reference, got 7 groups"),
        (["a"] * 60, "expected inputs of at least 5 groups, got 1"),
    ],
)
def test_groups_that_do_not_fit_are_refused(groups, message):
    with pytest.raises(InputError, match=message):
        Guard(torch.nn.Linear(4, 3)).fit(torch.randn(60, 4), groups=groups)
