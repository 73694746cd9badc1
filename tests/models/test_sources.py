"""Every kind of model source, with real objects that are made on the spot."""

import socket
import sys

import numpy as np
import pytest
import torch
from torch import nn

import nescio
from nescio.models import Classifier
from nescio.models.sources import Normalise, Pictures, Texts, Transformed, open_model
from nescio.types import InputError, MissingExtra, ModelError
from tests.models.examples import saved_text_model, saved_vit, tokenizer

image = pytest.importorskip("PIL.Image")


def picture(width=70, height=50, mode="RGB", seed=0):
    generator = np.random.default_rng(seed)
    shape = (height, width) if mode == "L" else (height, width, 3)
    return image.fromarray(generator.integers(0, 256, shape, dtype=np.uint8))


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    return saved_text_model(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return saved_vit(tmp_path_factory.mktemp("vit"))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.b, self.d = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.f = nn.Linear(4 * 36, 3)

    def forward(self, x):
        return self.f(self.d(torch.relu(self.b(self.c(x)))).flatten(1))


def same_after(source, preset, shown):
    """The pre-processing of the source, with the model's first step, is the preset's to the last bits."""
    ours = source.model.preprocess(source.preprocess(shown).unsqueeze(0))[0]
    assert torch.allclose(ours, preset(shown), atol=1e-6)


# torchvision and timm


@pytest.mark.parametrize("shown", [(70, 50), (50, 70), (401, 300), (224, 224), (10, 300)])
def test_torchvision_pictures_are_those_of_its_own_transform(shown):
    models = pytest.importorskip("torchvision.models")
    source = open_model("torchvision:squeezenet1_1")
    same_after(source, models.get_model_weights("squeezenet1_1").DEFAULT.transforms(), picture(*shown))
    assert str(source.preprocess) == "resize 256, centre crop 224, mean 0.485 0.456 0.406, std 0.229 0.224 0.225"
    assert source.about == "torchvision:squeezenet1_1, random weights (--weights names others), 1.2 million parameters"
    assert source.classes is None
    assert source.kind == "pictures"


def test_the_interpolation_is_that_of_the_architecture():
    models = pytest.importorskip("torchvision.models")
    from nescio.models.sources.torchvision_models import _preprocess

    preset = models.get_model_weights("swin_v2_t").DEFAULT.transforms()
    own = _preprocess(preset)
    assert str(own).startswith("resize 260 bicubic, centre crop 256, mean")
    shown = picture(300, 270)
    assert torch.allclose(own.normalise(own(shown)[None])[0], preset(shown), atol=1e-6)


def test_torchvision_weights_of_a_file_may_have_other_classes(tmp_path):
    models = pytest.importorskip("torchvision.models")
    truth = models.squeezenet1_1(num_classes=5).eval()
    torch.save(truth.state_dict(), tmp_path / "w.pt")
    source = open_model("torchvision:squeezenet1_1", tmp_path / "w.pt")
    x = torch.rand(2, 3, 64, 64)
    source.model.model.eval()
    expected = truth(
        (x - torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    )
    assert torch.allclose(source.model.logits(x), expected, atol=1e-5)
    assert "weights of " in source.about


def test_weights_of_1000_classes_bring_their_names_and_others_a_clear_error(tmp_path):
    models = pytest.importorskip("torchvision.models")
    torch.save(models.squeezenet1_1().state_dict(), tmp_path / "w.pt")
    assert open_model("torchvision:squeezenet1_1", tmp_path / "w.pt").classes is None  # no linear layer tells how many
    torch.save(models.shufflenet_v2_x0_5().state_dict(), tmp_path / "s.pt")
    classes = open_model("torchvision:shufflenet_v2_x0_5", tmp_path / "s.pt").classes
    assert len(classes) == 1000
    assert classes[281] == "tabby"
    with pytest.raises(ModelError, match="expected weights that fit SqueezeNet, got others from"):
        open_model("torchvision:squeezenet1_1", tmp_path / "s.pt")


@pytest.mark.parametrize("spec", ["torchvision:resnet19", "timm:resnet10x"])
def test_an_unknown_name_is_told_with_those_close_to_it(spec):
    pytest.importorskip(spec.partition(":")[0])
    with pytest.raises(InputError, match=r"got 'resnet1.+close to it: .*resnet1"):
        open_model(spec)


def test_published_weights_that_cannot_be_fetched_are_told(monkeypatch, tmp_path):
    models = pytest.importorskip("torchvision.models")

    def refused(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(models.ResNet18_Weights.DEFAULT.__class__, "get_state_dict", refused)
    with pytest.raises(ModelError, match=r"fetch the weights IMAGENET1K_V1 of torchvision:resnet18.*resnet18-f37072fd"):
        open_model("torchvision:resnet18", "DEFAULT")


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet"])
def test_timm_pictures_are_those_of_its_own_transform(name):
    pytest.importorskip("timm")
    data = pytest.importorskip("timm.data")
    source = open_model(f"timm:{name}")
    config = data.resolve_model_data_config(source.model.model)
    for shown in (picture(300, 200), picture(100, 170)):
        same_after(source, data.create_transform(**config), shown)
    assert "mean" in str(source.preprocess)
    assert f"timm:{name}, random weights" in source.about


@pytest.mark.parametrize("mode", ["squash", "border", "center"])
@pytest.mark.parametrize("size", [(3, 32, 32), (3, 32, 48)])
def test_timm_crops_of_all_modes(mode, size):
    data = pytest.importorskip("timm.data")
    from nescio.models.sources.timm_models import _preprocess

    config = {"input_size": size, "interpolation": "bilinear", "mean": (0.5,) * 3, "std": (0.2,) * 3, "crop_pct": 0.9}
    config["crop_mode"] = mode
    own, shown = _preprocess(config), picture(90, 61)
    assert torch.allclose(own.normalise(own(shown)[None])[0], data.create_transform(**config)(shown), atol=1e-6)


def test_timm_takes_weights_with_other_classes(tmp_path):
    timm = pytest.importorskip("timm")
    truth = timm.create_model("test_resnet", num_classes=7)
    torch.save({f"module.{name}": value for name, value in truth.state_dict().items()}, tmp_path / "w.pt")
    source = open_model("timm:test_resnet", tmp_path / "w.pt", mean=(), std=())
    x = torch.rand(2, 3, 32, 32)
    assert torch.allclose(source.model.model.eval()(x), truth.eval()(x), atol=1e-6)
    assert source.model.preprocess is None


# transformers


def test_a_text_classifier_of_transformers(text_model):
    source = open_model(f"hf:{text_model}")
    assert source.classes == ("no", "yes", "perhaps")
    assert isinstance(source.preprocess, Texts)
    assert str(source.preprocess) == "tokens of the model's own tokenizer (11 words), at most 12 tokens"
    texts = ["a good film", "it is very very very very very very very very very very bad", "bad"]
    batch = source.preprocess.collate([source.preprocess(text) for text in texts])
    expected = tokenizer()(texts, padding=True, truncation=True, max_length=12, return_tensors="pt")
    assert {name: value.tolist() for name, value in batch.items()} == {k: v.tolist() for k, v in expected.items()}
    one_by_one = [source.preprocess.collate([source.preprocess(text)]) for text in texts]
    together = nescio.score(source.model, batch, ["entropy", "exgrad"])
    alone = nescio.score(source.model, one_by_one, ["entropy", "exgrad"])
    for name in together:
        assert torch.allclose(together[name], alone[name], rtol=1e-4)
    assert (together["exgrad"] > 0).all()


def test_a_tokenizer_may_be_called_from_threads(text_model):
    from concurrent.futures import ThreadPoolExecutor

    source = open_model(f"hf:{text_model}")
    texts = ["a good film " * (i % 7 + 1) for i in range(200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(source.preprocess, texts))
    assert [one["input_ids"].tolist() for one in found] == [source.preprocess(t)["input_ids"].tolist() for t in texts]


def test_a_vit_of_transformers_with_its_image_processor(vit):
    transformers = pytest.importorskip("transformers")
    source = open_model(f"hf:{vit}")
    assert source.classes is None
    assert str(source.preprocess).startswith("resize 16x16, by ViTImageProcessor")
    assert str(source.preprocess).endswith("mean 0.4 0.4 0.4, std 0.5 0.5 0.5")
    shown = picture(33, 21)
    x = source.preprocess(shown)
    assert x.min() >= 0
    assert x.max() <= 1
    processor = transformers.AutoImageProcessor.from_pretrained(vit)
    same_after(source, lambda one: processor(one, return_tensors="pt")["pixel_values"][0], shown)
    model = transformers.ViTForImageClassification.from_pretrained(vit).eval()
    expected = model(processor(shown, return_tensors="pt")["pixel_values"]).logits
    assert torch.allclose(source.model.logits(x[None]), expected, atol=1e-5)
    assert (nescio.score(source.model, x[None], "exgrad") > 0).all()
    grey = source.preprocess(picture(20, 20, "L"))
    assert grey.shape == (3, 16, 16)


def test_weights_beside_a_folder_of_transformers_replace_its_own(vit, tmp_path):
    transformers = pytest.importorskip("transformers")
    other = transformers.ViTForImageClassification(transformers.AutoConfig.from_pretrained(vit)).eval()
    torch.save(other.state_dict(), tmp_path / "w.pt")
    source = open_model(f"hf:{vit}", tmp_path / "w.pt", size=16, mean=(), std=())
    assert str(source.preprocess) == "resize 16, centre crop 16, values in [0, 1], not normalised"
    x = torch.rand(1, 3, 16, 16)
    assert torch.allclose(source.model.logits(x), other(x).logits, atol=1e-6)


def test_what_is_no_classifier_of_transformers_is_told(tmp_path, monkeypatch, text_model):
    transformers = pytest.importorskip("transformers")
    with pytest.raises(InputError, match=r"expected a folder of transformers at '\./nowhere', but there is none"):
        open_model("hf:./nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"it has no config\.json"):
        open_model(f"hf:{tmp_path / 'empty'}")
    config = transformers.BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    config.architectures = ["BertForMaskedLM"]
    config.save_pretrained(tmp_path / "mlm")
    with pytest.raises(ModelError, match=r"expected a classifier in hf:.*got BertForMaskedLM"):
        open_model(f"hf:{tmp_path / 'mlm'}")
    config.architectures = ["BertForSequenceClassification"]
    config.save_pretrained(tmp_path / "bare")
    with pytest.raises(ModelError, match="cannot read its weights from hf:"):
        open_model(f"hf:{tmp_path / 'bare'}")
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"cannot read its configuration from hf:no/such-model: .*connection"):
        open_model("hf:no/such-model")


# torch.export


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The same network, exported for any number of inputs, for one and for two at once."""
    folder = tmp_path_factory.mktemp("pt2")
    torch.manual_seed(0)
    model = Small().eval()
    x = torch.rand(5, 3, 8, 8)
    for name, count, shapes in (("any", 2, ({0: torch.export.Dim("n")},)), ("one", 1, None), ("two", 2, None)):
        torch.export.save(torch.export.export(model, (x[:count],), dynamic_shapes=shapes), folder / f"{name}.pt2")
    return folder, model, x


@pytest.mark.parametrize("name", ["any", "one", "two"])
def test_an_exported_program_gives_the_scores_of_its_model(archives, name):
    folder, model, x = archives
    source = open_model(str(folder / f"{name}.pt2"), trust_pickle=True)
    found = nescio.score(source.model, x, ["entropy", "exgrad", "regrad"])
    for method, truth in nescio.score(model, x, ["entropy", "exgrad", "regrad"]).items():
        assert torch.allclose(found[method], truth, rtol=1e-4), method
    words = {"any": "any number of inputs at once", "one": "1 input at once", "two": "2 inputs at once"}
    assert f"exported for {words[name]}" in source.about
    assert source.preprocess is None


def test_linear_layers_of_a_program_are_found_by_the_methods_that_need_them(archives):
    folder, model, x = archives
    methods = ["mahalanobis", nescio.scores.KNN(k=3), nescio.scores.Laplace(samples=5), "inserted_dropout"]
    fit = (torch.rand(30, 3, 8, 8), torch.arange(30) % 3)
    found = nescio.score(open_model(str(folder / "any.pt2"), trust_pickle=True).model, x, methods, fit=fit)
    for method, truth in nescio.score(model, x, methods, fit=fit).items():
        assert torch.allclose(found[method], truth, rtol=1e-3), method
    fixed = open_model(str(folder / "two.pt2"), trust_pickle=True)
    assert "methods that read features need any number" in fixed.about
    with pytest.raises(ModelError, match="expected features with one row for each of 30 inputs"):
        nescio.score(fixed.model, x, "mahalanobis", fit=fit)


def test_an_exported_program_takes_weights_and_settings_of_pictures(archives, tmp_path):
    folder, _, x = archives
    other = Small().eval()
    torch.save(other.state_dict(), tmp_path / "w.pt")
    source = open_model(str(folder / "any.pt2"), tmp_path / "w.pt", trust_pickle=True, size=8, mean=[0.5], std=[0.25])
    assert torch.allclose(source.model.logits(x), other((x - 0.5) / 0.25), atol=1e-5)
    assert source.preprocess(picture(20, 30)).shape == (3, 8, 8)


def test_a_program_in_training_mode_is_refused(tmp_path):
    file = tmp_path / "train.pt2"
    torch.export.save(torch.export.export(Small().train(), (torch.rand(2, 3, 8, 8),)), file)
    with pytest.raises(ModelError, match=r"expected a program for evaluation in .*training mode; export it again"):
        open_model(str(file), trust_pickle=True)


def test_what_is_no_archive_is_told(tmp_path):
    with pytest.raises(InputError, match="but there is none"):
        open_model("nowhere.pt2")
    (tmp_path / "bad.pt2").write_bytes(b"PK not really")
    with pytest.raises(ModelError, match=r"it cannot be read .* export it again with this torch"):
        open_model(str(tmp_path / "bad.pt2"), trust_pickle=True)


# factories

FACTORIES = """
import torch
from torch import nn
from nescio.models import Classifier

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))

def carried():
    return plain()

def ready():
    return Classifier(plain(), preprocess=lambda x: x - 0.5)

def transform(picture):
    return torch.full((3, 8, 8), 0.5)

carried.transform = transform
carried.classes = ["cat", "dog"]

def grey():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))

