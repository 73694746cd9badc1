"""Maps of scores: every position as if it were an input of its own."""

import pytest
import torch
from torch import nn

import nescio
from nescio.dense import by_position, position_maps
from nescio.types import InputError, ModelError
from tests.dense.networks import Tagger, UNet, Upsampled

FORWARD = ["entropy", "exgrad_v", "max_probability", "energy", "gen", "max_logit"]


@pytest.fixture
def network():
    torch.manual_seed(0)
    return UNet().double().eval()


@pytest.fixture
def x():
    return torch.rand(3, 3, 8, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def rows(network, x):
    """Logits of every position as if each were an input, [N · P, C]."""
    with torch.no_grad():
        z = network.eval()(x)
    return z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])


def test_each_forward_score_is_that_of_the_positions(network, x):
    found = nescio.score(network, x, FORWARD)
    position_by_position = nescio.score(nn.Identity(), rows(network, x), FORWARD)
    for name in FORWARD:
        assert found[name].shape == (3, 8, 12) and found[name].dtype == torch.float64
        torch.testing.assert_close(found[name].flatten(), position_by_position[name], rtol=1e-12, atol=1e-14)


def test_parts_and_chunks_change_nothing(network, x, monkeypatch):
    whole = nescio.score(network, x, "gen")
    assert torch.equal(nescio.score(network, x, "gen", chunk=1), whole)
    sizes = []
    method = nescio.scores.GEN()
    monkeypatch.setattr(position_maps, "CPU_NUMBERS", 4 * 10)
    monkeypatch.setattr(nescio.scores.GEN, "__call__", lambda self, z: sizes.append(len(z)) or method_call(self, z))
    method_call = _GEN
    assert torch.equal(nescio.score(network, x, method), whole)
    assert max(sizes) == 10


_GEN = nescio.scores.GEN.__call__


def test_memory_is_bounded(network, x, monkeypatch):
    sizes = []
    z = torch.rand(2, 50, 50, 4)
    by_position(lambda z: sizes.append(len(z)) or z.sum(-1), z, memory_gb=1e-6 * 4 * 128)
    assert max(sizes) == 1000 and sum(sizes) == 5000


