"""Every kind of data source, with files that are written on the spot, whole and broken."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from nescio.data.sources import Problem, Rows, open_data
from nescio.data.sources.array_rows import Placed
from nescio.data.sources.decode import decode
from nescio.data.tables import write_table
from nescio.types import InputError

image = pytest.importorskip("PIL.Image")


class Resized:
    """A pre-processing of pictures, as a model has one."""

    kind = "pictures"

    def __call__(self, row):
        if isinstance(row, torch.Tensor):
            return row.float()
        array = np.array(row.convert("RGB").resize((4, 4)))
        return torch.from_numpy(array).permute(2, 0, 1).float() / 255

    def collate(self, rows):
        return torch.stack(rows)

    def __str__(self):
        return "resize 4"


class Counted:
    """A pre-processing of texts: as many zeros as it has words, padded in a batch."""

    kind = "texts"

    def __call__(self, row):
        return {"input_ids": torch.arange(len(row.split()))}

    def collate(self, rows):
        return {"input_ids": torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], True)}


def colours(width=6, height=5, seed=0):
    return image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def write_pictures(folder, names):
    for seed, name in enumerate(names):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        colours(seed=seed).save(file)


def gathered(rows, size=2, **more):
    return [list(batch.names) for batch in rows.batches(size, **more)]


# folders and lists


def test_a_folder_of_classes_in_the_order_of_paths(tmp_path):
    names = ["dog/b.png", "cat/2.jpg", "cat/deep/1.PNG", "dog/é ü.png", "cat/10.jpg", "zebra/ß.bmp"]
    write_pictures(tmp_path, names)
    (tmp_path / "notes.md").write_text("not a picture")
    (tmp_path / ".hidden.png").write_text("left out")
    rows = open_data(tmp_path, preprocess=Resized())
    assert rows.names == ["cat/10.jpg", "cat/2.jpg", "cat/deep/1.PNG", "dog/b.png", "dog/é ü.png", "zebra/ß.bmp"]
    assert rows.labels.tolist() == [0, 0, 0, 1, 1, 2]
    assert rows.classes == ("cat", "dog", "zebra")
    assert rows.about == f"6 pictures in 3 classes in {tmp_path}; 1 other file left out, such as notes.md"
    batches = list(rows.batches(4))
    assert [batch.indices.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5]]
    assert [batch.labels.tolist() for batch in batches] == [[0, 0, 0, 1], [1, 2]]
    assert batches[0].inputs.shape == (4, 3, 4, 4)
    assert torch.equal(batches[1].inputs[0], rows.read(4))
    assert rows.problems == []


def test_the_models_classes_give_the_place_of_a_folders_name(tmp_path):
    write_pictures(tmp_path, ["dog/1.png", "cat/1.png"])
    rows = open_data(tmp_path, classes=("ant", "dog", "cat"))
    assert (rows.labels.tolist(), rows.classes) == ([2, 1], ("ant", "dog", "cat"))
    rows = open_data(tmp_path, classes=("ant", "bee"))  # other words altogether: their own order
    assert (rows.labels.tolist(), rows.classes) == ([0, 1], ("cat", "dog"))


def test_folders_and_lists_have_no_labels_where_none_are_asked_for(tmp_path):
    write_pictures(tmp_path / "p", ["dog/1.png", "cat/1.png"])
    rows = open_data(tmp_path / "p", label=None, classes=("ant", "dog", "cat"))
    assert (rows.labels, rows.classes) == (None, ("ant", "dog", "cat"))
    assert rows.about == f"2 pictures in {tmp_path / 'p'}"
    (tmp_path / "list.txt").write_text("p/dog/1.png\t1\np/cat/1.png\t0\n")
    rows = open_data(tmp_path / "list.txt", label=None)
    assert rows.labels is None and rows.about == f"2 pictures of {tmp_path / 'list.txt'}"


@pytest.mark.parametrize("names", [["a.png", "b.png"], ["a.png", "x/b.png"], ["x/a.png", "x/b.png"]])
def test_a_folder_without_classes_has_no_labels(tmp_path, names):
    write_pictures(tmp_path, names)
    rows = open_data(tmp_path)
    assert rows.labels is None
    assert list(rows.names) == names
    assert next(rows.batches(2)).labels is None


def test_empty_and_missing_folders_are_told(tmp_path):
    with pytest.raises(InputError, match=r"expected pictures \(.jpg.* found nothing"):
        open_data(tmp_path)
    (tmp_path / "a.md").write_text("")
    with pytest.raises(InputError, match=r"found 1 other file, such as a\.md"):
        open_data(tmp_path)
    with pytest.raises(InputError, match=r"expected a data file at .*nowhere, but there is none"):
        open_data(tmp_path / "nowhere")
    (tmp_path / "x.xyz").write_text("")
    with pytest.raises(InputError, match=r"expected a folder of pictures, a \.txt list, .*got .*x\.xyz"):
        open_data(tmp_path / "x.xyz")


def test_a_circle_of_links_ends(tmp_path):
    write_pictures(tmp_path, ["a/1.png", "b/2.png"])
    os.symlink(tmp_path, tmp_path / "a" / "round")
    assert list(open_data(tmp_path).names) == ["a/1.png", "b/2.png"]


def test_a_list_of_paths_with_and_without_labels(tmp_path):
    write_pictures(tmp_path, ["one.png", "two words.png", "three.png"])
    (tmp_path / "plain.txt").write_text("one.png\n\ntwo words.png\nmissing one.png\n")
    rows = open_data(tmp_path / "plain.txt", on_error="skip")
    assert list(rows.names) == ["one.png", "two words.png", "missing one.png"]
    assert rows.labels is None
    assert gathered(rows) == [["one.png", "two words.png"]]
    assert [(p.index, p.name, p.reason) for p in rows.problems] == [(2, "missing one.png", "No such file or directory")]
    (tmp_path / "spaced.txt").write_text("one.png 1\ntwo words.png 0\n")
    assert open_data(tmp_path / "spaced.txt").labels.tolist() == [1, 0]
    (tmp_path / "tabs.txt").write_text("one.png\tred\ntwo words.png\tdark blue\nthree.png\tred\n")
    rows = open_data(tmp_path / "tabs.txt")
    assert (rows.labels.tolist(), rows.classes) == ([1, 0, 1], ("dark blue", "red"))
    (tmp_path / "gap.txt").write_text("one.png\tred\ntwo words.png\tblue\nthree.png\n")
    with pytest.raises(InputError, match=r"cannot use three\.png \(row 2\): it has no label"):
        list(open_data(tmp_path / "gap.txt").batches(3))
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InputError, match="expected a path on each line"):
        open_data(tmp_path / "empty.txt")


# pictures


@pytest.fixture
def odd(tmp_path):
    """Pictures of every kind, and files that are none."""
    colours(8, 8).convert("CMYK").save(tmp_path / "cmyk.jpg")
    colours(8, 8).convert("L").save(tmp_path / "grey.png")
    colours(8, 8).quantize(16).save(tmp_path / "palette.png")
    clear = colours(8, 8).quantize(16)
    clear.save(tmp_path / "clear.png", transparency=bytes(range(16)))
    colours(8, 8).convert("RGBA").save(tmp_path / "alpha.png")
    colours(8, 8).convert("LA").save(tmp_path / "grey_alpha.png")
    colours(8, 8).convert("1").save(tmp_path / "bits.png")
    image.fromarray(np.full((8, 8), 257 * 200, dtype=np.uint16)).save(tmp_path / "deep.png")
    exif = image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right
    turned = image.fromarray(np.stack([np.arange(64).reshape(8, 8)] * 3, -1).astype(np.uint8))
    turned.save(tmp_path / "turned.png", exif=exif)
    colours(8, 8).save(tmp_path / "animated.gif", save_all=True, append_images=[colours(8, 8, 1)])
    bad = tmp_path / "bad"
    bad.mkdir()
    colours(64, 64).save(bad / "cut.jpg")
    whole = (bad / "cut.jpg").read_bytes()
    (bad / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (bad / "text.jpg").write_text("I am no picture")
    (bad / "empty.png").write_bytes(b"")
    image.fromarray(np.ones((8, 8), dtype=np.float32)).save(bad / "floats.tif")
    (bad / "folder.png").mkdir()
    (bad / "folder.png" / "inside.png").write_bytes(b"GIF89a")
    return tmp_path


def test_pictures_of_every_kind_come_out_in_colour(odd):
    rows = open_data(odd, on_error="skip")
    batches = list(rows.batches(64))
    assert sorted(batches[0].names) == sorted(
        ["cmyk.jpg", "grey.png", "palette.png", "clear.png", "alpha.png", "grey_alpha.png", "bits.png", "deep.png",
         "turned.png", "animated.gif"]
    )  # fmt: skip
    assert batches[0].inputs.shape == (10, 3, 8, 8)
    assert {problem.name: problem.reason.split(";")[0] for problem in rows.problems} == {
        "bad/cut.jpg": rows.problems[0].reason,
        "bad/text.jpg": "it is not a picture, or one of an unknown kind",
        "bad/empty.png": "it is not a picture, or one of an unknown kind",
        "bad/floats.tif": "it has floating-point pixels, whose range is not known",
        "bad/folder.png/inside.png": "it is not a picture, or one of an unknown kind",
    }
    assert "truncated" in rows.problems[0].reason


def test_depth_rotation_and_transparency(odd):
    assert set(np.array(decode(odd / "deep.png")).ravel()) == {200}
    expected = np.rot90(np.arange(64).reshape(8, 8), -1)
    assert np.array_equal(np.array(decode(odd / "turned.png"))[..., 0], expected)
    assert decode(odd / "grey.png").mode == "L"
    plain = np.array(image.open(odd / "alpha.png").convert("RGB"))  # it has no transparent pixel
    assert np.array_equal(np.array(decode(odd / "alpha.png")), plain)
    assert decode(odd / "grey_alpha.png").mode == "L"
    assert decode((odd / "cmyk.jpg").read_bytes()).mode == "RGB"


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "RGB", "L"])
def test_what_is_transparent_lies_on_white(tmp_path, mode):
    """A black sign on nothing is a black sign on white, and not black on black."""
    grey = np.array([[0, 0], [0, 100]], dtype=np.uint8)
    alpha = np.array([[0, 255], [128, 255]], dtype=np.uint8)
    expected = [[255, 0], [127, 100]]
    if mode in ("RGB", "L"):  # one colour is transparent, and no other
        sign = image.fromarray(grey).convert(mode)
        sign.save(tmp_path / "sign.png", transparency=0 if mode == "L" else (0, 0, 0))
        expected = [[255, 255], [255, 100]]
    elif mode == "PA":
        sign = image.fromarray(np.array([[0, 1], [2, 3]], dtype=np.uint8)).convert("P")
        sign.putpalette([0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 100, 100])
        sign.save(tmp_path / "sign.png", transparency=bytes(alpha.ravel()))
    else:
        sign = image.fromarray(np.dstack([grey] * (len(mode) - 1) + [alpha]), mode=None)
        sign.save(tmp_path / "sign.png")
    found = decode(tmp_path / "sign.png")
    assert found.mode == ("L" if mode in ("L", "LA") else "RGB")
    found = np.array(found.convert("RGB")).astype(int)
    assert (found == found[..., :1]).all() and found[..., 0].tolist() == expected


def test_only_the_usual_kinds_are_opened_whatever_a_file_is_called(tmp_path, monkeypatch):
    """Pillow would start Ghostscript for the first."""
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("a program was started"))
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a program was started"))
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "a.png").write_bytes(postscript)
    os.mkfifo(tmp_path / "b.png")
    write_pictures(tmp_path, ["c.png"])
    rows = open_data(tmp_path, on_error="skip")
    assert sum(len(batch.inputs) for batch in rows.batches(4)) == 1
    reasons = {problem.name: problem.reason for problem in rows.problems}
    assert reasons == {
        "a.png": "it is not a picture, or one of an unknown kind",
        "b.png": "it is a pipe or a device, not a file",
    }
    with pytest.raises(InputError, match="it is not a picture"):
        decode(postscript)


def test_a_picture_with_too_many_pixels_is_a_problem(tmp_path, monkeypatch):
    write_pictures(tmp_path, ["a.png"])
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 10)
    rows = open_data(tmp_path, on_error="skip")
    assert "too many pixels" in str(rows.attempt(0))


def test_the_first_problem_stops_unless_it_is_to_be_skipped(odd):
    with pytest.raises(InputError, match=r"cannot use bad/cut\.jpg \(row \d+\): .*truncated.*\(--on-error skip\)"):
        list(open_data(odd).batches(64))
    with pytest.raises(InputError, match="on_error: expected 'stop' or 'skip'"):
        open_data(odd, on_error="ignore")
    for name in os.listdir(odd):
        if name != "bad":
            os.unlink(odd / name)
    with pytest.raises(InputError, match=r"none of the 5 rows can be used; the first: cut\.jpg"):
        list(open_data(odd / "bad", on_error="skip").batches(2))


def test_other_sizes_are_problems_that_name_the_remedy(tmp_path):
    write_pictures(tmp_path, ["a.png", "b.png", "c.png"])
    colours(9, 9).save(tmp_path / "b.png")
    rows = open_data(tmp_path, on_error="skip")
    assert gathered(rows) == [["a.png"], ["c.png"]]
    assert rows.problems[0].reason.startswith("expected [3, 5, 6] of float32 as the first row has, got [3, 9, 9]")
    assert gathered(open_data(tmp_path, preprocess=Resized())) == [["a.png", "b.png"], ["c.png"]]


def test_bad_rows_move_no_row_to_another_batch_and_reading_may_begin_anywhere(tmp_path):
    write_pictures(tmp_path, [f"{i}.png" for i in range(9)])
    for bad in (1, 4, 5):
        (tmp_path / f"{bad}.png").write_text("broken")
    rows = open_data(tmp_path, on_error="skip")
    whole = [batch.indices.tolist() for batch in rows.batches(3)]
    assert whole == [[0, 2], [3], [6, 7, 8]]
    again = open_data(tmp_path, on_error="skip")
    assert [batch.indices.tolist() for batch in again.batches(3, start=3)] == whole[1:]
    assert [problem.index for problem in again.problems] == [4, 5]
    assert [batch.indices.tolist() for batch in again.batches(3, start=4, stop=6)] == []
    list(again.batches(2))
    assert [problem.index for problem in again.problems] == [1, 4, 5]  # each once
    with pytest.raises(InputError, match=r"1\.png \(row 1\): it is not a picture"):
        rows.read(1)
    with pytest.raises(InputError, match="expected a row from 0 to 8, got 9"):
        rows.read(9)
    with pytest.raises(InputError, match="expected batches of at least 1 row"):
        next(rows.batches(0))


def test_threads_read_the_same_rows(tmp_path):
    write_pictures(tmp_path, [f"{i % 3}/{i:02d}.png" for i in range(40)])
    (tmp_path / "1" / "07.png").write_text("broken")
    one, many = (open_data(tmp_path, on_error="skip") for _ in range(2))
    with ThreadPoolExecutor(8) as pool:
        pairs = zip(one.batches(16), many.batches(16, mapper=pool.map), strict=True)
        for alone, together in pairs:
            assert torch.equal(alone.inputs, together.inputs)
            assert torch.equal(alone.labels, together.labels)
            assert alone.names == together.names
    assert one.problems == many.problems
    assert one.identity == many.identity
    (tmp_path / "1" / "07.png").unlink()
    assert open_data(tmp_path).identity != one.identity
    assert open_data(tmp_path, preprocess=Resized()).identity != open_data(tmp_path).identity


# arrays


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_arrays_with_labels(tmp_path, write):
    x = np.random.default_rng(0).random((7, 2, 3))
    write(tmp_path / "x.npz", x=x, y=np.arange(7) % 3, other=np.zeros(2))
    rows = open_data(tmp_path / "x.npz")
    assert len(rows) == 7
    assert rows.names[3] == "x.npz[3]"
    assert rows.names[-2:] == ["x.npz[5]", "x.npz[6]"]
    assert rows.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert rows.about == f"7 rows of {tmp_path / 'x.npz'}, float64 [2, 3], labels in y"
    assert torch.equal(torch.cat([batch.inputs for batch in rows.batches(3)]), torch.from_numpy(x))
    assert isinstance(rows.store._x, Placed) == (write is np.savez)
    assert open_data(tmp_path / "x.npz", label=None).labels is None
    with pytest.raises(InputError, match=r"expected an array named 'z' in .*x\.npz, but it holds: x, y, other"):
        open_data(tmp_path / "x.npz", x="z")
    with pytest.raises(InputError, match="expected one label for each of the 7 rows as 'other'"):
        next(open_data(tmp_path / "x.npz", label="other", on_error="skip").batches(3))


def test_several_arrays_are_one_input_by_their_names(tmp_path):
    a, b = np.random.default_rng(0).random((5, 2, 3)), np.arange(10).reshape(5, 2)
    np.savez(tmp_path / "x.npz", a=a, b=b, y=np.arange(5) % 2, short=np.zeros((4, 1)))
    rows = open_data(tmp_path / "x.npz", x=["b", "a"])
    assert rows.about == f"5 rows of {tmp_path / 'x.npz'}, b, a: int64 [2], labels in y, float64 [2, 3]"
    assert rows.labels.tolist() == [0, 1, 0, 1, 0] and len(rows.names) == 5
    (batch,) = rows.batches(9)
    assert list(batch.inputs) == ["b", "a"]
    assert batch.inputs["a"].tolist() == a.tolist() and batch.inputs["b"].tolist() == b.tolist()
    assert rows.identity != open_data(tmp_path / "x.npz", x=["a", "b"]).identity
    with pytest.raises(InputError, match=r"as many rows in each array of .*, but 'a' has 5, 'short' has 4"):
        open_data(tmp_path / "x.npz", x=["a", "short"])
    np.save(tmp_path / "x.npy", a)
    with pytest.raises(InputError, match="expected no names of arrays"):
        open_data(tmp_path / "x.npy", x=["a", "b"])


@pytest.mark.parametrize("dtype", [">f4", "<i8", "u1", "f2", "g", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_type_and_order(tmp_path, dtype, order):
    x = np.asarray(np.arange(24).reshape(4, 6) % 7, dtype=dtype, order=order)
    np.savez(tmp_path / "x.npz", only=x)
    found = torch.stack([open_data(tmp_path / "x.npz").read(i) for i in range(4)])
    assert found.tolist() == x.astype(found.numpy().dtype).tolist()


def test_an_npy_file_and_arrays_without_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    assert next(open_data(tmp_path / "x.npy").batches(9)).inputs.tolist() == np.eye(3).tolist()
    np.savez(tmp_path / "x.npz", x=np.zeros((0, 4)))
    rows = open_data(tmp_path / "x.npz")
    assert len(rows) == 0
    assert list(rows.batches(3)) == []
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object))
    with pytest.raises(InputError, match="expected an array of real numbers"):
        open_data(tmp_path / "o.npy")
    (tmp_path / "bad.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match="cannot read an array from"):
        open_data(tmp_path / "bad.npy")
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"expected 3 rows in .*, but it was cut short"):
        open_data(tmp_path / "cut.npy")
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="is not one"):
        open_data(tmp_path / "bad.npz")


def test_rows_with_nan_are_problems(tmp_path):
    x = np.ones((4, 2))
    x[2, 1] = np.nan
    np.savez(tmp_path / "x.npz", x=x)
    rows = open_data(tmp_path / "x.npz", on_error="skip")
    assert [batch.indices.tolist() for batch in rows.batches(4)] == [[0, 1, 3]]
    assert str(rows.problems[0]) == "x.npz[2] (row 2): it has NaN or infinite values"


def test_pictures_in_an_array_go_through_the_models_pre_processing(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.full((2, 3, 4, 4), 255, dtype=np.uint8))
    rows = open_data(tmp_path / "x.npz", preprocess=Resized())
    assert rows.read(0).dtype == torch.float32
    with pytest.raises(InputError, match=r"expected texts, as the model takes, but .*x\.npz holds numbers"):
        open_data(tmp_path / "x.npz", preprocess=Counted())


# CSV

CSV = """id,age,height,label
a,1,2.5,cat
b,2,x,dog
c,3
d,4,4.5,cat
e,,1.5,dog

