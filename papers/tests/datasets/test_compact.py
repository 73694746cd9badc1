"""Sets from compact files, made here."""

import io
import json
import lzma
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from nescio.types import InputError, MissingExtra
from nescio_papers.datasets import load_set
from papers.tests.datasets.conftest import colour, grey, random


class TestCompact:
    def test_grey(self, root: Path) -> None:
        got = load_set("mnist", "test", root=root)
        assert got.x.dtype == torch.uint8
        assert got.y.dtype == torch.int64
        assert np.array_equal(got.x.numpy(), random(5, 28, 28)[:, None])
        assert got.y.tolist() == [0, 1, 2, 3, 4]
        assert (got.name, got.split, got.classes) == ("mnist", "test", tuple("0123456789"))
        assert len(got) == 5
        assert "5 of the 10000 official pictures" in got.about
        assert str(root) in got.about

    def test_colour_in_parts_is_without_loss_and_in_order(self, root: Path) -> None:
        got = load_set("cifar10", root=root)
        assert np.array_equal(got.x.numpy(), random(7, 32, 32, 3).transpose(0, 3, 1, 2))
        assert got.x.is_contiguous()
        assert got.y.tolist() == [9, 0, 1, 2, 3, 4, 5]
        assert got.classes[9] == "truck"

    def test_ten_parts_are_in_the_order_of_their_numbers(self, tmp_path: Path) -> None:
        x = random(11, 32, 32, 3)
        for number in range(11):
            colour(tmp_path / f"svhn_test_{number}.zip", [x[number : number + 1]])
        np.savez(tmp_path / "labels.npz", svhn_test=np.zeros(11, np.uint8))
        got = load_set("svhn", root=tmp_path)
        assert np.array_equal(got.x.numpy(), x.transpose(0, 3, 1, 2))
        assert "reconstructed" in got.about
        assert "not the official" in got.about

    def test_names_of_classes_from_the_file(self, root: Path) -> None:
        (root / "classes.json").write_text(json.dumps({"cifar10": [f"kind {k}" for k in range(10)]}))
        assert load_set("cifar10", root=root).classes[2] == "kind 2"
        assert load_set("mnist", root=root).classes[2] == "2"
        (root / "classes.json").write_text(json.dumps({"cifar10": ["a", 2]}))
        with pytest.raises(InputError, match=r"list of names under 'cifar10' in .*classes\.json"):
            load_set("cifar10", root=root)
        (root / "classes.json").write_text("{")
        with pytest.raises(InputError, match=r"names of classes from .*classes\.json"):
            load_set("cifar10", root=root)

    def test_fewer_names_than_labels(self, root: Path) -> None:
        (root / "classes.json").write_text(json.dumps({"mnist": ["a", "b"]}))
        with pytest.raises(InputError, match="labels from 0 to 1, one for each class name, but they run from 0 to 4"):
            load_set("mnist", root=root)

    def test_several_folders_by_argument_and_environment(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = root / "other"
        other.mkdir()
        both = os.pathsep.join([str(other), str(root)])
        assert len(load_set("mnist", root=both)) == 5
        monkeypatch.setenv("NESCIO_DATA", both)
        assert len(load_set("mnist")) == 5
        grey(other / "mnist_test.npy.xz", random(2, 28, 28))
        np.savez(other / "labels.npz", mnist_test=np.zeros(2, np.uint8))
        assert len(load_set("mnist")) == 2  # the first folder comes first

    @pytest.mark.parametrize("cut", [10, 200, 2000])
    @pytest.mark.parametrize("file", ["mnist_test.npy.xz", "cifar10_test_1.zip", "labels.npz"])
    def test_a_file_cut_short_is_named(self, root: Path, file: str, cut: int) -> None:
        blob = (root / file).read_bytes()
        (root / file).write_bytes(blob[: min(cut, len(blob) - 1)])
        name = "cifar10" if file.startswith("cifar") else "mnist"
        with pytest.raises(InputError, match=f"cannot read .*{file}.*get it again"):
            load_set(name, root=root)

    def test_a_changed_byte_is_found(self, root: Path) -> None:
        blob = bytearray((root / "cifar10_test_1.zip").read_bytes())
        blob[len(blob) // 2] ^= 255
        (root / "cifar10_test_1.zip").write_bytes(blob)
        with pytest.raises(InputError, match=r"cifar10_test_1\.zip: Bad CRC"):
            load_set("cifar10", root=root)

    def test_a_damaged_picture_is_named(self, root: Path) -> None:
        with zipfile.ZipFile(root / "cifar10_test_1.zip", "w") as archive:
            archive.writestr("0002.webp", b"no picture")
        with pytest.raises(InputError, match=r"0002\.webp in .*cifar10_test_1\.zip"):
            load_set("cifar10", root=root)

    def test_pictures_that_are_not_square(self, root: Path) -> None:
        colour(root / "cifar10_test_1.zip", [random(1, 33, 32, 3)])
        with pytest.raises(InputError, match=r"square pictures in 0000\.webp .*32 by 33"):
            load_set("cifar10", root=root)

    def test_pictures_of_two_sizes(self, root: Path) -> None:
        colour(root / "cifar10_test_1.zip", [random(1, 16, 16, 3)])
        with pytest.raises(InputError, match="pictures of one size"):
            load_set("cifar10", root=root)

    def test_an_archive_without_pictures(self, root: Path) -> None:
        (root / "cifar10_test_1.zip").unlink()
        colour(root / "cifar10_test_0.zip", [])
        with pytest.raises(InputError, match="holds none"):
            load_set("cifar10", root=root)

    def test_a_missing_part(self, root: Path) -> None:
        (root / "cifar10_test_1.zip").rename(root / "cifar10_test_2.zip")
        with pytest.raises(InputError, match=r"cifar10_test_1\.zip in .* missing"):
            load_set("cifar10", root=root)

    def test_a_missing_last_part(self, root: Path) -> None:
        (root / "cifar10_test_1.zip").unlink()
        with pytest.raises(InputError, match="5 pictures and 7 labels"):
            load_set("cifar10", root=root)

    def test_labels_of_another_kind(self, root: Path) -> None:
        np.savez(root / "labels.npz", mnist_test=np.zeros(5))
        with pytest.raises(InputError, match=r"whole numbers \[N\] as mnist_test in .*labels\.npz.*float64"):
            load_set("mnist", root=root)

    def test_no_labels(self, root: Path) -> None:
        (root / "labels.npz").unlink()
        with pytest.raises(InputError, match="none has an array 'mnist_test'"):
            load_set("mnist", root=root)

    def test_grey_of_another_type(self, root: Path) -> None:
        grey(root / "mnist_test.npy.xz", random(5, 28, 28).astype(np.float32))
        with pytest.raises(InputError, match=r"uint8 pictures \[N, H, W\] in .*float32 \[5, 28, 28\]"):
            load_set("mnist", root=root)

    def test_nothing_is_unpickled(self, root: Path) -> None:
        blob = io.BytesIO()
        np.save(blob, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        (root / "mnist_test.npy.xz").write_bytes(lzma.compress(blob.getvalue()))
        with pytest.raises(InputError, match="allow_pickle"):
            load_set("mnist", root=root)

    def test_without_pillow(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
        with pytest.raises(MissingExtra, match=r"nescio\[data\]"):
            load_set("cifar10", root=root)
        assert len(load_set("mnist", root=root)) == 5
