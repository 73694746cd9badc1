import pytest
import torch
from torch import nn

from nescio.models import Classifier
from nescio.modes import predicting, preserved, tracing
from nescio.types import InputError, ModelError
from tests.models.examples import Text, conv, mlp, never

# what a classifier knows of its model


def test_wrappers_are_seen_through():
    model = mlp()
    names = [name for name, _ in model.named_parameters()]
    for outer in (model, nn.DataParallel(model), torch.compile(model), torch.compile(nn.DataParallel(model))):
        classifier = Classifier(outer)
        assert classifier.module is model and classifier.name == "Sequential"
        assert list(classifier.parameters()) == names
        assert all(classifier.parameters()[name] is p for name, p in model.named_parameters())
        assert classifier.roots == (outer,)
        x = torch.randn(2, 3)
        with tracing(classifier):
            assert torch.equal(classifier.logits(x), model(x))


def test_a_compiled_model_stays_compiled_when_it_predicts():
    calls = []

    def backend(graph, _):
        calls.append(graph)
        return graph.forward

    model = mlp()
    classifier = Classifier(nn.DataParallel(torch.compile(model, backend=backend)))
    x = torch.randn(2, 3)
    with tracing(classifier):
        classifier.logits(x)
    assert not calls
    with preserved(classifier), predicting(classifier):
        assert torch.allclose(classifier.logits(x), model(x))
    assert calls


def test_a_bound_method_is_a_model_with_parameters():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def classify(self, x):
            return self.body(x)

    model = Two()
    classifier = Classifier(model.classify)
    assert classifier.module is model and "body.0.weight" in classifier.parameters()
    zero = {name: torch.zeros_like(p) for name, p in classifier.parameters().items()}
    assert classifier.functional(zero, torch.randn(2, 3)).abs().sum() == 0


def test_a_plain_callable_has_no_parameters():
    def rule(x):
        return torch.stack([x.sum(1), -x.sum(1)], 1)

    classifier = Classifier(rule)
    assert classifier.module is None and classifier.parameters() == {} and classifier.roots == ()
    assert classifier.device is None and classifier.dtype is None and classifier.name == "rule"
    x = classifier.prepare(torch.ones(2, 3, dtype=torch.float64))
    assert classifier.logits(x).tolist() == [[3, -3], [3, -3]]
    with pytest.raises(ModelError, match=r"expected a torch.nn.Module, whose parameters can be replaced"):
        classifier.functional({}, x)


def test_device_and_type_are_those_of_the_first_floating_tensor():
    model = nn.Module()
    model.register_buffer("ids", torch.arange(3))
    assert Classifier(model).dtype is None
    model.register_buffer("scale", torch.zeros(1, dtype=torch.bfloat16))
    assert Classifier(model).dtype == torch.bfloat16 and Classifier(model).device == torch.device("cpu")


def test_only_real_floating_parameters_count():
    model = mlp()
    model.codes = nn.Parameter(torch.arange(2), requires_grad=False)
    assert "codes" not in Classifier(model).parameters()
    model.waves = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(ModelError, match=r"expected real parameters, got complex ones: waves; .*torch\.complex"):
        Classifier(model).parameters()


def test_of_keeps_a_classifier():
    classifier = Classifier(mlp(), output="probabilities")
    assert Classifier.of(classifier) is classifier
    assert Classifier.of(classifier, output="probabilities") is classifier
    assert Classifier.of(mlp(), output="binary").output == "binary"
    assert Classifier.of(mlp()).output == "logits"
    with pytest.raises(ModelError, match="expected output='probabilities' as this Classifier was made with, got 'log"):
        Classifier.of(classifier, output="logits")
    assert repr(classifier) == "Classifier(Sequential, output='probabilities')"


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("resnet18", {}, r"got an object of type str; load it with nescio.models.load\('package.module:factory'"),
        ({"weight": torch.zeros(1)}, {}, "weights alone are no model: build the module"),
        (None, {}, "expected a model that can be called, got None; give a torch.nn.Module"),
        (nn.Linear, {}, r"got the class Linear; make one: Linear\(...\)"),
        (mlp(), {"output": "softmax"}, "one of logits, probabilities, binary, dense, got 'softmax'"),
        (mlp(), {"preprocess": 3}, "preprocess to be a function of a batch of inputs, got an object of type int"),
        (nn.LazyLinear(2), {}, r"lazy layers without weights \('weight', 'bias'\); call the model once"),
        (nn.Linear(2, 2, device="meta"), {}, r"tensors on the meta device \('weight', 'bias'\)"),
    ],
)
def test_what_is_no_model_is_refused_in_words(model, options, words):
    with pytest.raises(ModelError, match=words):
        Classifier(model, **options)


