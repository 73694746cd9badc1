"""Names of classes in files of every form."""

import json

import numpy as np
import pytest

from nescio.data.class_names import LARGEST, names_of, read_class_names
from nescio.types import InputError


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("names.txt", "cat\nlittle  dog\nfox\n"),
        ("names.txt", "\ufeffcat\r\nlittle dog\r\nfox\r\n\r\n"),
        ("names", "cat\nlittle dog\nfox"),
        ("names.json", json.dumps(["cat", "little dog", "fox"])),
        ("names.JSON", json.dumps({"2": "fox", "0": "cat", "1": "little dog"})),
        ("names.json", json.dumps({"0": ["n01", "cat"], "1": ["n02", "little dog"], "2": ["n03", "fox"]})),
    ],
)
def test_names_are_read_in_the_order_of_the_classes(tmp_path, file, text):
    (tmp_path / file).write_bytes(text.encode())
    assert read_class_names(tmp_path / file) == ("cat", "little dog", "fox")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("a.txt", b"", "but it has none"),
        ("a.txt", b"cat\n\ndog\n", "that of class 1 is empty"),
        ("a.txt", b"\xff\xfe", "cannot read"),
        ("a.json", b"{", "is not JSON"),
        ("a.json", b"[" * 100_000, "is not JSON"),
        ("a.json", b"3", "expected a list of names"),
        ("a.json", b'["cat", 1]', "expected a list of names"),
        ("a.json", b'{"0": "cat", "2": "dog"}', "with every index"),
        ("a.txt", b"a" * (LARGEST + 1), f"too large for that: {LARGEST + 1} bytes"),
    ],
)
def test_what_holds_no_names_is_told(tmp_path, file, text, words):
    (tmp_path / file).write_bytes(text)
    with pytest.raises(InputError, match=words):
        read_class_names(tmp_path / file)


def test_classes_get_their_names_or_none_does():
    assert names_of(np.array([1, 0, 1]), ("cat", "dog")).tolist() == ["dog", "cat", "dog"]
    assert names_of(np.array([], dtype=np.int64), ("cat", "dog")).tolist() == []
    for odd in (2, -1):
        with pytest.raises(InputError, match=f"there are 2 names, and none for class {odd}"):
            names_of(np.array([0, odd]), ("cat", "dog"))
    with pytest.raises(InputError, match="expected indices"):
        names_of(np.array(["cat"], dtype=object), ("cat", "dog"))
