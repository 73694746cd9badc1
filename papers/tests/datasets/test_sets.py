"""Sets by name: pictures in a folder, bundled ones, and real data where NESCIO_DATA names it."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nescio.data import digits, to_float
from nescio.data.pictures import PictureSet
from nescio.types import InputError
from nescio_papers.datasets import SETS, load_set, soft_labels
from papers.tests.datasets.conftest import colour, random


class TestLsun:
    def test_folder_of_pictures(self, tmp_path: Path) -> None:
        for kind in ("bridge", "tower"):
            (tmp_path / "lsun" / kind).mkdir(parents=True)
            Image.fromarray(random(32, 32, 3)).save(tmp_path / "lsun" / kind / "a.png")
        Image.fromarray(np.full((90, 120, 3), 77, np.uint8)).save(tmp_path / "lsun" / "tower" / "b.PNG")
        got = load_set("lsun", root=tmp_path)
        assert np.array_equal(got.x[0].numpy(), random(32, 32, 3).transpose(2, 0, 1))
        assert got.y.tolist() == [0, 1, 1]
        assert got.classes == ("bridge", "tower")
        assert (got.x[2] == 77).all()

    def test_a_damaged_picture_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "lsun").mkdir()
        (tmp_path / "lsun" / "a.jpg").write_bytes(b"no picture")
        with pytest.raises(InputError, match=r"the picture .*a\.jpg"):
            load_set("lsun", root=tmp_path)

    def test_scenes_never_stand_for_it(self, tmp_path: Path) -> None:
        colour(tmp_path / "scenes_test_0.zip", [random(2, 32, 32, 3)])
        np.savez(tmp_path / "labels.npz", scenes_test=np.zeros(2, np.uint8))
        assert "not LSUN" in load_set("scenes", root=tmp_path).about
        with pytest.raises(InputError, match=r"a folder 'lsun'.*'scenes' is another set"):
            load_set("lsun", root=tmp_path, download=True)


class TestBundled:
    def test_digits(self) -> None:
        parts = {split: load_set("digits", split) for split in ("train", "validation", "test")}
        assert [len(part) for part in parts.values()] == [1347, 150, 300]
        for got, part in zip(parts.values(), (digits().train, digits().validation, digits().held_out), strict=True):
            assert torch.equal(got.y, part.y)
            assert torch.equal(got.x, (part.x * 255).round().to(torch.uint8))
            assert (to_float(got.x) - part.x).abs().max() <= 0.5 / 255 + 1e-7
        assert "255 · count / 16" in parts["test"].about

    @pytest.mark.parametrize("name", ["photo_patches", "drawn_letters"])
    def test_not_digits(self, name: str) -> None:
        got = load_set(name)
        assert got.x.shape[1:] == (1, 8, 8)
        assert len(got) >= 300
        assert not got.y.any()
        assert "no labels" in got.about
        assert got.x.unique(dim=0).shape[0] > 0.9 * len(got)


class TestErrors:
    def test_unknown_name_and_split(self) -> None:
        with pytest.raises(InputError, match=r"expected one of mnist, fashion, .* but got 'mnits'"):
            load_set("mnits")
        with pytest.raises(InputError, match="expected one of train, test for mnist, but got 'validation'"):
            load_set("mnist", "validation")
        with pytest.raises(InputError, match="expected one of test for scenes"):
            load_set("scenes", "train")

    def test_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as caught:
            load_set("cifar10", "train", root=os.pathsep.join([str(tmp_path), str(tmp_path / "gone")]))
        text = str(caught.value)
        for part in (f"{tmp_path} or", "gone (no such folder)", "cifar10_train_0.zip", "data_batch_5", "NESCIO_DATA"):
            assert part in text
        assert "download=True" in text
        assert "has some" not in text

    def test_where_it_looks_without_a_root(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("NESCIO_DATA", "")
        monkeypatch.setenv("HOME", str(tmp_path))
        with pytest.raises(InputError, match=str(tmp_path / ".cache" / "nescio" / "data")):
            load_set("mnist")
        with pytest.raises(InputError, match="root: expected a folder"):
            load_set("mnist", root="")


@pytest.fixture
def real() -> None:
    if not os.environ.get("NESCIO_DATA"):
        pytest.skip("no real data: the environment variable NESCIO_DATA names no folder")


def read_or_skip(name: str, split: str) -> PictureSet:
    try:
        return load_set(name, split)
    except InputError as error:
        if "they are not there" in str(error):
            pytest.skip(f"{name} {split} is not in the folders of NESCIO_DATA")
        raise


# published or widely used channel means
MEANS = {
    ("mnist", "train"): [0.1307],
    ("fashion", "test"): [0.2868],
    ("cifar10", "train"): [0.4914, 0.4822, 0.4465],
    ("cifar10", "test"): [0.4942, 0.4851, 0.4504],
    ("cifar100", "train"): [0.5071, 0.4865, 0.4409],
    ("svhn", "test"): [0.4524, 0.4525, 0.4690],
}


@pytest.mark.usefixtures("real")
class TestReal:
    @pytest.mark.parametrize(("name", "split"), MEANS)
    def test_means(self, name: str, split: str) -> None:
        got = read_or_skip(name, split)
        assert len(got) == SETS[name].counts[split]
        mean = torch.stack([got.x[:, channel].double().mean() for channel in range(got.x.shape[1])]) / 255
        assert mean.tolist() == pytest.approx(MEANS[name, split], abs=6e-5)

    def test_people_agree_with_the_labels(self) -> None:
        got = read_or_skip("cifar10", "test")
        assert (soft_labels().argmax(1) == got.y).double().mean() > 0.99