# preparing inputs


def test_inputs_take_the_models_type_but_integers_stay():
    classifier = Classifier(mlp().double())
    assert classifier.prepare(torch.zeros(2, 3)).dtype == torch.float64
    assert classifier.prepare(torch.zeros(2, 3).numpy()).dtype == torch.float64
    ids = torch.zeros(2, 3, dtype=torch.long)
    mixed = Classifier(Text().half()).prepare({"input_ids": ids, "attention_mask": torch.zeros(2, 3)})
    assert mixed["input_ids"].dtype == torch.long and mixed["attention_mask"].dtype == torch.half
    assert Classifier(mlp()).prepare(torch.zeros(0, 3)).shape == (0, 3)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({1: float("nan")}, r"finite inputs, got NaN or infinite values for input 1; leave those out"),
        ({1: float("inf"), 3: float("-inf")}, r"for inputs 1, 3;"),
        (dict.fromkeys(range(13), float("nan")), r"for inputs 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more;"),
    ],
)
def test_inputs_that_are_not_finite_are_named(bad, words):
    x = torch.zeros(14, 3)
    for row, value in bad.items():
        x[row, 2] = value
    with pytest.raises(InputError, match=words):
        Classifier(mlp()).prepare(x)
    with pytest.raises(InputError, match="in entry 'x' for"):
        Classifier(mlp()).prepare({"x": x})


def test_a_mask_may_hold_minus_infinity():
    mask = torch.tensor([[0.0, float("-inf")]])
    assert Classifier(Text()).prepare({"attention_mask": mask})["attention_mask"].isinf().sum() == 1
    with pytest.raises(InputError, match="in entry 'attention_mask' for input 0"):
        Classifier(Text()).prepare({"attention_mask": -mask})


def test_inputs_that_overflow_in_the_models_type_are_named():
    words = r"within the range of the model's torch.float16, got larger ones for input 1; scale them"
    with pytest.raises(InputError, match=words):
        Classifier(mlp().half()).prepare(torch.tensor([[0.0, 0, 0], [0, 1e6, 0]]))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([[1.0, 2.0], [1.0]], "got a list of 2 rows of different lengths"),
        (None, "got None as the input"),
        (torch.zeros(2, 3, device="meta"), "expected inputs with values, got .* on the meta device"),
        (torch.tensor(1.0), "without dimensions"),
        ({"a": torch.zeros(1), "b": torch.zeros(2)}, "first dimensions 'a': 1, 'b': 2"),
    ],
)
def test_what_is_no_input_is_refused(x, words):
    with pytest.raises(InputError, match=words):
        Classifier(mlp()).prepare(x)


# logits


def test_one_input_and_no_input():
    classifier = Classifier(conv().eval())
    assert classifier.logits(torch.randn(1, 3, 8, 8)).shape == (1, 2)
    assert classifier.logits(torch.zeros(0, 3, 8, 8)).shape == (0, 2)
    text = {"input_ids": torch.zeros(0, 4, dtype=torch.long), "attention_mask": torch.zeros(0, 4)}
    assert Classifier(Text()).logits(text).shape == (0, 3)


def test_keyword_inputs_reach_the_model():
    model = Text()
    ids, mask = torch.tensor([[1, 2], [3, 4]]), torch.ones(2, 2)
    z = Classifier(model).logits({"attention_mask": mask, "input_ids": ids})
    assert torch.equal(z, model(ids, mask))


def test_preprocessing_comes_before_the_model():
    model = mlp()
    classifier = Classifier(model, preprocess=lambda x: x * 2 - 1)
    x = torch.randn(2, 3)
    assert torch.equal(classifier.logits(x), model(x * 2 - 1))
    dropout = nn.Dropout(0.5)
    with tracing(Classifier(model, preprocess=dropout)):
        assert not dropout.training
    assert dropout.training