@pytest.mark.parametrize("build", ["fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"])
def test_torchvisions_networks_are_understood(build):
    segmentation = pytest.importorskip("torchvision").models.segmentation
    torch.manual_seed(0)
    network = getattr(segmentation, build)(weights=None, weights_backbone=None, num_classes=3)
    x = torch.rand(2, 3, 64, 64)
    found = nescio.score(network, x, "entropy")
    with torch.no_grad():
        z = network.eval()(x)["out"]
    assert found.shape == (2, 64, 64)
    torch.testing.assert_close(found, nescio.scores.Entropy()(z.movedim(1, -1)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["token", "causal"])
def test_transformers_say_what_they_are(kind):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "token":
        config = transformers.BertConfig(
            vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=5
        )
        network, classes = transformers.BertForTokenClassification(config), 5
    else:
        config = transformers.GPT2Config(vocab_size=30, n_positions=16, n_embd=8, n_layer=1, n_head=2)
        network, classes = transformers.GPT2LMHeadModel(config), 30
    x = {"input_ids": torch.arange(14).reshape(2, 7), "attention_mask": torch.ones(2, 7, dtype=torch.long)}
    found = nescio.score(network, x, "entropy")
    assert found.shape == (2, 7) and float(found.max()) <= torch.tensor(float(classes)).log() + 1e-9


def test_where_the_classes_are_must_be_clear():
    torch.manual_seed(0)
    tagger, tokens = Tagger(), torch.arange(14).reshape(2, 7)
    with pytest.raises(ModelError, match=r"got .*\[2, 7, 5\]; a model that classifies every position .*class_dim=-1"):
        nescio.score(tagger, tokens, "entropy")
    with pytest.raises(ModelError, match=r"one dimension that can only be the classes, got .*\[2, 7, 5\]; say which"):
        nescio.score(tagger, tokens, "entropy", output="dense")
    said = nescio.Classifier(tagger, output="dense", class_dim=-1)
    with torch.no_grad():
        z = tagger(tokens)
    torch.testing.assert_close(nescio.score(said, tokens, "entropy"), nescio.scores.Entropy()(z), rtol=1e-5, atol=1e-6)


def test_a_model_is_found_once_and_gradients_of_a_classifier_need_no_look(network, x):
    calls = []
    network.register_forward_hook(lambda *_: calls.append(1))
    classifier = nescio.Classifier(network)
    nescio.score(classifier, x, "entropy")
    found = len(calls)
    nescio.score(classifier, x, "entropy")
    assert (found, len(calls) - found) == (2, 1)  # the second call knows what the first one found
    assert classifier.dense and classifier.class_dim == 1


def test_probabilities_and_one_logit_at_every_position(network, x):
    wanted = nescio.score(network, x, "entropy")
    closed = nescio.Classifier(lambda x: network(x).softmax(1), output="probabilities", class_dim=1)
    torch.testing.assert_close(nescio.score(closed, x, "entropy"), wanted, rtol=1e-12, atol=1e-12)
    one = nescio.Classifier(lambda x: network(x)[:, :1].sigmoid(), output="binary", class_dim=1)
    s = rows(network, x)[:, :1]
    two = nescio.scores.Entropy()(torch.cat([torch.zeros_like(s), s], 1))
    torch.testing.assert_close(nescio.score(one, x, "entropy").flatten(), two, rtol=1e-12, atol=1e-12)


def test_posteriors_give_maps(network, x):
    dropout = nescio.posteriors.MCDropout(network, samples=3)
    p = dropout.predict(x)
    assert p.shape == (3, 3, 8, 12, 4)
    found = nescio.score(dropout, x, ["mutual_information", "entropy"])
    torch.testing.assert_close(found["mutual_information"], nescio.decompose(p).epistemic, rtol=1e-9, atol=1e-12)
    kinds, flat = nescio.decompose(p), nescio.decompose(p.reshape(3, -1, 4))
    for name in ("total", "aleatoric", "epistemic", "variance", "max_probability", "bregman"):
        assert getattr(kinds, name).shape == (3, 8, 12)
        assert torch.equal(getattr(kinds, name).flatten(), getattr(flat, name))
    members = nescio.posteriors.DeepEnsemble([network, UNet().double()])
    assert nescio.score(members, x, "mutual_information").shape == (3, 8, 12)
    assert "mean over the positions" in kinds._repr_html_()


def test_a_temperature_is_fitted_to_positions(network, x):
    torch.manual_seed(0)
    network.head.weight.data *= 20  # sure of itself; the labels are drawn from less
    labels = torch.multinomial((rows(network, x) / 2).softmax(1), 1).reshape(3, 8, 12)
    labels[:, :2] = 255
    held_out = nescio.dense.labelled_positions(network, (x, labels), each=None, ignore_index=255)
    z = rows(network, x).reshape(3, 8, 12, 4)[:, 2:].reshape(-1, 4)
    torch.testing.assert_close(held_out.logits[0], z, rtol=1e-12, atol=1e-12)
    assert torch.equal(held_out.labels, labels[:, 2:].flatten())
    scaled = nescio.posteriors.Temperature(network).fit_logits(held_out.logits, held_out.labels)
    other = nescio.posteriors.Temperature(nn.Identity()).fit_logits(z, labels[:, 2:].flatten())
    assert scaled.temperature == pytest.approx(other.temperature, rel=1e-9)
    torch.testing.assert_close(scaled.predict(x)[0].flatten(0, -2), (rows(network, x) / scaled.temperature).softmax(1))


def test_drawn_positions_do_not_depend_on_batches(network, x):
    labels = torch.randint(4, (3, 8, 12), generator=torch.Generator().manual_seed(0))
    together = nescio.dense.labelled_positions(network, (x, labels), each=5)
    alone = nescio.dense.labelled_positions(network, [(x[i : i + 1], labels[i : i + 1]) for i in range(3)], each=5)
    assert torch.equal(together.labels, alone.labels) and torch.equal(together.input, alone.input)
    assert together.input.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    torch.testing.assert_close(together.logits, alone.logits, rtol=1e-12, atol=1e-12)


def test_what_stays_out_says_so(network, x):
    with pytest.raises(InputError, match=r"answers at every position.*got 'perturb_x', which needs NoisyInputLogits"):
        nescio.score(network, x, "perturb_x", sigma=0.1)
    with pytest.raises(ModelError, match=r"classifies every position is for nescio.score, nescio.dense and posteriors"):
        nescio.Guard(network).fit(torch.rand(30, 3, 8, 12))
    with pytest.raises(ModelError, match=r"one answer for each input, got Classifier.*average over its positions"):
        nescio.trace.class_gradients(nescio.Classifier(network, output="dense"), x)
    with pytest.raises(InputError, match=r"maps of \[8, 8\] and \[8, 12\]; bring the inputs to one size"):
        nescio.score(network, [x, x[..., :8]], "entropy")
    with pytest.raises(ModelError, match=r"boxes or masks of objects \('boxes'\), of which every picture has others"):
        nescio.score(lambda x: [{"boxes": torch.rand(4, 4), "scores": torch.rand(4)}], x, "entropy")
    with pytest.raises(ModelError, match="keep output='logits'"):
        nescio.score(nn.Linear(4, 3), torch.rand(2, 4), "entropy", output="dense")
    with pytest.raises(ModelError, match="expected class_dim to be a dimension after the first"):
        nescio.Classifier(network, output="dense", class_dim=0)


def test_the_model_is_left_as_it_was(network, x):
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    nescio.score(network, x, FORWARD)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(not module._forward_hooks for module in network.modules())


def test_a_smaller_output_is_understood():
    torch.manual_seed(0)
    coarse = nn.Conv2d(3, 5, 3, stride=4, padding=1)
    assert nescio.score(coarse, torch.rand(2, 3, 32, 30), "entropy").shape == (2, 8, 8)
    assert nescio.score(Upsampled(), torch.rand(2, 3, 16, 16), "entropy").shape == (2, 16, 16)
    channels_last = nescio.score(
        lambda x: nn.functional.one_hot((x[..., 0] > 0.5).long(), 3) * 2.0, torch.rand(2, 9, 9, 3), "entropy"
    )
    assert channels_last.shape == (2, 9, 9)


def test_a_model_is_recognised_once_and_again_where_its_head_is_another():
    torch.manual_seed(0)
    model, given = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 5, 1)), torch.rand(2, 3, 8, 8)
    passes = []
    model.register_forward_pre_hook(lambda module, inputs: passes.append(len(inputs[0])))
    first = nescio.score(model, given, "exgrad")
    assert passes == [1, 2]  # one picture to find out, and the work
    assert torch.equal(nescio.score(model, given, "exgrad"), first) and passes == [1, 2, 2]
    model.append(nn.AdaptiveAvgPool2d(1)).append(nn.Flatten())
    assert nescio.score(model, given, "entropy").shape == (2,)


def test_other_classes_in_another_batch_are_refused():
    def changing(x):
        return x.repeat(1, 1 if float(x.mean()) > 0.5 else 2, 1, 1)

    classifier = nescio.Classifier(changing, output="dense", class_dim=1)
    with pytest.raises(ModelError, match="expected the 3 classes of the batch before in every batch, got 6"):
        nescio.score(classifier, [torch.ones(1, 3, 4, 4), torch.zeros(1, 3, 4, 4)], "entropy")