def composed():
    from torchvision import transforms
    model = plain()
    model.transform = transforms.Compose([
        transforms.Resize((8, 8)), transforms.ToTensor(), transforms.Normalize([0.1, 0.2, 0.3], [1.0, 2.0, 4.0])
    ])
    return model
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "source_factories.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("source_factories", None)


def test_a_factory_without_a_transform_says_nothing_of_pictures_until_a_person_does(folder):
    source = open_model("source_factories:plain")
    assert (source.preprocess, source.kind, source.classes) == (None, None, None)
    assert source.about == "source_factories:plain, 386 parameters"
    source = open_model("source_factories:plain", size=(8, 8), mean=[0.5], std=[0.5], output="probabilities")
    assert str(source.preprocess) == "resize 8, mean 0.5, std 0.5"
    assert source.model.output == "probabilities"
    assert source.preprocess(picture()).shape == (3, 8, 8)


def test_a_network_for_grey_pictures_gets_them(folder):
    source = open_model("source_factories:grey", size=8)
    assert str(source.preprocess) == "resize 8, centre crop 8, grey, values in [0, 1], not normalised"
    assert source.preprocess(picture()).shape == (1, 8, 8)


def test_a_transform_and_classes_on_the_factory_are_taken(folder):
    source = open_model("source_factories:carried")
    assert source.classes == ("cat", "dog")
    assert torch.equal(source.preprocess(picture()), torch.full((3, 8, 8), 0.5))
    assert str(source.preprocess) == "the model's own transform: transform"
    changed = open_model("source_factories:carried", size=4)
    assert isinstance(changed.preprocess, Pictures)
    assert changed.preprocess(picture()).shape == (3, 4, 4)


