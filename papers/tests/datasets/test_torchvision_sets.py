"""Sets from the files that torchvision keeps, made here."""

import gzip
import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nescio.types import InputError
from nescio_papers.datasets import load_set
from papers.tests.datasets.conftest import random


def idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(head + array.tobytes())


def idx_files(folder: Path) -> None:
    for part, count in (("train", 6), ("t10k", 4)):
        idx(folder / f"{part}-images-idx3-ubyte", random(count, 28, 28))
        idx(folder / f"{part}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8))


def offline(*_: object, **__: object) -> None:
    raise OSError("no network here")


class TestTorchvision:
    @pytest.mark.parametrize(
        ("name", "folder", "third"), [("mnist", "MNIST", "2"), ("fashion", "FashionMNIST", "Pullover")]
    )
    def test_idx(self, tmp_path: Path, name: str, folder: str, third: str) -> None:
        idx_files(tmp_path / folder / "raw")
        for split, count in (("train", 6), ("test", 4)):
            got = load_set(name, split, root=tmp_path)
            assert np.array_equal(got.x.numpy(), random(count, 28, 28)[:, None])
            assert got.y.tolist() == list(range(count))
            assert got.classes[2] == third
            assert "torchvision" in got.about

    def test_compact_files_come_first(self, root: Path) -> None:
        idx_files(root / "MNIST" / "raw")
        assert len(load_set("mnist", root=root)) == 5

    def test_idx_cut_short(self, tmp_path: Path) -> None:
        idx_files(tmp_path / "MNIST" / "raw")
        file = tmp_path / "MNIST" / "raw" / "t10k-images-idx3-ubyte"
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(InputError, match=r"could not read mnist test.*MNIST/raw/t10k-images-idx3-ubyte"):
            load_set("mnist", root=tmp_path)

    def test_more_labels_than_pictures(self, tmp_path: Path) -> None:
        idx_files(tmp_path / "MNIST" / "raw")
        idx(tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte", np.zeros(5, np.uint8))
        with pytest.raises(InputError, match="one int64 label for each of the 4 pictures"):
            load_set("mnist", root=tmp_path)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        idx_files(tmp_path / "MNIST" / "raw")
        (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").unlink()
        with pytest.raises(
            InputError, match=r"some of torchvision's files, but not MNIST/raw/train-labels-idx1-ubyte\."
        ):
            load_set("mnist", root=tmp_path)

    def test_cifar10(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from torchvision.datasets import CIFAR10

        folder = tmp_path / "cifar-10-batches-py"
        folder.mkdir()

        def write(name: str, content: dict[str, object]) -> str:
            (folder / name).write_bytes(pickle.dumps(content))
            return hashlib.md5((folder / name).read_bytes()).hexdigest()

        rows = {number: random(2, 3072, seed=number) for number in range(6)}
        train = [
            [f"data_batch_{number}", write(f"data_batch_{number}", {"data": rows[number], "labels": [number, 0]})]
            for number in range(1, 6)
        ]
        test = [["test_batch", write("test_batch", {"data": rows[0], "labels": [8, 1]})]]
        meta = write("batches.meta", {"label_names": list("abcdefghij")})
        monkeypatch.setattr(CIFAR10, "train_list", train)
        monkeypatch.setattr(CIFAR10, "test_list", test)
        monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": meta})

        got = load_set("cifar10", "train", root=tmp_path)
        wanted = np.concatenate([rows[number] for number in range(1, 6)]).reshape(10, 3, 32, 32)
        assert np.array_equal(got.x.numpy(), wanted)
        assert got.y.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
        assert got.classes == tuple("abcdefghij")
        assert load_set("cifar10", "test", root=tmp_path).y.tolist() == [8, 1]

        (folder / "test_batch").write_bytes(b"cut short")  # never unpickled: the checksum is looked at first
        with pytest.raises(InputError, match="corrupted"):
            load_set("cifar10", "test", root=tmp_path)

    def test_svhn(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from scipy.io import savemat
        from torchvision.datasets import SVHN

        x = random(32, 32, 3, 4)
        savemat(tmp_path / "test_32x32.mat", {"X": x, "y": np.array([[10], [1], [2], [9]], np.uint8)})
        md5 = hashlib.md5((tmp_path / "test_32x32.mat").read_bytes()).hexdigest()
        monkeypatch.setattr(SVHN, "split_list", {**SVHN.split_list, "test": ["", "test_32x32.mat", md5]})
        got = load_set("svhn", root=tmp_path)
        assert np.array_equal(got.x.numpy(), x.transpose(3, 2, 0, 1))
        assert got.y.tolist() == [0, 1, 2, 9]
        assert got.classes == tuple("0123456789")
        assert "reconstructed" not in got.about

    def test_omniglot_is_white_on_black_and_28_pixels(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from torchvision.datasets import Omniglot

        base = tmp_path / "omniglot-py"
        drawn = np.full((105, 105), 255, np.uint8)
        drawn[30:60, 45:60] = 0  # black ink
        for alphabet, character in (("Alpha", "character01"), ("Alpha", "character02"), ("Beta", "character01")):
            folder = base / "images_evaluation" / alphabet / character
            folder.mkdir(parents=True)
            Image.fromarray(drawn).convert("1").save(folder / "0001_01.png")
        (base / "images_evaluation.zip").write_bytes(b"archive")
        sums = {**Omniglot.zips_md5, "images_evaluation": hashlib.md5(b"archive").hexdigest()}
        monkeypatch.setattr(Omniglot, "zips_md5", sums)

        got = load_set("omniglot", "test", root=tmp_path)
        assert got.x.shape == (3, 1, 28, 28)
        assert got.y.tolist() == [0, 1, 2]
        assert got.classes == ("Alpha/character01", "Alpha/character02", "Beta/character01")
        # pixels of 3.75: rows 8 to 16 and columns 12 to 16 are ink; Lanczos rings a little
        assert (got.x[0, 0, 9:15, 13:15] >= 250).all()
        assert (got.x[0, 0, :5] == 0).all()
        assert got.x[0].double().mean().item() == pytest.approx(255 * 30 * 15 / 105**2, rel=0.05)  # the ink is kept

    def test_download_is_handed_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The packed files are there already, with other checksums, so that no network is needed."""
        from torchvision.datasets import MNIST

        raw = tmp_path / "new" / "folder" / "MNIST" / "raw"
        idx_files(tmp_path / "unpacked")
        raw.mkdir(parents=True)
        resources = []
        for file in sorted((tmp_path / "unpacked").iterdir()):
            packed = raw / f"{file.name}.gz"
            packed.write_bytes(gzip.compress(file.read_bytes()))
            resources.append((packed.name, hashlib.md5(packed.read_bytes()).hexdigest()))
        monkeypatch.setattr(MNIST, "resources", resources)
        got = load_set("mnist", root=tmp_path / "new" / "folder", download=True)
        assert len(got) == 4
        assert "fetched by torchvision" in got.about

    @pytest.mark.parametrize("name", ["mnist", "fashion", "cifar10", "cifar100", "svhn", "omniglot"])
    def test_offline(self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("urllib.request.urlopen", offline)
        wanted = {"mnist": "MNIST/raw/t10k-images-idx3-ubyte", "svhn": "test_32x32.mat", "cifar10": "test_batch"}
        with pytest.raises(InputError) as caught:
            load_set(name, root=tmp_path / "new", download=True)
        text = str(caught.value)
        assert f"could not fetch {name} test" in text
        assert str(tmp_path / "new") in text
        assert wanted.get(name, "") in text
        assert len(text) < 1200

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="cannot create the folder"):
            load_set("mnist", root=tmp_path / "file" / "below", download=True)