def test_logits_are_differentiable_in_parameters_and_inputs():
    model = mlp()
    x = torch.randn(2, 3, requires_grad=True)
    z = Classifier(model).logits(x)
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(z.logsumexp(1).sum(), [x, model[0].weight]))


def test_a_model_that_works_in_place_leaves_the_input_alone():
    classifier = Classifier(nn.Sequential(nn.ReLU(inplace=True), mlp()))
    x = torch.full((2, 3), -1.0)
    classifier.logits(x)
    assert (x == -1).all()
    leaf = x.clone().requires_grad_()
    classifier.logits(leaf).sum().backward()


def test_inputs_made_in_inference_mode_can_have_gradients():
    with torch.inference_mode():
        x = torch.randn(2, 3)
    model = mlp()
    with tracing(model):
        z = Classifier(model).logits(x)
        assert torch.autograd.grad(z.sum(), model[0].weight)[0].abs().sum() > 0


def test_batch_norm_without_statistics_is_refused_for_any_batch():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)).eval()
    words = r"batch-norm without running statistics in '1'; build it with track_running_stats=True"
    for count in (0, 1, 2):
        with pytest.raises(ModelError, match=words):
            Classifier(model).logits(torch.randn(count, 3))


# functional


def test_functional_gives_the_same_with_the_same_parameters():
    for model, x in ((mlp(), torch.randn(2, 3)), (conv().eval(), torch.randn(2, 3, 8, 8))):
        classifier = Classifier(model)
        assert torch.equal(classifier.functional(classifier.parameters(), x), classifier.logits(x))
        assert torch.equal(classifier.functional({}, x), classifier.logits(x))


@pytest.mark.parametrize("output", ["logits", "probabilities"])
def test_functional_gives_gradients_of_each_input_under_torch_func(output):
    model = (mlp() if output == "logits" else nn.Sequential(*mlp(), nn.Softmax(1))).double()
    classifier = Classifier(torch.compile(model), output=output)
    x = torch.randn(3, 3, dtype=torch.float64)
    params = {name: p.detach() for name, p in classifier.parameters().items()}

    def log_probability(params, one):
        return classifier.functional(params, one[None]).log_softmax(1)[0, 1]

    each = torch.func.vmap(torch.func.grad(log_probability), in_dims=(None, 0))(params, x)
    for i in range(3):
        z = classifier.functional({}, x[i : i + 1])
        alone = torch.autograd.grad(z.log_softmax(1)[0, 1], list(classifier.parameters().values()))
        for name, expected in zip(params, alone, strict=True):
            assert torch.allclose(each[name][i], expected, rtol=1e-9, atol=1e-15)


def test_functional_runs_compiled_parts_eagerly():
    model, x = mlp(), torch.randn(2, 3)
    expected = model(x)
    model[2] = torch.compile(model[2], backend=never)
    compiled = torch.compile(model, backend=never)
    for outer in (model, compiled, nn.DataParallel(compiled)):
        classifier = Classifier(outer)
        assert list(classifier.parameters())[-1] == "2.bias"
        assert torch.equal(classifier.functional(classifier.parameters(), x), expected)


def test_functional_puts_everything_back_after_an_error():
    model = mlp()
    originals = dict(model.named_parameters())
    with pytest.raises(InputError):
        Classifier(model).functional({"0.weight": torch.zeros(5, 3)}, torch.zeros(2, 9))
    assert all(p is originals[name] for name, p in model.named_parameters())
    assert not any(m._forward_hooks for m in model.modules())


def test_functional_checks_shapes():
    with pytest.raises(ModelError, match="say output='binary'"):
        Classifier(nn.Linear(2, 1)).functional({}, torch.zeros(2, 2))


@pytest.mark.filterwarnings("ignore")  # of TorchScript, that it will be gone
def test_torchscript_models_predict():
    model = mlp()
    classifier = Classifier(torch.jit.script(model))
    x = torch.randn(2, 3)
    with preserved(classifier), predicting(classifier):
        assert torch.allclose(classifier.logits(x), model(x))
    assert list(classifier.parameters()) == [name for name, _ in model.named_parameters()]
