"""Sets from tiny files made here; with real data only where NESCIO_DATA names it."""

import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nescio.data import digits, subset, to_float
from nescio.data.pictures import PictureSet
from nescio.types import InputError, MissingExtra
from nescio_papers.datasets import SETS, load_set, soft_labels


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No test finds data by accident, but those that ask for it."""
    if "real" not in request.fixturenames:
        monkeypatch.setenv("NESCIO_DATA", str(tmp_path / "nowhere"))


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def grey(path: Path, array: np.ndarray) -> None:
    blob = io.BytesIO()
    np.save(blob, array)
    path.write_bytes(lzma.compress(blob.getvalue()))


def colour(path: Path, columns: list[np.ndarray], first: int = 0) -> None:
    """Each column [K, S, S, 3] becomes one lossless WebP."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, column in enumerate(columns):
            blob = io.BytesIO()
            Image.fromarray(column.reshape(-1, *column.shape[2:])).save(blob, "WEBP", lossless=True)
            archive.writestr(f"{first + number:04d}.webp", blob.getvalue())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """MNIST test (5 grey pictures) and CIFAR-10 test (7 colour pictures in two parts and three columns)."""
    grey(tmp_path / "mnist_test.npy.xz", random(5, 28, 28))
    x = random(7, 32, 32, 3)
    colour(tmp_path / "cifar10_test_0.zip", [x[:3], x[3:5]])
    colour(tmp_path / "cifar10_test_1.zip", [x[5:]], first=2)
    np.savez(tmp_path / "labels.npz", mnist_test=np.arange(5, dtype=np.uint8))
    np.savez(tmp_path / "labels_cifar10.npz", cifar10_test=np.array([9, 0, 1, 2, 3, 4, 5], np.uint8))
    return tmp_path


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


class TestPictures:
    def small(self, n: int = 10) -> PictureSet:
        x = torch.arange(n, dtype=torch.uint8).reshape(n, 1, 1, 1).expand(n, 1, 8, 8)
        return PictureSet(x, torch.arange(n), "small", "test", tuple(map(str, range(n))), "made up")

    def test_subset(self) -> None:
        whole = self.small()
        part = subset(whole, 4, seed=3)
        assert torch.equal(part.x[:, 0, 0, 0].long(), part.y)  # pictures and labels stay together
        assert part.y.tolist() == sorted(set(part.y.tolist()))
        assert torch.equal(part.y, subset(whole, 4, seed=3).y)
        assert any(not torch.equal(part.y, subset(whole, 4, seed=seed).y) for seed in range(3))
        assert set(part.y.tolist()) <= set(subset(whole, 7, seed=3).y.tolist())
        assert subset(whole, 10) is whole
        assert "4 of these 10" in part.about

    def test_subset_leaves_the_generator_alone(self) -> None:
        state = torch.get_rng_state()
        subset(self.small(), 4)
        assert torch.equal(state, torch.get_rng_state())

    @pytest.mark.parametrize("n", [0, 11, 2.0, True])
    def test_subset_of_a_wrong_size(self, n: object) -> None:
        with pytest.raises(InputError, match="1 to 10 pictures of small test"):
            subset(self.small(), n)  # type: ignore[arg-type]

    def test_to_float(self) -> None:
        got = to_float(torch.tensor([0, 51, 255], dtype=torch.uint8))
        assert got.dtype == torch.float32
        assert torch.equal(got, torch.tensor([0, 0.2, 1.0]))
        with pytest.raises(InputError, match=r"uint8 tensor, but got torch\.float32"):
            to_float(got)

    def test_a_set_is_checked(self) -> None:
        with pytest.raises(InputError, match=r"uint8 \[N, C, H, W\], at least one, but got float32 \[2, 1, 8, 8\]"):
            PictureSet(torch.zeros(2, 1, 8, 8), torch.zeros(2).long(), "a", "test", ("b",), "")
        with pytest.raises(InputError, match="at least one"):
            PictureSet(torch.zeros(0, 1, 8, 8).byte(), torch.zeros(0).long(), "a", "test", ("b",), "")
        with pytest.raises(InputError, match="one int64 label"):
            PictureSet(torch.zeros(2, 1, 8, 8).byte(), torch.zeros(3).long(), "a", "test", ("b",), "")


class TestSoftLabels:
    def write(self, folder: Path, counts: np.ndarray) -> None:
        np.savez_compressed(folder / "cifar10h.npz", counts=counts)

    def test_shares(self, tmp_path: Path) -> None:
        counts = np.ones((10000, 10), np.uint8)
        counts[0] = [0, 3, 1, 0, 0, 0, 0, 0, 0, 0]
        self.write(tmp_path, counts)
        got = soft_labels("cifar10h", root=tmp_path)
        assert got.dtype == torch.float64
        assert got.shape == (10000, 10)
        assert got[0].tolist() == [0, 0.75, 0.25, 0, 0, 0, 0, 0, 0, 0]
        assert (got.sum(1) - 1).abs().max() < 1e-15

    def test_errors(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"cifar10h\.npz.*NESCIO_DATA"):
            soft_labels(root=tmp_path)
        with pytest.raises(InputError, match="expected one of cifar10h"):
            soft_labels("cifar100h")
        self.write(tmp_path, np.ones((9999, 10)))
        with pytest.raises(InputError, match=r"\[10000, 10\].*\[9999, 10\]"):
            soft_labels(root=tmp_path)
        for place, bad in (((7,), 0), ((7, 3), -1), ((7, 3), np.nan)):
            counts = np.ones((10000, 10))
            counts[place] = bad
            self.write(tmp_path, counts)
            with pytest.raises(InputError, match="none negative, and one or more"):
                soft_labels(root=tmp_path)


@pytest.fixture
def real() -> None:
    if not os.environ.get("NESCIO_DATA"):
        pytest.skip("no real data: the environment variable NESCIO_DATA names no folder")


def found(name: str, split: str) -> PictureSet:
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
        got = found(name, split)
        assert len(got) == SETS[name].counts[split]
        mean = torch.stack([got.x[:, channel].double().mean() for channel in range(got.x.shape[1])]) / 255
        assert mean.tolist() == pytest.approx(MEANS[name, split], abs=6e-5)

    def test_people_agree_with_the_labels(self) -> None:
        got = found("cifar10", "test")
        assert (soft_labels().argmax(1) == got.y).double().mean() > 0.99