def test_a_normalisation_at_the_end_of_a_transform_becomes_the_models_first_step(folder):
    pytest.importorskip("torchvision")
    source = open_model("source_factories:composed")
    assert isinstance(source.preprocess, Transformed)
    assert isinstance(source.model.preprocess, Normalise)
    shown = picture()
    same_after(source, source.model.module.transform, shown)
    assert str(source.preprocess).endswith("ToTensor(), mean 0.1 0.2 0.3, std 1 2 4")
    assert source.preprocess(shown).max() <= 1


def test_a_classifier_keeps_its_own_first_step(folder):
    source = open_model("source_factories:ready")
    assert isinstance(source.model, Classifier)
    assert source.model.preprocess is not None
    with pytest.raises(InputError, match="expected no mean and std beside a Classifier that has a function before"):
        open_model("source_factories:ready", mean=[0.5], std=[0.5])


# settings of pictures


def test_sizes_and_crops_of_a_person():
    own = Pictures(256, (224, 224), "bicubic", mean=(0.5,), std=(0.2,))
    assert str(own.changed(128, None, None, None)) == "resize 128 bicubic, centre crop 128, mean 0.5, std 0.2"
    assert str(own.changed((20, 30), None, (), ())) == "resize 20x30 bicubic, values in [0, 1], not normalised"
    assert str(own.changed(64, (40, 60), None, (1,))) == "resize 64 bicubic, centre crop 40x60, mean 0.5, std 1"
    assert str(own.changed(0, None, None, None)) == "mean 0.5, std 0.2"
    assert str(own.changed(None, 0, [1, 2, 3], None)) == "resize 256 bicubic, mean 1 2 3, std 0.2"
    with pytest.raises(InputError, match="--mean: expected one number or 3, one for each channel, got 2"):
        own.changed(None, None, (1, 2), None)
    with pytest.raises(InputError, match="--std: expected numbers above 0, got 0"):
        own.changed(None, None, None, [0])
    with pytest.raises(InputError, match="--crop: expected a number of pixels"):
        own.changed(None, (0, 3), None, None)


