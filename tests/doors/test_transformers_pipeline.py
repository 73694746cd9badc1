"""`nescio.pipeline` answers as the pipeline of transformers does, and says how far to trust each answer."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import nescio
from nescio.types import InputError, ModelError
from tests.models.examples import WORDS, saved_text_model, saved_vit, tokenizer

transformers = pytest.importorskip("transformers", reason="it is in the extra hf: pip install 'nescio[hf]'")
image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.filterwarnings("ignore:the reference has:UserWarning")
TEXTS = ["a good film", "it is bad", "very very bad film", "good"]


def picture(seed, size=(20, 24)):
    return image.fromarray(np.random.default_rng(seed).integers(90, 160, (*size, 3), dtype=np.uint8))


def texts(count):
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(WORDS[4:], generator.integers(2, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return saved_text_model(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return saved_vit(tmp_path_factory.mktemp("vit"), num_labels=7)


@pytest.fixture(scope="module")
def guarded(vit):
    return nescio.pipeline("image-classification", vit, reference=[picture(i) for i in range(120)])


@pytest.fixture(scope="module")
def plain(bert):
    return nescio.pipeline("text-classification", bert)


def usual(found):
    """Without what nescio adds, scores rounded."""
    if isinstance(found, list):
        return [usual(one) for one in found]
    return {"label": found["label"], "score": pytest.approx(found["score"], abs=1e-5)}


@pytest.mark.parametrize("more", [{}, {"top_k": 2}, {"top_k": None}, {"top_k": 1}], ids=str)
@pytest.mark.parametrize("given", [TEXTS[0], TEXTS, {"text": TEXTS[0]}, [TEXTS[1]]], ids=["one", "list", "dict", "[1]"])
def test_texts_are_answered_as_by_transformers(plain, bert, given, more):
    theirs = transformers.pipeline("text-classification", model=str(bert))
    assert usual(plain(given, **more)) == theirs(given, **more)


@pytest.mark.parametrize("more", [{}, {"top_k": 2}, {"top_k": 9}], ids=str)
def test_pictures_are_answered_as_by_transformers(guarded, vit, more, tmp_path):
    theirs = transformers.pipeline("image-classification", model=str(vit))
    file = tmp_path / "a.png"
    picture(1).save(file)
    for given in (picture(0), str(file), [picture(0), picture(1)], [str(file)]):
        assert usual(guarded(given, **more)) == theirs(given, **more)


def test_doubt_is_the_score_of_the_input_and_higher_is_more_uncertain(bert):
    pipe = nescio.pipeline("sentiment-analysis", bert, method="entropy")
    rows = pipe(TEXTS, top_k=None)
    for row in rows:
        p = np.array([one["score"] for one in row])
        assert {one["doubt"] for one in row} == {row[0]["doubt"]}
        assert row[0]["doubt"] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-6)


def test_an_answer_does_not_depend_on_the_batch(plain, bert):
    together, alone = plain(TEXTS, batch_size=4), plain(TEXTS, batch_size=1)
    assert [one["doubt"] for one in together] == pytest.approx([one["doubt"] for one in alone], rel=1e-4)
    gradients = nescio.pipeline("text-classification", bert, method="regrad")
    one_by_one = [gradients(text)[0]["doubt"] for text in TEXTS]
    assert [one["doubt"] for one in gradients(TEXTS)] == pytest.approx(one_by_one, rel=1e-3)


def test_a_foreign_picture_is_told_and_a_known_one_is_not(guarded):
    red = image.new("RGB", (24, 20), "red")
    answers = guarded([picture(500 + i) for i in range(20)] + [red])
    assert sum(row[0]["foreign"] for row in answers[:20]) <= 4
    assert answers[20][0]["foreign"] is True and answers[20][0]["p_value"] < 0.05
    assert all(row[0]["p_value"] > 0 for row in answers)


def test_a_reference_of_texts_works_too(bert):
    pipe = nescio.pipeline("text-classification", bert, reference=texts(120))
    (answer,) = pipe("a very good film")
    assert 0 < answer["p_value"] <= 1 and answer["foreign"] in (True, False)


def test_without_a_guard_nothing_is_said_of_foreignness_and_the_pipeline_says_why(plain):
    (answer,) = plain("good")
    assert answer["p_value"] is None and answer["foreign"] is None and answer["doubt"] > 0
    assert "no guard: p_value and foreign are None; give reference=" in repr(plain)


def test_a_guard_is_kept_in_a_folder(guarded, vit, tmp_path):
    guarded.guard.save(tmp_path / "guard")
    again = nescio.pipeline("image-classification", vit, guard=tmp_path / "guard")
    assert again(picture(7)) == guarded(picture(7))
    with pytest.raises(InputError, match="a reference or a guard, got both"):
        nescio.pipeline("image-classification", vit, guard=tmp_path / "guard", reference=[picture(0)])


def test_a_reference_may_be_a_folder_of_pictures(vit, tmp_path):
    for i in range(60):
        picture(i).save(tmp_path / f"{i}.png")
    pipe = nescio.pipeline("image-classification", vit, reference=tmp_path, level=0.2)
    assert pipe.guard.fitted.count == 60


def test_a_small_reference_is_refused_before_the_first_call(vit):
    with pytest.raises(InputError, match=r"expected at least 100 ranks for a level of 0\.05, got 40"):
        nescio.pipeline("image-classification", vit, reference=[picture(i) for i in range(40)])


def test_objects_in_the_place_of_a_folder_stay_as_they_are(bert, vit):
    model = transformers.BertForSequenceClassification.from_pretrained(bert).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pipe = nescio.pipeline("text-classification", model, tokenizer=tokenizer())
    folder = nescio.pipeline("text-classification", bert)
    assert usual(pipe(TEXTS)) == [{k: one[k] for k in ("label", "score")} for one in folder(TEXTS)]
    assert model.training and all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    images = transformers.ViTForImageClassification.from_pretrained(vit)
    processor = transformers.ViTImageProcessor.from_pretrained(vit)
    found = nescio.pipeline("image-classification", images, image_processor=processor)(picture(3))
    assert usual(found) == transformers.pipeline("image-classification", model=str(vit))(picture(3))
    with pytest.raises(InputError, match="expected tokenizer=… beside the model BertForSequenceClassification"):
        nescio.pipeline("text-classification", model)


def test_a_generator_and_a_data_set_are_answered_one_by_one(plain):
    class Rows(Dataset):
        def __len__(self):
            return len(TEXTS)

        def __getitem__(self, i):
            return TEXTS[i]

    stream = plain(text for text in TEXTS)
    assert next(stream)["label"] in ("no", "yes", "perhaps") and len(list(stream)) == 3
    assert [one["doubt"] for one in plain(Rows())] == [one["doubt"] for one in plain(TEXTS)]


def test_what_cannot_be_used_is_told(bert, vit, plain, guarded, tmp_path):
    with pytest.raises(ModelError, match="expected a model of pictures for image-classification, got hf:"):
        nescio.pipeline("image-classification", bert)
    with pytest.raises(InputError, match="there is none"):
        nescio.pipeline("text-classification", tmp_path / "nowhere")
    with pytest.raises(ModelError, match="expected a folder, an id, or a model of transformers"):
        nescio.pipeline("text-classification", torch.nn.Linear(2, 3))
    with pytest.raises(InputError, match="expected a text, or a mapping of text and text_pair, got"):
        plain(3)
    with pytest.raises(InputError, match=r"expected a picture at nowhere\.png, but it cannot be read"):
        guarded("nowhere.png")
    with pytest.raises(InputError, match="top_k"):
        plain("good", top_k=0)
    several = saved_text_model(tmp_path / "several", problem_type="multi_label_classification")
    with pytest.raises(ModelError, match="labels of which one is right, got a model of multi label classification"):
        nescio.pipeline("text-classification", several)


def test_a_pair_of_texts_is_read_as_by_transformers(plain, bert):
    pair = {"text": "good", "text_pair": "bad film"}
    assert usual(plain([pair])) == transformers.pipeline("text-classification", model=str(bert))([pair])
