"""What is scored: small picture sets that need no download, arrays from files, and files that are written whole."""

from nescio.data.atomic import check_writable, replacing
from nescio.data.digits import Digits, Split, digits
from nescio.data.files import read_npz
from nescio.data.not_digits import NOT_DIGITS, drawn_letters, photo_patches
from nescio.data.tables import check_ending, write_table

__all__ = [
    "digits",
    "Digits",
    "Split",
    "photo_patches",
    "drawn_letters",
    "NOT_DIGITS",
    "read_npz",
    "write_table",
    "check_ending",
    "check_writable",
    "replacing",
]