f,5,1e3,
g,6,0.5,bird
h,inf,0.5,cat
"""


def test_a_table_of_numbers_with_bad_rows(tmp_path):
    (tmp_path / "t.csv").write_text(CSV)
    rows = open_data(tmp_path / "t.csv", on_error="skip")
    assert rows.about == f"8 rows of {tmp_path / 't.csv'}, columns age, height, labels in label"
    assert list(rows.names) == ["a", "b", "t.csv[2]", "d", "e", "f", "g", "h"]
    (batch,) = rows.batches(100)
    assert batch.names == ["a", "d", "g"]
    assert batch.inputs.tolist() == [[1, 2.5], [4, 4.5], [6, 0.5]]
    assert rows.classes == ("bird", "cat", "dog")
    assert batch.labels.tolist() == [1, 1, 0]
    assert [(p.name, p.reason.split(";")[0]) for p in rows.problems] == [
        ("b", "column 'height' has 'x', which is not a number"),
        ("t.csv[2]", "line 4 has 2 cells and not 4, as there are columns"),
        ("e", "column 'age' is empty"),
        ("f", "it has no label (--label none does without)"),
        ("h", "it has NaN or infinite values"),
    ]
    rows = open_data(tmp_path / "t.csv", x="height", label=None, name=None, on_error="skip")
    assert torch.cat([b.inputs for b in rows.batches(3)]).flatten().tolist() == [2.5, 4.5, 1.5, 1000, 0.5, 0.5]
    assert rows.names[0] == "t.csv[0]"
    (tmp_path / "n.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    rows = open_data(tmp_path / "n.csv", label=None)  # labels that are not asked for are no inputs either
    assert rows.labels is None and rows.store.columns == ["a", "b"] and rows.about.endswith("not used: y")
    with pytest.raises(
        InputError, match=r"expected the column 'weight' in .*, but it has: id \(text\), age \(number\)"
    ):
        open_data(tmp_path / "t.csv", x=["weight"])
    with pytest.raises(InputError, match="--label: expected the column 'kind'"):
        open_data(tmp_path / "t.csv", label="kind")
    with pytest.raises(
        InputError, match="expected several columns of numbers, or one column of another kind, as input"
    ):
        open_data(tmp_path / "t.csv", x=["id", "age"])


def test_texts_with_quotes_commas_and_lines(tmp_path):
    content = 'text;y\n"one; two";1\n"a\nb ""c"" d";0\n5" wide;1\nplain;2\n'
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + content.encode())
    rows = open_data(tmp_path / "t.csv", preprocess=Counted())
    assert [rows.store.raw(i) for i in range(4)] == ["one; two", 'a\nb "c" d', '5" wide', "plain"]
    (batch,) = rows.batches(9)
    assert batch.inputs["input_ids"].shape == (4, 4)
    assert batch.labels.tolist() == [1, 0, 1, 2]
    with pytest.raises(InputError, match=r"expected numbers or pictures from .* for this model, got texts"):
        open_data(tmp_path / "t.csv")


def test_names_and_labels_that_our_tables_escape_are_read_and_texts_stay_as_they_are(tmp_path):
    write_table(
        tmp_path / "t.csv",
        {"text": np.array(["a", "b"]), "name": np.array(["=x", "@y"]), "label": np.array(["-no-", "+yes"])},
    )
    with (tmp_path / "t.csv").open("a") as file:
        file.write("'-' is a dash,z,+yes\n")
    rows = open_data(tmp_path / "t.csv", preprocess=Counted())
    assert list(rows.names) == ["=x", "@y", "z"]
    assert rows.classes == ("+yes", "-no-")
    assert rows.store.raw(2) == "'-' is a dash"


def test_broken_text_files_lose_no_row_in_silence(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'text,y\ngood one,1\nb\xff d,0\ncaf\xc3\xa9,1\nlast,0\n"open,1\nnever,0\n')
    rows = open_data(tmp_path / "t.csv", preprocess=Counted(), on_error="skip")
    assert [batch.names for batch in rows.batches(9)] == [["t.csv[0]", "t.csv[2]", "t.csv[3]"]]
    assert [p.reason for p in rows.problems] == [
        "line 3 is not text in UTF-8 (invalid start byte)",
        "line 6 has 1 cells and not 2, as there are columns; it goes on over 2 lines: is a quote not closed?",
    ]
    (tmp_path / "e.csv").write_text("")
    with pytest.raises(InputError, match="expected a first line with the names of columns"):
        open_data(tmp_path / "e.csv")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(InputError, match=r"expected each column of .* once, but 'a' is there more often"):
        open_data(tmp_path / "twice.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="expected text in UTF-8"):
        open_data(tmp_path / "b.csv")


def test_paths_to_pictures_in_a_table(tmp_path):
    write_pictures(tmp_path, ["in/1.png", "in/2.png"])
    (tmp_path / "t.tsv").write_text("path\tlabel\nin/1.png\t1\nin/2.png\t0\nin/3.png\t0\n")
    for preprocess in (Resized(), None):
        rows = open_data(tmp_path / "t.tsv", preprocess=preprocess, on_error="skip")
        (batch,) = rows.batches(5)
        assert batch.names == ["in/1.png", "in/2.png"]
        assert batch.labels.tolist() == [1, 0]
        assert str(rows.problems[0]) == "in/3.png (row 2): No such file or directory"


def test_labels_that_are_no_index_are_problems_and_minus_one_is_none(tmp_path):
    (tmp_path / "t.csv").write_text("x,label\n1,0\n2,-1\n3,word\n4,2\n5,1.0\n")
    rows = open_data(tmp_path / "t.csv", on_error="skip")
    assert [batch.labels.tolist() for batch in rows.batches(9)] == [[0, 2, 1]]
    assert [p.reason for p in rows.problems] == [
        "expected a class index from 0 as its label, got '-1'",
        "expected a class index from 0 as its label, got 'word'",
    ]
    (tmp_path / "u.csv").write_text("x,label\n1,-1\n2,-1\n")
    assert open_data(tmp_path / "u.csv").labels is None
    (tmp_path / "v.csv").write_text("x,label\n1,cat\n2,dog\n3,cow\n")
    rows = open_data(tmp_path / "v.csv", classes=("dog", "cat", "ant"), on_error="skip")
    assert [batch.labels.tolist() for batch in rows.batches(9)] == [[1, 0]]
    assert rows.problems[0].reason == "expected one of the model's 3 classes as its label, got 'cow'"


# Parquet and data sets on disk


def write_parquet(path, rows=None, **columns):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path, row_group_size=rows)


def test_parquet_of_texts_numbers_and_lists(tmp_path):
    write_parquet(
        tmp_path / "t.parquet", text=["a b", None, "c"], y=[1, 0, 1], n=[0.5, 1.5, 2.5], l=[[1, 2], [3, 4], [5]]
    )
    rows = open_data(tmp_path / "t.parquet", preprocess=Counted(), on_error="skip")
    assert [batch.labels.tolist() for batch in rows.batches(3)] == [[1, 1]]
    assert rows.problems[0].reason == "column 'text' is empty"
    assert "not used: n, l" in rows.about
    rows = open_data(tmp_path / "t.parquet")
    assert next(rows.batches(3)).inputs.tolist() == [[0.5], [1.5], [2.5]]
    rows = open_data(tmp_path / "t.parquet", x="l", on_error="skip")
    assert next(rows.batches(3)).inputs.tolist() == [[1, 2], [3, 4]]
    assert rows.problems[0].reason.startswith("expected [2] of int64 as the first row has, got [1]")
    write_parquet(tmp_path / "g.parquet", x=[[1.0, 2.0], [None, 3.0], None, [4.0, 5.0]])
    rows = open_data(tmp_path / "g.parquet", on_error="skip")
    assert next(rows.batches(4)).inputs.tolist() == [[1, 2], [4, 5]]
    assert [p.reason for p in rows.problems] == ["it has NaN or infinite values", "column 'x' is empty"]
    write_parquet(tmp_path / "n.parquet", x=[[[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0, 4.0]]])
    rows = open_data(tmp_path / "n.parquet", on_error="skip")
    assert next(rows.batches(3)).inputs.shape == (1, 2, 2)
    assert rows.problems[0].reason == "column 'x': its lists have different lengths"
    with pytest.raises(InputError, match="expected one column of texts in"):
        open_data(tmp_path / "n.parquet", preprocess=Counted())


def test_parquet_of_pictures(tmp_path):
    write_pictures(tmp_path, ["1.png"])
    content = (tmp_path / "1.png").read_bytes()
    write_parquet(tmp_path / "b.parquet", image=[content, b"none", None], id=["x", "y", "z"])
    rows = open_data(tmp_path / "b.parquet", on_error="skip")
    assert [batch.names for batch in rows.batches(3)] == [["x"]]
    assert [p.name for p in rows.problems] == ["y", "z"]
    write_parquet(tmp_path / "s.parquet", image=[{"bytes": content, "path": None}, {"bytes": None, "path": "1.png"}])
    (batch,) = open_data(tmp_path / "s.parquet", preprocess=Resized()).batches(2)
    assert torch.equal(batch.inputs[0], batch.inputs[1])


def test_parquet_in_blocks_and_parts_in_any_order(tmp_path, monkeypatch):
    monkeypatch.setattr("nescio.data.sources.arrow_files.BLOCK", 7)
    folder = tmp_path / "parts"
    folder.mkdir()
    write_parquet(folder / "part-0.parquet", rows=10, x=np.arange(50.0), label=np.arange(50) % 3)
    write_parquet(folder / "part-1.parquet", rows=25, x=np.arange(50.0, 80.0), label=np.arange(50, 80) % 3)
    (folder / "_manifest.json").write_text("{}")
    rows = open_data(folder)
    assert len(rows) == 80
    assert torch.cat([batch.inputs for batch in rows.batches(9)]).flatten().tolist() == list(range(80))
    assert rows.labels.tolist() == [i % 3 for i in range(80)]
    for index in (79, 0, 49, 3, 50, 78, 51, 20, 5):
        assert rows.read(index).tolist() == [index]
    with ThreadPoolExecutor(8) as pool:
        assert [one.item() for one in pool.map(rows.read, range(80))] == list(range(80))
    write_parquet(folder / "part-2.parquet", z=[1.0])
    with pytest.raises(InputError, match=r"expected the same columns in all files of .*part-2\.parquet has \['z'\]"):
        open_data(folder)
    (folder / "part-2.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"expected Parquet, but .*part-2\.parquet is not, or was cut short"):
        open_data(folder)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A data set that Hugging Face's own package has written."""
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("hub")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"]), "image": datasets.Image()}
    )
    rows = {"text": ["a b c", "d", "e f"], "label": [1, 0, 1], "image": [colours(seed=i) for i in range(3)]}
    whole = datasets.Dataset.from_dict(rows, features=features)
    whole.select([2, 0, 1]).save_to_disk(folder / "one", num_shards=2)
    datasets.DatasetDict({"train": whole, "test": whole}).save_to_disk(folder / "splits")
    datasets.DatasetDict({"test": whole}).save_to_disk(folder / "single")
    return folder


