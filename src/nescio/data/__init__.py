"""What is scored: files and bundled pictures, arrays, tables, and files that are written whole.

Where `nescio_papers` is installed, this module has its data sets too (`load_set`, `corrupt` …).
"""

from nescio.data.atomic import check_writable, replacing
from nescio.data.class_names import read_class_names
from nescio.data.digits import Digits, Split, byte_digits, digits
from nescio.data.not_digits import NOT_DIGITS, drawn_letters, photo_patches
from nescio.data.npz_files import read_npz
from nescio.data.pictures import PictureSet, subset, to_float
from nescio.data.tables import check_ending, read_table, write_table
from nescio.plugins import lent_names

__all__ = [
    "PictureSet",
    "subset",
    "to_float",
    "digits",
    "byte_digits",
    "Digits",
    "Split",
    "photo_patches",
    "drawn_letters",
    "NOT_DIGITS",
    "read_npz",
    "read_class_names",
    "read_table",
    "write_table",
    "check_ending",
    "check_writable",
    "replacing",
]

__getattr__ = lent_names(__name__, ("load_set", "SETS", "soft_labels", "corrupt", "CORRUPTIONS"))
