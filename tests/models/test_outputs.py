import collections
import warnings

import pytest
import torch
from torch import nn

import nescio
from nescio.models import Classifier
from nescio.modes import predicting
from nescio.types import ModelError
from tests.models.examples import Returns, mlp, never

# where the logits are


Pair = collections.namedtuple("Pair", ["aux", "logits"])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda z: (z, "features"),
        lambda z: [z],
        lambda z: {"logits": z, "features": z * 2},
        lambda z: {"out": z, "name": "model"},
        lambda z: Pair(z * 2, z),
        lambda z: ({"logits": z}, z * 2),
    ],
)
def test_logits_are_found_in_what_the_model_returns(wrap):
    model, x = Returns(wrap), torch.randn(2, 3)
    assert torch.equal(Classifier(model).logits(x), model.body(x))


def test_classes_of_each_input_are_refused():
    def own(x):
        return [torch.zeros(3 + i) for i in range(len(x))]

    with pytest.raises(
        ModelError, match=r"a list of 2 tensors with 3 to 4 numbers.*give the model one list of classes"
    ):
        Classifier(own).logits(torch.randn(2, 3))


def test_other_classes_in_another_batch_are_refused():
    def growing(x):
        return torch.zeros(len(x), 1 + len(x))

    with pytest.raises(ModelError, match="expected the 3 classes of the batch before in every batch, got 4"):
        nescio.score(growing, [torch.randn(2, 3), torch.randn(3, 3)], "entropy")


def test_hugging_face_outputs_are_understood():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config).eval()
    classifier = Classifier(model)
    batch = classifier.prepare({"input_ids": torch.arange(8).reshape(2, 4), "attention_mask": torch.ones(2, 4).long()})
    z = classifier.logits(batch)
    assert z.shape == (2, 3) and torch.equal(z, model(**batch).logits)


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (lambda z: z[:, :, None, None], r"got a tensor of float32 and shape \[2, 4, 1, 1\]; a model that classifies"),
        (lambda z: z[:, 0], r"shape \[2\]; for a model with one logit for two classes say output='binary'"),
        (lambda z: z[:, :1], r"shape \[2, 1\]; for a model with one logit for two classes say output='binary'"),
        (lambda z: z[:, :0], r"shape \[2, 0\]; a classifier has at least two classes"),
        (lambda z: z[0], r"shape \[4\]; keep the first dimension"),
        (lambda z: z.sum(), r"shape \[\]; a classifier has at least two classes"),
        (lambda z: z[:1], r"N = 2 rows .* shape \[1, 4\]; give the model's output one row for each input"),
        (lambda z: z.argmax(1), r"of int64 and shape \[2\]; return the scores of the classes, not the index"),
        (lambda z: "cat", "expected the model to return logits .*, got an object of type str"),
        (lambda z: None, "got None; return a tensor"),
        (lambda z: (), "got a tuple of 0 items"),
        (lambda z: {"a": z, "b": z}, r"an entry 'logits' or 'out' or a single tensor, got a mapping \{'a'.*'b'"),
        (lambda z: z / torch.tensor([[0.0], [1.0]]), r"expected finite logits, got NaN or infinite ones for input 0,"),
    ],
)
def test_outputs_that_are_no_logits_are_refused_in_words(wrap, words):
    with pytest.raises(ModelError, match=words):
        Classifier(Returns(wrap)).logits(torch.randn(2, 3))


# probabilities and binary outputs


@pytest.mark.parametrize(
    "close",
    [
        nn.Softmax(dim=1),
        nn.Softmax(dim=-1),
        lambda z: z.softmax(1),
        lambda z: torch.softmax(z, dim=1),
        lambda z: torch.softmax(input=z, dim=-1),
        lambda z: nn.functional.softmax(z, dim=1),
        lambda z: {"logits": z.softmax(1), "attention": z[0].softmax(0)},
    ],
)
def test_the_input_of_a_closing_softmax_is_the_logits(close):
    model = Returns(close)
    with torch.no_grad():
        model.body[2].weight[0] += 1000  # the probabilities of the others are 0: their logarithm would not do
    x = torch.rand(2, 3)
    classifier = Classifier(model, output="probabilities")
    if not isinstance(close, nn.Softmax):
        assert not model.body._forward_hooks
    assert torch.equal(functional_z := classifier.functional({}, x), model.body(x)) and functional_z.requires_grad


def test_a_probability_of_zero_before_a_softmax_is_no_hindrance_but_is_named_without():
    sure = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Softmax(1))
    sure[0].weight.data = torch.tensor([[1000.0], [0.0]])
    x = torch.tensor([[0.0], [1.0]])
    words = r"probabilities above 0 with output='probabilities', got 0 for input 1, whose logarithm is minus inf"
    assert sure(x)[1, 1] == 0
    assert Classifier(sure, output="probabilities").logits(x).tolist() == [[0, 0], [1000, 0]]
    with pytest.raises(ModelError, match=words):
        Classifier(lambda x: sure(x) * 1, output="probabilities").logits(x)


def test_probabilities_without_a_softmax_become_their_logarithm():
    p = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    z = Classifier(lambda x: p * 1, output="probabilities").logits(torch.zeros(2, 1))
    assert torch.allclose(z.softmax(1), p, rtol=1e-12)