def test_a_data_set_of_hugging_face_on_disk(hub):
    rows = open_data(hub / "one", preprocess=Counted())
    (batch,) = rows.batches(5)
    assert batch.inputs["input_ids"].shape == (3, 3)
    assert (batch.labels.tolist(), rows.classes) == ([1, 1, 0], ("no", "yes"))
    assert open_data(hub / "one", preprocess=Counted(), classes=("perhaps", "yes", "no")).labels.tolist() == [1, 1, 2]
    rows = open_data(hub / "one")
    assert rows.names[2] == "one[2]"
    expected = [torch.from_numpy(np.array(colours(seed=i))).permute(2, 0, 1) / 255 for i in (2, 0, 1)]
    assert torch.equal(next(rows.batches(5)).inputs, torch.stack(expected))
    assert len(open_data(hub / "splits" / "test")) == len(open_data(hub / "single")) == 3
    with pytest.raises(InputError, match=r"expected one data set in .*holds 'train', 'test'; name one of them"):
        open_data(hub / "splits")


def test_a_broken_data_set_is_told(hub, tmp_path):
    import shutil

    shutil.copytree(hub / "single" / "test", tmp_path / "a")
    file = next((tmp_path / "a").glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="expected an Arrow file at"):
        open_data(tmp_path / "a")
    (tmp_path / "a" / "state.json").write_text("{")
    with pytest.raises(InputError, match=r"cannot read .*state\.json"):
        open_data(tmp_path / "a")