def test_pictures_as_arrays():
    own = Pictures((8, 8), mean=(0.5,), std=(0.2,))
    shown = picture(8, 8)
    array = np.array(shown)
    assert torch.equal(own(array), own(shown))
    assert torch.equal(own(np.ascontiguousarray(array.transpose(2, 0, 1))), own(shown))
    floats = torch.rand(3, 8, 8)
    assert torch.equal(own(floats), floats)
    with pytest.raises(InputError, match=r"expected values in \[0, 1\], since the model normalises them itself"):
        own(floats * 3)
    assert torch.equal(Pictures()(floats * 3), floats * 3)
    with pytest.raises(InputError, match=r"expected a picture: bytes \[H, W, C\]"):
        own(np.zeros((2, 5, 7), dtype=np.uint8))
    with pytest.raises(InputError, match=r"expected a picture \[C, H, W\]"):
        own(torch.rand(8, 8))
    assert Pictures(channels=1)(shown).shape == (1, 8, 8)


def test_the_normalisation_follows_the_model_to_its_type():
    step = Normalise((0.5, 0.25, 0.0), (1.0, 2.0, 4.0))
    x = torch.rand(2, 3, 4, 4, dtype=torch.float64)
    mean, std = torch.tensor([0.5, 0.25, 0.0]).view(3, 1, 1), torch.tensor([1.0, 2.0, 4.0]).view(3, 1, 1)
    assert torch.equal(step(x), (x - mean) / std)
    assert step(x.bfloat16()).dtype == torch.bfloat16


