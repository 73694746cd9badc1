import numpy as np
import pytest

from nescio.data import read_npz
from nescio.types import InputError


def test_the_array_x_comes_first_and_a_single_array_needs_no_name(tmp_path):
    x, y = np.arange(6.0).reshape(2, 3), np.array([1, 0])
    np.savez(tmp_path / "both.npz", y=y, x=x)
    np.savez_compressed(tmp_path / "one.npz", pictures=x)
    np.testing.assert_array_equal(read_npz(tmp_path / "both.npz"), x)
    np.testing.assert_array_equal(read_npz(str(tmp_path / "one.npz")), x)
    np.testing.assert_array_equal(read_npz(tmp_path / "both.npz", key="y"), y)


def test_several_arrays_without_x_are_listed(tmp_path):
    np.savez(tmp_path / "d.npz", images=np.zeros(2), labels=np.zeros(2))
    with pytest.raises(
        InputError, match=r"named 'x' or a single array in .*d\.npz, but it holds: images, labels; write"
    ):
        read_npz(tmp_path / "d.npz")
    with pytest.raises(InputError, match=r"named 'z' in .* holds: images, labels"):
        read_npz(tmp_path / "d.npz", key="z")


def test_foreign_byte_order_becomes_native(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.arange(3, dtype=">f4"))
    found = read_npz(tmp_path / "d.npz")
    assert found.dtype == np.float32
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, [0, 1, 2])


def test_pickles_are_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    np.savez(tmp_path / "d.npz", x=np.array([Trap()], dtype=object))
    with pytest.raises(InputError, match="cannot read an array of numbers"):
        read_npz(tmp_path / "d.npz")
    assert not (tmp_path / "sprung").exists()


def test_missing_damaged_and_other_files_get_plain_words(tmp_path):
    with pytest.raises(InputError, match="there is none"):
        read_npz(tmp_path / "no.npz")
    with pytest.raises(InputError, match="is a folder"):
        read_npz(tmp_path)
    np.save(tmp_path / "plain.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"is not one.*numpy\.savez"):
        read_npz(tmp_path / "plain.npy")
    np.savez_compressed(tmp_path / "whole.npz", x=np.random.default_rng(0).random(5000))
    content = (tmp_path / "whole.npz").read_bytes()
    for name, damaged in {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "spoilt": content[:200] + bytes(500) + content[700:],
    }.items():
        (tmp_path / f"{name}.npz").write_bytes(damaged)
        with pytest.raises(InputError, match=f"{name}.npz"):
            read_npz(tmp_path / f"{name}.npz")


@pytest.mark.parametrize(
    ("array", "message"),
    [(np.array(["a"]), "real numbers"), (np.array([1j]), "complex128"), (np.array(1.0), "a single number")],
)
def test_only_rows_of_real_numbers_are_taken(tmp_path, array, message):
    np.savez(tmp_path / "d.npz", x=array)
    with pytest.raises(InputError, match=message):
        read_npz(tmp_path / "d.npz")