def test_a_model_of_texts_is_not_given_pictures(tmp_path):
    write_pictures(tmp_path, ["a.png"])
    with pytest.raises(InputError, match=r"expected texts, as the model takes, but .* holds pictures"):
        open_data(tmp_path, preprocess=Counted())


def test_attempts_can_be_assembled_by_another_loop(tmp_path):
    write_pictures(tmp_path, ["a.png", "b.png"])
    (tmp_path / "b.png").write_text("broken")
    rows = open_data(tmp_path, on_error="skip")
    attempts = list(map(rows.attempt, range(2)))
    assert isinstance(attempts[1], Problem)
    assert rows.problems == []
    assert rows.assemble(range(2), attempts).names == ["a.png"]
    assert rows.assemble([1], attempts[1:]) is None
    assert [problem.index for problem in rows.problems] == [1]
    assert isinstance(rows, Rows)


def test_a_missing_package_is_no_fault_of_a_row(tmp_path, monkeypatch):
    import importlib

    write_pictures(tmp_path, ["a.png"])
    real = importlib.import_module

    def without(name, *more):
        if name.startswith("PIL"):
            raise ImportError("No module named 'PIL'")
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=r"pip install 'nescio\[data\]'"):
        open_data(tmp_path, on_error="skip").attempt(0)


def test_one_index_for_many_rows(tmp_path):
    """Reading holds no more than a batch: the file is much larger than what stays in memory."""
    import tracemalloc

    with (tmp_path / "t.csv").open("w") as file:
        file.write("text,label\n")
        file.writelines(f"{'word ' * 100}{i},{i % 2}\n" for i in range(5000))
    tracemalloc.start()
    rows = open_data(tmp_path / "t.csv", preprocess=Counted())
    count = sum(map(len, (batch.names for batch in rows.batches(50))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 5000
    assert peak < os.path.getsize(tmp_path / "t.csv") / 2