@pytest.mark.parametrize("wrong", [lambda z: z, lambda z: z.exp(), lambda z: z.softmax(0), lambda z: z.sigmoid()])
def test_what_are_no_probabilities_is_refused(wrong):
    words = (
        r"probabilities, which are >= 0 and sum to 1 over the classes.*got others for inputs? \d.*say output='logits'"
    )
    with pytest.raises(ModelError, match=words):
        Classifier(Returns(wrong), output="probabilities").logits(torch.randn(3, 3))


def test_probabilities_of_a_compiled_model_are_exact_too():
    model = Returns(nn.Softmax(1))
    x = torch.randn(2, 3)
    compiled = Classifier(torch.compile(model, backend=never), output="probabilities")
    with predicting(compiled):
        assert torch.equal(compiled.logits(x), model.body(x))


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
@pytest.mark.parametrize("close", [lambda s: s, torch.sigmoid, nn.Sigmoid(), lambda s: s.sigmoid()])
def test_one_logit_becomes_two_classes(shape, close):
    s = torch.tensor([-100.0, 0.0, 3.0, 200.0])
    z = Classifier(lambda x: close(s.reshape(shape)), output="binary").logits(torch.zeros(4, 1))
    assert z.tolist() == [[0, -100], [0, 0], [0, 3], [0, 200]]
    assert torch.allclose(z.softmax(1)[:, 1], s.sigmoid())


def test_binary_needs_one_column():
    words = r"one logit for each input, shape \[N\] or \[N, 1\], with output='binary', got .*\[2, 4\]; keep output='log"
    with pytest.raises(ModelError, match=words):
        Classifier(mlp(), output="binary").logits(torch.randn(2, 3))
    with pytest.raises(ModelError, match="N = 2 rows"):
        Classifier(lambda x: x.flatten(), output="binary").logits(torch.randn(2, 3))


def test_logits_that_look_like_probabilities_are_told_once():
    classifier = Classifier(Returns(nn.Softmax(1)))
    with pytest.warns(UserWarning, match=r"Returns looks like probabilities.*say output='probabilities'"):
        classifier.logits(torch.randn(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.logits(torch.randn(2, 3))
        Classifier(Returns(nn.LogSoftmax(1))).logits(torch.randn(2, 3))  # log-probabilities are logits
        Classifier(mlp()).logits(torch.randn(2, 3))


@pytest.mark.parametrize("end", [lambda p: p.squeeze(1), lambda p: p.view(-1), lambda p: p[:, 0], lambda p: p])
def test_a_sigmoid_in_another_shape_is_found(end):
    torch.manual_seed(0)
    network, x = nn.Linear(4, 1).double(), torch.randn(6, 4).double()
    model = Classifier(lambda x: end(network(x).sigmoid()), output="binary")
    assert torch.allclose(model.logits(x)[:, 1], network(x)[:, 0])


def test_a_sigmoid_that_is_not_found_is_spoken_of():
    model = Classifier(lambda x: x.sigmoid().clamp(0.01, 0.99), output="binary")
    with pytest.warns(UserWarning, match="the sigmoid would be applied twice"):
        model.logits(torch.randn(9, 1))
    Classifier(lambda x: x, output="binary").logits(torch.randn(9, 1))  # logits: no warning


def test_probabilities_that_were_changed_in_place_count():
    torch.manual_seed(0)
    x = torch.randn(5, 3).double() * 5

    def model(x):
        p = x.softmax(1)
        p.clamp_(min=0.05)
        p /= p.sum(1, keepdim=True)
        return p

    assert torch.allclose(Classifier(model, output="probabilities").logits(x).softmax(1), model(x))


class Two(nn.Module):
    """Features and logits, in one order or the other."""

    def __init__(self, order):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.order = nn.Linear(4, 6), nn.Linear(6, 3), order

    def forward(self, x):
        h = self.body(x).tanh()
        both = {"features": h, "logits": self.head(h)}
        return tuple(both[name] for name in self.order)


@pytest.mark.parametrize("order", [("features", "logits"), ("logits", "features")])
def test_where_several_items_could_be_logits_it_is_said_once_and_can_be_chosen(order):
    model, x = Two(order).eval(), torch.randn(5, 4)
    silent = Classifier(model)
    with pytest.warns(UserWarning, match=r"item 0: \[5, .*item 1: \[5, .*the first is taken.*item=1"):
        assert torch.equal(silent.logits(x), model(x)[0])
    at = order.index("logits")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silent.logits(x)
        for item in (at, at - 2):
            assert torch.equal(Classifier(model, item=item).logits(x), model(x)[at])
        found = nescio.score(Classifier(model, item=at), x, "exgrad")
        wanted = nescio.score(nn.Sequential(model.body, nn.Tanh(), model.head).eval(), x, "exgrad")
        torch.testing.assert_close(found, wanted)


def test_an_item_that_is_not_there_is_an_error():
    with warnings.catch_warnings():  # hidden states have another shape: there is no doubt
        warnings.simplefilter("error")
        Classifier(lambda x: (x, x.unsqueeze(1), x[:, :1])).logits(torch.randn(5, 3))
    named = Classifier(lambda x: {"a": x, "b": 2 * x}, item="b")
    assert torch.equal(named.logits(torch.ones(5, 3)), 2 * torch.ones(5, 3))
    for item in (2, "b", -3):
        with pytest.raises(ModelError, match="expected the model to return a tensor at item="):
            Classifier(lambda x: (x, x), item=item).logits(torch.randn(5, 3))
    for item in (True, 1.0):
        with pytest.raises(ModelError, match="expected item to be a place in a tuple or a name"):
            Classifier(mlp(), item=item)