def test_a_model_of_texts_has_no_size(text_model):
    with pytest.raises(InputError, match="expected a model of pictures where a size, crop, mean or std is given"):
        open_model(f"hf:{text_model}", size=8)


def test_a_word_that_names_nothing_lists_the_forms():
    with pytest.raises(InputError, match=r"package\.module:factory, torchvision:NAME, timm:NAME, hf:PATH-OR-ID, FILE"):
        open_model("resnet18")


@pytest.mark.parametrize(
    ("spec", "package", "extra"),
    [
        ("torchvision:resnet18", "torchvision", "data"),
        ("timm:resnet18", "timm", "timm"),
        ("hf:x", "transformers", "hf"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, spec, package, extra):
    import importlib

    real = importlib.import_module

    def without(name, *more):
        if name.partition(".")[0] == package:
            raise ImportError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingExtra, match=rf"pip install 'nescio\[{extra}\]'"):
        open_model(spec)


def test_a_hub_that_does_not_answer_is_not_asked_again_and_again(monkeypatch):
    """An id is then looked for in the cache alone; behind a proxy the hub's own address says nothing."""
    transformers = pytest.importorskip("transformers")
    constants = pytest.importorskip("huggingface_hub.constants")
    asked = []

    def from_pretrained(name, **settings):
        asked.append(settings["local_files_only"])
        raise OSError("it is not there")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", from_pretrained)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(ModelError, match="it is not there; check the name and the connection"):
            open_model("hf:some/model")
    for proxy in (None, "http://127.0.0.1:9"):
        if proxy:
            monkeypatch.setenv("https_proxy", proxy)
        with pytest.raises(ModelError, match="it is not there; check the name and the connection"):
            open_model("hf:some/model")
    assert asked == [False, True, False]
